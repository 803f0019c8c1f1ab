//! Between the custom resources and what the operator core speaks of.

use std::collections::BTreeMap;

use bigfleet_operator::io;
use bigfleet_types::{MachineId, UnixNanos};
use k8s_openapi::api::core::v1::{ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use super::{
    Availability, AvailableCapacity, AvailableCapacitySpec, CapacityRequest, CapacityRequestPhase,
    Requirement, UpcomingNode, UpcomingNodePhase, UpcomingNodeSpec, UpcomingNodeStatus, names,
};

/// Most characters of an error in a status.
const LAST_ERROR: usize = 1024;

/// Why an object of ours means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It has no uid: it never was in a cluster.
    #[error("{kind} {name:?}: metadata.uid is missing; the object is left out")]
    NoUid {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An UpcomingNode without a machine id that can be read.
    #[error("UpcomingNode {name:?}: spec.machineID {id:?} {problem}; the object is left alone")]
    Machine {
        /// Its name.
        name: String,
        /// What it says.
        id: String,
        /// What is wrong with that.
        problem: String,
    },
    /// An AvailableCapacity that does not say which key it stands for.
    #[error(
        "AvailableCapacity {name:?}: annotation bigfleet.lucy.sh/supersedes-key {problem}; the object is left alone"
    )]
    Key {
        /// Its name.
        name: String,
        /// What is wrong with the annotation.
        problem: &'static str,
    },
}

fn amounts(resources: &BTreeMap<String, Quantity>) -> BTreeMap<String, String> {
    resources.iter().map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect()
}

fn quantities(resources: &BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    resources.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).collect()
}

fn requirement(requirement: &Requirement) -> (String, String, Vec<String>) {
    (requirement.key.clone(), requirement.operator.clone(), requirement.values.clone())
}

fn requirements(all: &[(String, String, Vec<String>)]) -> Vec<Requirement> {
    let one = |(key, operator, values): &(String, String, Vec<String>)| Requirement {
        key: key.clone(),
        operator: operator.clone(),
        values: values.clone(),
    };
    all.iter().map(one).collect()
}

fn selector(selector: &LabelSelector) -> io::LabelSelector {
    io::LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: selector
            .match_expressions
            .iter()
            .flatten()
            .map(|one| (one.key.clone(), one.operator.clone(), one.values.clone().unwrap_or_default()))
            .collect(),
    }
}

/// A CapacityRequest as the operator core reads it.
///
/// # Errors
/// [`Error::NoUid`].
pub fn capacity_request(object: &CapacityRequest) -> Result<io::CapacityRequest, Error> {
    let meta = &object.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let uid =
        meta.uid.as_deref().ok_or_else(|| Error::NoUid { kind: "CapacityRequest", name: name.clone() })?;
    let spec = &object.spec;
    let phase = object.status.as_ref().and_then(|status| status.phase);
    let text = |penalty: &Option<Quantity>| penalty.as_ref().map(|quantity| quantity.0.clone());
    Ok(io::CapacityRequest {
        uid: uid.into(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name,
        deleting: meta.deletion_timestamp.is_some(),
        requirements: spec.requirements.iter().map(requirement).collect(),
        resources: amounts(&spec.resources),
        priority: spec.priority,
        interruption_penalty: text(&spec.interruption_penalty),
        reclamation_penalty: text(&spec.reclamation_penalty),
        topology_spread: spec
            .topology_spread
            .iter()
            .map(|one| (one.topology_key.clone(), one.max_skew, one.when_unsatisfiable.clone()))
            .collect(),
        co_location: spec.co_location.as_ref().map(|one| io::CoLocation {
            topology_key: one.topology_key.clone(),
            selector: one.label_selector.as_ref().map(selector),
        }),
        acknowledged: phase == Some(CapacityRequestPhase::Acknowledged),
    })
}

/// The machine's UpcomingNode as an object; its status goes through the status subresource. `None` without a machine.
#[must_use]
pub fn upcoming_node(node: &io::UpcomingNode) -> Option<UpcomingNode> {
    let machine = node.machine.as_ref()?;
    let mut labels = managed();
    if names::is_label_value(machine.as_str()) {
        labels.insert(names::MACHINE_ID.to_owned(), machine.as_str().to_owned());
    }
    let taint = |(key, value, effect): &(String, String, String)| Taint {
        key: key.clone(),
        value: Some(value.clone()).filter(|value| !value.is_empty()),
        effect: effect.clone(),
        time_added: None,
    };
    let unless_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Some(UpcomingNode {
        metadata: ObjectMeta {
            name: Some(names::upcoming_node(machine)),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: UpcomingNodeSpec {
            labels: node.labels.clone(),
            resources: quantities(&node.resources),
            taints: node.taints.iter().map(taint).collect(),
            machine_id: Some(machine.as_str().to_owned()),
        },
        status: Some(UpcomingNodeStatus {
            phase: Some(phase(node.phase)),
            node_ref: node.node.as_ref().map(|name| ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(name.clone()),
                ..ObjectReference::default()
            }),
            provider_id: unless_empty(&node.provider_id),
            provisioning_start_time: node.provisioning_start.and_then(seconds),
            last_error: unless_empty(&node.last_error).map(|text| text.chars().take(LAST_ERROR).collect()),
        }),
    })
}

/// An UpcomingNode of the cluster as the operator core reads it. A phase that is absent or unknown reads Provisioning.
///
/// # Errors
/// [`Error::Machine`].
pub fn read_upcoming_node(object: &UpcomingNode) -> Result<io::UpcomingNode, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let id = object.spec.machine_id.clone().unwrap_or_default();
    let machine =
        MachineId::parse(&id).map_err(|error| Error::Machine { name, id, problem: error.to_string() })?;
    let status = object.status.clone().unwrap_or_default();
    let taint =
        |taint: &Taint| (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone());
    Ok(io::UpcomingNode {
        machine: Some(machine),
        labels: object.spec.labels.clone(),
        resources: amounts(&object.spec.resources),
        taints: object.spec.taints.iter().map(taint).collect(),
        provisioning_start: status
            .provisioning_start_time
            .and_then(|time| i64::try_from(time.0.as_nanosecond()).ok().map(UnixNanos)),
        provider_id: status.provider_id.unwrap_or_default(),
        phase: status.phase.map_or(io::Phase::Provisioning, read_phase),
        node: status.node_ref.and_then(|node| node.name),
        last_error: status.last_error.unwrap_or_default(),
    })
}

/// A hint as an object.
#[must_use]
pub fn available_capacity(hint: &io::AvailableCapacity) -> AvailableCapacity {
    AvailableCapacity {
        metadata: ObjectMeta {
            name: Some(names::available_capacity(&hint.key)),
            labels: Some(managed()),
            annotations: Some(BTreeMap::from([(names::SUPERSEDES_KEY.to_owned(), hint.key.clone())])),
            ..ObjectMeta::default()
        },
        spec: AvailableCapacitySpec {
            requirements: requirements(&hint.requirements),
            resources: quantities(&hint.resources),
            available_count: i32::try_from(hint.count).unwrap_or(i32::MAX),
            availability: match hint.confidence {
                "High" => Availability::High,
                "Medium" => Availability::Medium,
                "Low" => Availability::Low,
                _ => Availability::None,
            },
            cost: Quantity(hint.cost_per_hour.clone()),
        },
        status: None,
    }
}

/// A hint of the cluster as the operator core reads it.
///
/// # Errors
/// [`Error::Key`]: the object does not say, or lies about, which key it stands for.
pub fn read_available_capacity(object: &AvailableCapacity) -> Result<io::AvailableCapacity, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let key = object.metadata.annotations.as_ref().and_then(|all| all.get(names::SUPERSEDES_KEY)).cloned();
    let key = match key {
        None => return Err(Error::Key { name, problem: "is missing" }),
        Some(key) if names::available_capacity(&key) != name => {
            return Err(Error::Key { name, problem: "does not belong to the object's name" });
        }
        Some(key) => key,
    };
    let spec = &object.spec;
    Ok(io::AvailableCapacity {
        key,
        requirements: spec.requirements.iter().map(requirement).collect(),
        count: u32::try_from(spec.available_count).unwrap_or(0),
        confidence: match spec.availability {
            Availability::High => "High",
            Availability::Medium => "Medium",
            Availability::Low => "Low",
            Availability::None | Availability::Unknown => "None",
        },
        cost_per_hour: spec.cost.0.clone(),
        resources: amounts(&spec.resources),
    })
}

/// The phase as the cluster reads it.
#[must_use]
pub fn phase(phase: io::Phase) -> UpcomingNodePhase {
    match phase {
        io::Phase::Provisioning => UpcomingNodePhase::Provisioning,
        io::Phase::Launched => UpcomingNodePhase::Launched,
        io::Phase::Registered => UpcomingNodePhase::Registered,
        io::Phase::Ready => UpcomingNodePhase::Ready,
        io::Phase::Draining => UpcomingNodePhase::Draining,
        io::Phase::Drained => UpcomingNodePhase::Drained,
        io::Phase::Failed => UpcomingNodePhase::Failed,
    }
}

fn read_phase(phase: UpcomingNodePhase) -> io::Phase {
    match phase {
        UpcomingNodePhase::Provisioning | UpcomingNodePhase::Unknown => io::Phase::Provisioning,
        UpcomingNodePhase::Launched => io::Phase::Launched,
        UpcomingNodePhase::Registered => io::Phase::Registered,
        UpcomingNodePhase::Ready => io::Phase::Ready,
        UpcomingNodePhase::Draining => io::Phase::Draining,
        UpcomingNodePhase::Drained => io::Phase::Drained,
        UpcomingNodePhase::Failed => io::Phase::Failed,
    }
}

/// The merge patch that acknowledges a CapacityRequest.
#[must_use]
pub fn acknowledge_patch(at: UnixNanos) -> serde_json::Value {
    serde_json::json!({ "status": { "phase": CapacityRequestPhase::Acknowledged, "acknowledgedAt": seconds(at) } })
}

/// The merge patch that makes an UpcomingNode's status what it is in `node`; what it does not have is removed.
#[must_use]
pub fn upcoming_node_status_patch(node: &UpcomingNode) -> serde_json::Value {
    let status = node.status.clone().unwrap_or_default();
    serde_json::json!({ "status": {
        "phase": status.phase,
        "nodeRef": status.node_ref,
        "providerID": status.provider_id,
        "provisioningStartTime": status.provisioning_start_time,
        "lastError": status.last_error,
    } })
}

fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(names::MANAGED_BY.to_owned(), super::OPERATOR.to_owned())])
}

/// A point in time, cut to whole seconds as Kubernetes stores it.
fn seconds(at: UnixNanos) -> Option<Time> {
    Timestamp::from_second(at.0.div_euclid(1_000_000_000)).ok().map(Time)
}
