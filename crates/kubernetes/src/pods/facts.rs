//! What is kept of a pod. A cluster may have 100,000 of them, so nothing else is.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::UnixNanos;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::penalties::Penalties;
use super::{co_location, request, requirements};
use crate::crd::{CapacityRequestSpec, TopologySpread, names};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why a pod of this kind is never the fleet's business, whatever its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exempt {
    /// Its DaemonSet puts one on every node: it follows machines and must not attract them.
    DaemonSet,
    /// A static pod of its node.
    Mirror,
    /// Its node affinity names the node.
    Pinned,
    /// Its owner says so by annotation.
    Ignored,
}

/// What a pod demands, or why that cannot be said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Its node affinity has no form.
    #[error(transparent)]
    Affinity(requirements::Unsupported),
    /// One of its quantities cannot be read.
    #[error(transparent)]
    Quantity(request::BadQuantity),
}

/// What is kept of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it has run to its end.
    pub finished: bool,
    /// Why it is never ours to provide for.
    pub exempt: Option<Exempt>,
    /// Whether scheduling gates hold it back.
    pub gated: bool,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// When its grace ends, if it is being deleted.
    pub deletion: Option<UnixNanos>,
    /// Whether the scheduler has said that no node fits.
    pub unschedulable: bool,
    /// Its PriorityClass.
    pub priority_class: Option<String>,
    /// What its annotations say, unchecked.
    pub annotated: Penalties,
    /// Its demand without penalties.
    pub demand: Result<Arc<CapacityRequestSpec>, Problem>,
    /// In what ways the demand says less than the pod.
    pub approximated: Vec<&'static str>,
}

impl Facts {
    /// Reads a pod. `None` without a name or uid: such an object never came from an API server.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let mut approximated = Vec::new();
        let demand = demand(pod, &mut approximated);
        let exempt = if owned_by(pod, "apps", "DaemonSet") {
            Some(Exempt::DaemonSet)
        } else if annotation(MIRROR).is_some() || owned_by(pod, "", "Node") {
            Some(Exempt::Mirror)
        } else if demand == Err(Problem::Affinity(requirements::Unsupported::Pinned)) {
            Some(Exempt::Pinned)
        } else if annotation(names::IGNORE).as_deref() == Some("true") {
            Some(Exempt::Ignored)
        } else {
            None
        };
        let unschedulable = status.and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
            conditions.iter().any(|one| {
                one.type_ == "PodScheduled"
                    && one.status == "False"
                    && one.reason.as_deref() == Some("Unschedulable")
            })
        });
        let phase = status.and_then(|status| status.phase.as_deref());
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            exempt,
            gated: spec
                .and_then(|spec| spec.scheduling_gates.as_ref())
                .is_some_and(|gates| !gates.is_empty()),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            deletion: meta.deletion_timestamp.as_ref().map(|time| {
                let seconds = Duration::from_secs(u64::try_from(time.0.as_second()).unwrap_or(0));
                UnixNanos(0).after(seconds)
            }),
            unschedulable,
            priority_class: spec.and_then(|spec| spec.priority_class_name.clone()),
            annotated: Penalties {
                interruption: annotation(names::INTERRUPTION_PENALTY),
                reclamation: annotation(names::RECLAMATION_PENALTY),
            },
            demand: demand.map(Arc::new),
            approximated,
        })
    }

    /// The name of its CapacityRequest.
    #[must_use]
    pub fn request_name(&self) -> String {
        names::capacity_request(&self.name, &self.uid)
    }
}

/// Whether the pod's controller is of this kind.
fn owned_by(pod: &Pod, group: &str, kind: &str) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| {
        let of_group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.kind == kind && of_group == group && (kind == "Node" || owner.controller == Some(true))
    })
}

fn demand(pod: &Pod, approximated: &mut Vec<&'static str>) -> Result<CapacityRequestSpec, Problem> {
    let requirements = requirements::of(pod).map_err(Problem::Affinity)?;
    let resources = request::of(pod).map_err(Problem::Quantity)?;
    let gang = co_location::of(pod);
    if requirements.narrowed {
        approximated.push("or_terms");
    }
    if gang.cross_workload {
        approximated.push("cross_workload_affinity");
    }
    if gang.several {
        approximated.push("several_affinity_terms");
    }
    let spread = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
    Ok(CapacityRequestSpec {
        requirements: requirements.all,
        resources,
        priority: pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0),
        topology_spread: spread
            .into_iter()
            .flatten()
            .filter(|one| one.when_unsatisfiable == "DoNotSchedule")
            .map(|one| TopologySpread {
                topology_key: one.topology_key.clone(),
                max_skew: one.max_skew,
                when_unsatisfiable: one.when_unsatisfiable.clone(),
            })
            .collect(),
        co_location: gang.gang,
        interruption_penalty: None,
        reclamation_penalty: None,
    })
}

/// The `name=quantity,...` of `--default-requests`.
///
/// # Errors
/// Which part is wrong, and how.
pub fn parse_requests(text: &str) -> Result<std::collections::BTreeMap<String, Quantity>, String> {
    let mut all = std::collections::BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, amount) =
            part.split_once('=').ok_or_else(|| format!("{part:?} is not name=quantity, such as cpu=100m"))?;
        let quantity =
            bigfleet_types::Quantity::parse(amount).map_err(|error| format!("{part:?} {error}"))?;
        if quantity.is_negative() || name.is_empty() {
            return Err(format!("{part:?} has no name, or a negative amount"));
        }
        let canonical = bigfleet_types::Quantity::from_nano(quantity.nano(), bigfleet_types::family(name));
        if all.insert(name.to_owned(), Quantity(canonical.to_string())).is_some() {
            return Err(format!("{name:?} is given twice"));
        }
    }
    Ok(all)
}
