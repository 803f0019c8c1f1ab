//! Nodes and pods as the operator core reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_operator::io;
use bigfleet_types::Quantity;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Marks the API server's picture of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The grace of a pod that names none.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A node.
pub(super) fn node(object: &v1::Node) -> io::Node {
    let meta = &object.metadata;
    let spec = object.spec.as_ref();
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_ref());
    io::Node {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta
            .annotations
            .iter()
            .flatten()
            // Others' annotations are long and decide nothing.
            .filter(|(key, _)| key.starts_with("bigfleet.lucy.sh/"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        provider_id: spec.and_then(|spec| spec.provider_id.clone()).unwrap_or_default(),
        unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        taints: spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten().map(taint).collect(),
        allocatable: object
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref())
            // A node that says nonsense of itself offers nothing.
            .and_then(|all| amounts(all).ok())
            .unwrap_or_default(),
        ready: conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"),
    }
}

fn taint(taint: &v1::Taint) -> (String, String, String) {
    (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone())
}

/// The cpu and memory among quantities.
///
/// # Errors
/// Which of the two cannot be read, and why.
pub(super) fn amounts(all: &BTreeMap<String, Text>) -> Result<io::Amounts, String> {
    let of = |name: &str| match all.get(name) {
        None => Ok(0),
        Some(text) => Quantity::parse(&text.0)
            .map(|quantity| quantity.nano())
            .map_err(|error| format!("{name}: quantity {:?} {error}", text.0)),
    };
    Ok(io::Amounts { cpu: of("cpu")?, memory: of("memory")? })
}

/// A pod on `node`. `own` is the namespace and name of the pod that we run in.
pub(super) fn pod(object: &v1::Pod, node: &str, own: Option<&(String, String)>) -> io::Pod {
    let meta = &object.metadata;
    let spec = object.spec.as_ref();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
    let owners = || meta.owner_references.iter().flatten();
    let grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
    io::Pod {
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        node: node.to_owned(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        deleting: meta.deletion_timestamp.is_some(),
        daemon_set: owners().any(|owner| {
            owner.controller == Some(true)
                && owner.kind == "DaemonSet"
                && owner.api_version.starts_with("apps/")
        }),
        mirror: meta.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR))
            || owners().any(|owner| owner.kind == "Node"),
        naked: !owners().any(|owner| owner.controller == Some(true)),
        operator_itself: own.is_some_and(|(ns, own)| *ns == namespace && *own == name),
        termination_grace: grace
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(DEFAULT_GRACE, Duration::from_secs),
        namespace,
        name,
    }
}
