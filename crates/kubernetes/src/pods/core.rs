//! What a pod's CapacityRequest should be. A pure function of the pod, of the CapacityRequest that the cluster holds
//! and of the rules: asked again, it says the same, and says nothing once the cluster agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_types::UnixNanos;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use super::facts::{Facts, Problem};
use super::penalties::Defaults;
use crate::crd::{CapacityRequest, CapacityRequestPhase, CapacityRequestSpec, names};

/// What holds for all pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Penalties by PriorityClass.
    pub defaults: Defaults,
    /// Namespaces whose pods are left alone.
    pub excluded_namespaces: BTreeSet<String>,
    /// How long after its grace a pod that will not go is still counted.
    pub terminating_grace: Duration,
    /// What a pod without any request is counted as; empty is nothing.
    pub default_requests: BTreeMap<String, Quantity>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            defaults: Defaults::default(),
            excluded_namespaces: BTreeSet::new(),
            terminating_grace: Duration::from_secs(300),
            default_requests: BTreeMap::new(),
        }
    }
}

/// The CapacityRequest that the cluster holds under the pod's name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// Its uid.
    pub uid: String,
    /// The uid of the pod that it says it stands for.
    pub pod: Option<String>,
    /// The hash of its spec as it is; `None` when the object cannot be read.
    pub hash: Option<String>,
    /// Whether the shard has it.
    pub acknowledged: bool,
    /// Whether it is going away.
    pub deleting: bool,
}

impl Current {
    /// Reads it off the object.
    #[must_use]
    pub fn of(object: &CapacityRequest) -> Self {
        let phase = object.status.as_ref().and_then(|status| status.phase);
        let meta = &object.metadata;
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            pod: meta.labels.as_ref().and_then(|labels| labels.get(names::OWNED_BY_POD)).cloned(),
            hash: Some(hash(&object.spec)),
            acknowledged: phase == Some(CapacityRequestPhase::Acknowledged),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// What is to be done for a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Server-side apply of this object: it is new, or other than it should be.
    Apply(Box<CapacityRequest>),
    /// Delete the CapacityRequest of this name, if it is still this very one.
    Delete {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// How a reconcile ended, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A CapacityRequest is made.
    Created,
    /// It is there and right.
    Exists,
    /// It is there and was wrong.
    Updated,
    /// The pod is gone; its CapacityRequest goes with its owner.
    PodGone,
    /// The pod has run to its end.
    PodTerminal,
    /// The pod is not the fleet's business.
    PodExcluded,
    /// It failed.
    Error,
}

impl Outcome {
    /// The label value.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Created => "cr_created",
            Self::Exists => "cr_exists",
            Self::Updated => "cr_updated",
            Self::PodGone => "pod_gone",
            Self::PodTerminal => "pod_terminal",
            Self::PodExcluded => "pod_excluded",
            Self::Error => "error",
        }
    }
}

/// Something that people should hear of, once a pod and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether something is wrong.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// What is to be done and said.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What is to be done.
    pub action: Action,
    /// How it counts when that succeeds.
    pub outcome: Outcome,
    /// What is to be said when that has succeeded.
    pub notices: Vec<Notice>,
    /// When the answer changes by itself.
    pub again: Option<UnixNanos>,
}

/// Decides for one pod. `unmanaged` says whether a node's machines are not the fleet's.
#[must_use]
pub fn decide(
    pod: &Facts,
    current: Option<&Current>,
    rules: &Rules,
    unmanaged: &dyn Fn(&str) -> bool,
    now: UnixNanos,
) -> Decision {
    let mut decision =
        Decision { action: Action::Nothing, outcome: Outcome::Exists, notices: Vec::new(), again: None };
    let name = pod.request_name();
    // A CapacityRequest that speaks for another pod is not ours to touch; names make that a stranger's doing.
    let foreign = current.is_some_and(|current| current.pod.as_ref().is_some_and(|uid| *uid != pod.uid));
    let demand = match standing(pod, rules, unmanaged, now) {
        Standing::Counts { until } => {
            decision.again = until;
            pod.demand.as_ref()
        }
        Standing::Out(outcome) => {
            decision.outcome = outcome;
            decision.action = withdraw(&name, current.filter(|_| !foreign));
            return decision;
        }
    };
    let demand = match demand {
        Ok(demand) => demand,
        Err(problem) => {
            let reason = match problem {
                Problem::Affinity(_) => "UnsupportedNodeAffinity",
                Problem::Quantity(_) => "InvalidRequests",
            };
            decision.notices.push(Notice { warning: true, reason, message: problem.to_string() });
            decision.outcome = Outcome::PodExcluded;
            decision.action = withdraw(&name, current.filter(|_| !foreign));
            return decision;
        }
    };
    if foreign {
        decision.outcome = Outcome::Error;
        decision.notices.push(Notice {
            warning: true,
            reason: "CapacityRequestTaken",
            message: format!(
                "CapacityRequest {name} stands for another pod; delete it, so that this pod gets its own"
            ),
        });
        return decision;
    }
    let mut spec = CapacityRequestSpec::clone(demand);
    if spec.resources.is_empty() {
        spec.resources = rules.default_requests.clone();
    }
    let (penalties, problems) = rules.defaults.resolve(&pod.annotated, pod.priority_class.as_deref());
    spec.interruption_penalty = penalties.interruption.map(Quantity);
    spec.reclamation_penalty = penalties.reclamation.map(Quantity);
    if !problems.is_empty() {
        let message = problems.join("; ");
        decision.notices.push(Notice { warning: true, reason: "InvalidPenalty", message });
    }
    let wanted = hash(&spec);
    match current {
        // Its end comes as an event; then the pod gets a new one.
        Some(current) if current.deleting => {}
        Some(current) if current.hash.as_ref() == Some(&wanted) => {
            if current.acknowledged && pod.unschedulable {
                decision.notices.push(Notice {
                    warning: false,
                    reason: "CapacityAcknowledged",
                    message: format!(
                        "the fleet has CapacityRequest {name}; upcoming nodes: kubectl get upcomingnodes"
                    ),
                });
            }
        }
        Some(_) => {
            decision.outcome = Outcome::Updated;
            decision.action = Action::Apply(Box::new(object(pod, name, spec, wanted)));
        }
        None => {
            decision.outcome = Outcome::Created;
            if pod.unschedulable {
                decision.notices.push(Notice {
                    warning: false,
                    reason: "CapacityRequested",
                    message: format!(
                        "no node fits; asked the fleet for capacity with CapacityRequest {name}"
                    ),
                });
            }
            decision.action = Action::Apply(Box::new(object(pod, name, spec, wanted)));
        }
    }
    decision
}

enum Standing {
    /// It counts, until then at most.
    Counts { until: Option<UnixNanos> },
    /// It does not.
    Out(Outcome),
}

fn standing(pod: &Facts, rules: &Rules, unmanaged: &dyn Fn(&str) -> bool, now: UnixNanos) -> Standing {
    if pod.finished {
        return Standing::Out(Outcome::PodTerminal);
    }
    let out = Standing::Out(Outcome::PodExcluded);
    if pod.exempt.is_some() || rules.excluded_namespaces.contains(&pod.namespace) {
        return out;
    }
    match &pod.node {
        None if pod.gated || pod.deletion.is_some() => return out,
        Some(node) if unmanaged(node) => return out,
        None | Some(_) => {}
    }
    match pod.deletion.map(|deletion| deletion.after(rules.terminating_grace)) {
        Some(end) if now >= end => out,
        until => Standing::Counts { until },
    }
}

fn withdraw(name: &str, current: Option<&Current>) -> Action {
    match current {
        Some(current) if !current.deleting => {
            Action::Delete { name: name.to_owned(), uid: current.uid.clone() }
        }
        _ => Action::Nothing,
    }
}

/// 16 hex digits that differ when the spec does.
#[must_use]
pub fn hash(spec: &CapacityRequestSpec) -> String {
    // A spec is maps with text keys, lists and text: it always serialises.
    let text = serde_json::to_vec(spec).unwrap_or_default();
    names::hex(&text, 8)
}

fn object(pod: &Facts, name: String, spec: CapacityRequestSpec, hash: String) -> CapacityRequest {
    CapacityRequest {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(pod.namespace.clone()),
            labels: Some(BTreeMap::from([(names::OWNED_BY_POD.to_owned(), pod.uid.clone())])),
            annotations: Some(BTreeMap::from([(names::SPEC_HASH.to_owned(), hash)])),
            // Without blockOwnerDeletion, which would need a permission on pods/finalizers.
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
