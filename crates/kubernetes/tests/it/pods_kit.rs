//! Pods for tests, and what becomes of them.

use std::sync::Arc;

use bigfleet_kubernetes::crd::{CapacityRequest, CapacityRequestSpec};
use bigfleet_kubernetes::pods::core::{Action, Current, Decision, Rules, decide};
use bigfleet_kubernetes::pods::facts::Facts;
use bigfleet_types::UnixNanos;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub(crate) const NOW: UnixNanos = UnixNanos(1_777_550_400_000_000_000);

/// A pod `training/worker-0` of one container with `cpu: 1`, with `patch` merged over it.
pub(crate) fn pod(patch: Value) -> Pod {
    let mut base = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": "training", "name": "worker-0", "uid": "uid-0" },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] },
        "status": { "phase": "Pending" },
    });
    merge(&mut base, patch);
    serde_json::from_value(base).unwrap()
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch,
    }
}

pub(crate) fn facts(patch: Value) -> Facts {
    Facts::of(&pod(patch)).unwrap()
}

pub(crate) fn decided(patch: Value, rules: &Rules) -> Decision {
    decide(&facts(patch), None, rules, &|node| node.starts_with("static-"), NOW)
}

/// The CapacityRequest that the pod gets.
pub(crate) fn applied(decision: &Decision) -> &CapacityRequest {
    match &decision.action {
        Action::Apply(object) => object,
        other => panic!("no CapacityRequest but {other:?}"),
    }
}

pub(crate) fn spec(patch: Value) -> CapacityRequestSpec {
    applied(&decided(patch, &Rules::default())).spec.clone()
}

/// The resources of the pod's CapacityRequest, as text by name.
pub(crate) fn resources(patch: Value) -> Value {
    serde_json::to_value(&spec(patch).resources).unwrap()
}

/// The requirements, as `key operator values`.
pub(crate) fn requirements(patch: Value) -> Vec<String> {
    let print = |one: &bigfleet_kubernetes::crd::Requirement| {
        format!("{} {} {}", one.key, one.operator, one.values.join(",")).trim_end().to_owned()
    };
    spec(patch).requirements.iter().map(print).collect()
}

/// The object as the cluster would hold it.
pub(crate) fn held(object: &CapacityRequest, uid: &str) -> Current {
    let mut object = object.clone();
    object.metadata.uid = Some(uid.to_owned());
    // Over the wire and back, as a watch would bring it.
    let object: CapacityRequest = serde_json::from_value(serde_json::to_value(&object).unwrap()).unwrap();
    Current::of(&object)
}

pub(crate) fn arc(patch: Value) -> Arc<Facts> {
    Arc::new(facts(patch))
}
