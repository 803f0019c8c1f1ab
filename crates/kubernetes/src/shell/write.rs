//! Writes: one Kubernetes call each, or two for an UpcomingNode whose spec changes.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_operator::io::{self, Write, WriteError};
use bigfleet_types::MachineId;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions as UidOnly};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Inner, lock};
use crate::crd::{
    AvailableCapacity, CapacityRequest, OPERATOR, UpcomingNode, UpcomingNodeSpec, convert, names,
};

/// An UpcomingNode as the cluster holds it, as far as writes are spared or made safe by it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    uid: Option<String>,
    labels: BTreeMap<String, String>,
    spec: UpcomingNodeSpec,
}

impl Stored {
    pub(super) fn of(object: &UpcomingNode) -> Self {
        Self {
            uid: object.metadata.uid.clone(),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            spec: object.spec.clone(),
        }
    }

    /// Whether the cluster already holds what `object` wants.
    fn satisfies(&self, object: &UpcomingNode) -> bool {
        let mut wanted = object.metadata.labels.iter().flatten();
        self.spec == object.spec && wanted.all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// Carries one write out.
pub(super) async fn carry_out(inner: &Inner, write: Write) -> Result<(), WriteError> {
    inner.metrics.inflight.inc();
    let result = dispatch(inner, write).await;
    inner.metrics.inflight.dec();
    result
}

async fn dispatch(inner: &Inner, write: Write) -> Result<(), WriteError> {
    let client = || inner.client.clone();
    match write {
        Write::AcknowledgeRequest { namespace, name, .. } => {
            let api: Api<CapacityRequest> = Api::namespaced(client(), &namespace);
            let patch = convert::acknowledge_patch(inner.clock.now());
            let began = Instant::now();
            let result = api.patch_status(&name, &merge(), &Patch::Merge(patch)).await;
            inner.metrics.acknowledge_seconds.observe(began.elapsed().as_secs_f64());
            done(result)
        }
        Write::Cordon { node, uid, annotations } => {
            let patch = json!({ "metadata": { "uid": &*uid, "annotations": annotations }, "spec": { "unschedulable": true } });
            patch_node(inner, &node, patch).await
        }
        Write::Uncordon { node, uid, annotations } => {
            let none: BTreeMap<&String, Value> = annotations.iter().map(|key| (key, Value::Null)).collect();
            let patch = json!({ "metadata": { "uid": &*uid, "annotations": none }, "spec": { "unschedulable": null } });
            patch_node(inner, &node, patch).await
        }
        Write::LabelNode { node, uid, labels } => {
            patch_node(inner, &node, json!({ "metadata": { "uid": &*uid, "labels": labels } })).await
        }
        Write::Evict { pod, namespace, name, grace } => evict(inner, &pod, &namespace, &name, grace).await,
        Write::DeletePod { pod, namespace, name } => {
            let api: Api<Pod> = Api::namespaced(client(), &namespace);
            let params = DeleteParams { grace_period_seconds: Some(0), ..only(&pod) };
            another_is_gone(done(api.delete(&name, &params).await))
        }
        Write::DeleteNode { node, uid } => {
            let api: Api<Node> = Api::all(client());
            another_is_gone(done(api.delete(&node, &only(&uid)).await))
        }
        Write::PutUpcomingNode(node) => put_upcoming(inner, &node).await,
        Write::DeleteUpcomingNode { machine } => delete_upcoming(inner, &machine).await,
        Write::PutAvailableCapacity(hint) => {
            let api: Api<AvailableCapacity> = Api::all(client());
            let object = convert::available_capacity(&hint);
            let name = names::available_capacity(&hint.key);
            missing_kind(done(api.patch(&name, &apply(), &Patch::Apply(&object)).await))
        }
        Write::DeleteAvailableCapacity { key } => {
            let api: Api<AvailableCapacity> = Api::all(client());
            let name = names::available_capacity(&key);
            done(api.delete(&name, &DeleteParams::default()).await)
        }
    }
}

/// A patch that names the uid changes no other node of the name: a uid never changes, so that the server calls the patch
/// invalid then.
async fn patch_node(inner: &Inner, name: &str, patch: Value) -> Result<(), WriteError> {
    let api: Api<Node> = Api::all(inner.client.clone());
    match api.patch(name, &merge(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains("metadata.uid") => {
            Err(WriteError::Gone)
        }
        result => done(result),
    }
}

/// The client library's own eviction loses its options on the way, the uid among them; so the body is made here.
async fn evict(
    inner: &Inner,
    uid: &str,
    namespace: &str,
    name: &str,
    grace: Duration,
) -> Result<(), WriteError> {
    let api: Api<Pod> = Api::namespaced(inner.client.clone(), namespace);
    let body = Eviction {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: Some(i64::try_from(grace.as_secs()).unwrap_or(i64::MAX)),
            preconditions: Some(UidOnly { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    };
    done(api.create_subresource::<_, Value>("eviction", name, &PostParams::default(), &body).await)
}

async fn put_upcoming(inner: &Inner, node: &io::UpcomingNode) -> Result<(), WriteError> {
    let Some(object) = convert::upcoming_node(node) else {
        return Err(WriteError::Other("an UpcomingNode without a machine".to_owned()));
    };
    let began = Instant::now();
    let result = put_upcoming_object(inner, &object).await;
    let phase = phase_label(node.phase);
    inner.metrics.upcoming_seconds.get_or_create(&[("phase", phase)]).observe(began.elapsed().as_secs_f64());
    result
}

async fn put_upcoming_object(inner: &Inner, object: &UpcomingNode) -> Result<(), WriteError> {
    let api: Api<UpcomingNode> = Api::all(inner.client.clone());
    let name = object.metadata.name.clone().unwrap_or_default();
    let status = Patch::Merge(convert::upcoming_node_status_patch(object));
    if lock(&inner.upcoming).get(&name).is_some_and(|stored| stored.satisfies(object)) {
        let written = api.patch_status(&name, &merge(), &status).await;
        inner.metrics.upcoming("status_update", &written);
        match done(written) {
            // Somebody deleted it, and the watch has not said so yet: it is made anew.
            Err(WriteError::Gone) => lock(&inner.upcoming).remove(&name),
            result => return result,
        };
    }
    let known = lock(&inner.upcoming).contains_key(&name);
    let bare = UpcomingNode { status: None, ..object.clone() };
    let applied = api.patch(&name, &apply(), &Patch::Apply(&bare)).await;
    inner.metrics.upcoming(if known { "spec_update" } else { "create" }, &applied);
    if let Ok(applied) = &applied {
        lock(&inner.upcoming).insert(name.clone(), Stored::of(applied));
    }
    missing_kind(done(applied))?;
    let written = api.patch_status(&name, &merge(), &status).await;
    inner.metrics.upcoming("status_update", &written);
    done(written)
}

async fn delete_upcoming(inner: &Inner, machine: &MachineId) -> Result<(), WriteError> {
    let api: Api<UpcomingNode> = Api::all(inner.client.clone());
    let name = names::upcoming_node(machine);
    let uid = lock(&inner.upcoming).get(&name).and_then(|stored| stored.uid.clone());
    let params = uid.as_deref().map_or_else(DeleteParams::default, only);
    let deleted = api.delete(&name, &params).await;
    inner.metrics.upcoming("delete", &deleted);
    let result = done(deleted);
    if matches!(result, Ok(()) | Err(WriteError::Gone)) {
        lock(&inner.upcoming).remove(&name);
    }
    result
}

fn merge() -> PatchParams {
    PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() }
}

fn apply() -> PatchParams {
    PatchParams::apply(OPERATOR).force()
}

/// Deletes this very object and no other of its name.
fn only(uid: &str) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// Where the uid is a precondition, a conflict says that the name is another's by now.
fn another_is_gone(result: Result<(), WriteError>) -> Result<(), WriteError> {
    result.map_err(|error| if error == WriteError::Conflict { WriteError::Gone } else { error })
}

/// An object that is to be created cannot be missing: its kind is.
fn missing_kind(result: Result<(), WriteError>) -> Result<(), WriteError> {
    result.map_err(|error| match error {
        WriteError::Gone => {
            WriteError::Other("the cluster does not know the kind; install the CRDs".to_owned())
        }
        error => error,
    })
}

fn done<T>(result: kube::Result<T>) -> Result<(), WriteError> {
    let status = match result {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) => status,
        // The object was written; only the answer could not be read.
        Err(error @ kube::Error::SerdeError(_)) => {
            tracing::warn!(%error, "the answer to a write cannot be read");
            return Ok(());
        }
        Err(error) => return Err(WriteError::Other(error.to_string())),
    };
    let mut message = status.message.clone();
    let details = status.details.as_ref();
    // A refused eviction names its budget here.
    for cause in details.iter().flat_map(|details| &details.causes) {
        if !cause.message.is_empty() && !message.contains(&cause.message) {
            message = format!("{message} {}", cause.message);
        }
    }
    let seconds = details.map_or(0, |details| details.retry_after_seconds);
    let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    Err(match status.code {
        404 => WriteError::Gone,
        409 => WriteError::Conflict,
        429 => WriteError::TooMany { retry_after, message },
        503 | 504 if retry_after.is_some() => WriteError::TooMany { retry_after, message },
        code => WriteError::Other(format!("{code}: {message}")),
    })
}

/// The label of a phase in metrics.
pub(super) fn phase_label(phase: io::Phase) -> &'static str {
    match phase {
        io::Phase::Provisioning => "Provisioning",
        io::Phase::Launched => "Launched",
        io::Phase::Registered => "Registered",
        io::Phase::Ready => "Ready",
        io::Phase::Draining => "Draining",
        io::Phase::Drained => "Drained",
        io::Phase::Failed => "Failed",
    }
}
