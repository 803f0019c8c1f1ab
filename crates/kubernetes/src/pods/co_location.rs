//! Which pods must share a domain with a pod: its own kind, when it requires affinity to itself.
//!
//! Required affinity to other workloads is no gang: to put all replicas of a web server into one domain because each
//! must be near a cache would be an artificial shortage.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::crd::CoLocation;

/// The label that every namespace carries its name in.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What a pod's required affinity means for the fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The gang that the pod is in.
    pub gang: Option<CoLocation>,
    /// Whether a term speaks of another workload and is left out.
    pub cross_workload: bool,
    /// Whether a second term speaks of the pod's own kind and is left out.
    pub several: bool,
}

/// Reads the required pod affinity off a pod. Preferred affinity and anti-affinity have no form.
#[must_use]
pub fn of(pod: &Pod) -> Found {
    let mut found = Found::default();
    let terms = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref())
        .and_then(|affinity| affinity.pod_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for term in terms.into_iter().flatten() {
        let own = term.label_selector.as_ref().is_some_and(|selector| matches(selector, labels))
            && covers(term, namespace);
        match (own, &found.gang) {
            (false, _) => found.cross_workload = true,
            (true, Some(_)) => found.several = true,
            (true, None) => {
                found.gang = Some(CoLocation {
                    label_selector: term.label_selector.clone(),
                    topology_key: term.topology_key.clone(),
                });
            }
        }
    }
    found
}

/// Whether the term looks into the namespace. Of a namespace selector only the name is known here.
fn covers(term: &PodAffinityTerm, namespace: &str) -> bool {
    let names = term.namespaces.as_deref().unwrap_or_default();
    if names.iter().any(|name| name == namespace) {
        return true;
    }
    match &term.namespace_selector {
        None => names.is_empty(),
        Some(selector) => {
            let labels = BTreeMap::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]);
            matches(selector, &labels)
        }
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|one| {
            let value = labels.get(&one.key);
            let listed = value.is_some_and(|value| one.values.iter().flatten().any(|other| other == value));
            match one.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
