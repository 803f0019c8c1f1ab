//! DaemonSets, listed now and then: they are few, and what they take of nodes is no matter of seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::io::{self, Input};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Pod, PodSpec};
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _};
use tokio::sync::mpsc;

use super::Inner;
use super::convert::amounts;
use crate::pods::request;

pub(super) const KIND: &str = "DaemonSet";
/// How often they are listed.
const EVERY: Duration = Duration::from_secs(30);
/// How long until they are listed again when that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// How many come at once.
const PAGE: u32 = 500;
/// How often a list that fails is told: every so many times.
const TELL: u32 = 12;

/// What could be read last, by uid: a set that cannot be read any more is what it was.
type Known = BTreeMap<String, io::DaemonSet>;

/// Lists them until nobody reads any more.
pub(super) async fn follow(inner: Arc<Inner>, sender: mpsc::Sender<Input>) {
    let api: Api<DeserializeGuard<DaemonSet>> = Api::all_with(inner.client.clone(), &());
    let mut known = Known::new();
    let mut failures = 0_u32;
    loop {
        match list(&inner, &api, &known).await {
            Ok(all) => {
                failures = 0;
                inner.synced.set(KIND, true);
                let sets = all.values().cloned().collect();
                known = all;
                if sender.send(Input::DaemonSets(sets)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if failures.is_multiple_of(TELL) {
                    tracing::warn!(%error, "the DaemonSets cannot be listed; what is known of them stays in force");
                }
                failures = failures.saturating_add(1);
                if matches!(&error, kube::Error::Api(status) if matches!(status.code, 403 | 404)) {
                    inner.synced.set(KIND, false);
                }
                if sender.is_closed() {
                    return;
                }
            }
        }
        tokio::time::sleep(if failures > 0 { AGAIN } else { EVERY }).await;
    }
}

async fn list(inner: &Inner, api: &Api<DeserializeGuard<DaemonSet>>, known: &Known) -> kube::Result<Known> {
    let mut all = Known::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        for object in page.items {
            let Some(uid) = object.meta().uid.clone() else {
                continue;
            };
            match read(&object) {
                Ok(set) => {
                    inner.unreadable.forget(KIND, object.meta());
                    all.insert(uid, set);
                }
                Err(error) => {
                    inner.unreadable.report(KIND, object.meta(), &error);
                    all.extend(known.get(&uid).map(|set| (uid, set.clone())));
                }
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => return Ok(all),
            Some(token) => params = params.continue_token(&token),
        }
    }
}

fn read(object: &DeserializeGuard<DaemonSet>) -> Result<io::DaemonSet, String> {
    let object = object.0.as_ref().map_err(|invalid| invalid.error.clone())?;
    let spec = object.spec.template.spec.as_ref().ok_or("spec.template.spec is missing")?;
    let pod = Pod { spec: Some(spec.clone()), ..Pod::default() };
    let taken = request::of(&pod).map_err(|error| error.to_string())?;
    Ok(io::DaemonSet {
        requests: amounts(&taken)?,
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        selector: spec.node_selector.clone().unwrap_or_default(),
        terms: terms(spec),
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
        host_network: spec.host_network.unwrap_or(false),
    })
}

fn terms(spec: &PodSpec) -> Option<Vec<io::NodeTerm>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let term = |term: &k8s_openapi::api::core::v1::NodeSelectorTerm| io::NodeTerm {
        labels: term.match_expressions.iter().flatten().map(condition).collect(),
        fields: term.match_fields.iter().flatten().map(condition).collect(),
    };
    Some(required.node_selector_terms.iter().map(term).collect())
}

fn condition(one: &NodeSelectorRequirement) -> io::NodeCondition {
    io::NodeCondition {
        key: one.key.clone(),
        operator: one.operator.clone(),
        values: one.values.clone().unwrap_or_default(),
    }
}

fn toleration(one: &k8s_openapi::api::core::v1::Toleration) -> io::Toleration {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    io::Toleration {
        key: text(&one.key),
        operator: text(&one.operator),
        value: text(&one.value),
        effect: text(&one.effect),
    }
}
