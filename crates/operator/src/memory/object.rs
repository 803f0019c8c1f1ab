//! What the cluster in memory holds, as callers describe it.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_types::UnixNanos;

use crate::core::Order;
use crate::io::{CoLocation, Uid};

/// How slow and how rude the cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long a watch event takes at least.
    pub watch_latency: Duration,
    /// How much longer it may take; what reorders events of different objects.
    pub watch_jitter: Duration,
    /// How long a write takes.
    pub write_latency: Duration,
    /// Every how many writes one answers with a conflict; 0 is never.
    pub conflict_every: u32,
    /// How long a node takes from joining to Ready.
    pub node_ready: Duration,
    /// How long a pod takes from binding to running.
    pub pod_start: Duration,
    /// The version of the API server.
    pub server_version: String,
    /// Seeds the jitter.
    pub seed: u64,
}

impl Default for Config {
    /// A quick cluster that never conflicts.
    fn default() -> Self {
        Self {
            watch_latency: Duration::from_millis(5),
            watch_jitter: Duration::from_millis(20),
            write_latency: Duration::from_millis(2),
            conflict_every: 0,
            node_ready: Duration::from_millis(200),
            pod_start: Duration::from_millis(50),
            server_version: "v1.33.1".to_owned(),
            seed: 1,
        }
    }
}

/// What all pods of a deployment are like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Quantity strings by resource name.
    pub requests: BTreeMap<String, String>,
    /// Conditions on node labels: key, operator as text, values. Empty gets the same stand-in that the pod
    /// controller makes: an instance type has to exist.
    pub requirements: Vec<(String, String, Vec<String>)>,
    /// Kubernetes priority.
    pub priority: i32,
    /// What an interruption costs, a quantity of dollars.
    pub interruption_penalty: Option<String>,
    /// What giving the machine back costs, a quantity of dollars.
    pub reclamation_penalty: Option<String>,
    /// Topology key, max skew, when unsatisfiable as text. The binder does not read it.
    pub topology_spread: Vec<(String, i32, String)>,
    /// Who belongs together. The binder does not read it.
    pub co_location: Option<CoLocation>,
    /// How long a pod may take to end.
    pub termination_grace: Duration,
    /// How long it takes to end when asked to; cut off by the grace.
    pub shutdown: Duration,
}

impl Default for PodSpec {
    /// A pod that requests nothing and ends at once.
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            requirements: Vec::new(),
            priority: 0,
            interruption_penalty: None,
            reclamation_penalty: None,
            topology_spread: Vec::new(),
            co_location: None,
            termination_grace: Duration::from_secs(30),
            shutdown: Duration::ZERO,
        }
    }
}

/// A controller that keeps a number of equal pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deployment {
    /// Where it lives.
    pub namespace: String,
    /// Its name, unique in the cluster.
    pub name: String,
    /// How many pods it wants.
    pub replicas: u32,
    /// What they are like. A change applies to pods made from then on.
    pub pod: PodSpec,
    /// One pod on every node, bound there from the start, instead of `replicas`.
    pub daemon_set: bool,
}

/// A PodDisruptionBudget over the pods of one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// Where it lives.
    pub namespace: String,
    /// Its name, unique in the cluster.
    pub name: String,
    /// The deployment whose pods it protects.
    pub deployment: String,
    /// How many of them have to stay healthy.
    pub min_available: u32,
}

/// Why a running pod ended before its controller wanted it to, or because it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DisruptionReason {
    /// Somebody asked for its eviction.
    Evicted,
    /// Somebody deleted it without grace.
    Deleted,
    /// Its node went away under it.
    NodeLost,
    /// Its deployment wanted fewer.
    ScaledDown,
}

/// One bound pod that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// When.
    pub at: UnixNanos,
    /// The pod.
    pub pod: Uid,
    /// Its namespace and name.
    pub name: String,
    /// Where it ran.
    pub node: String,
    /// Why.
    pub reason: DisruptionReason,
    /// What the node's drain followed at that moment.
    pub order: Order,
}

/// How many bound pods ended, by reason, and how often a budget said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disruptions {
    /// Evicted on request.
    pub evicted: u64,
    /// Deleted without grace.
    pub deleted: u64,
    /// Killed with their node.
    pub node_lost: u64,
    /// Ended by their own deployment.
    pub scaled_down: u64,
    /// Evictions that a budget refused.
    pub refused: u64,
}

/// An Event, as people would read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// When.
    pub at: UnixNanos,
    /// Kind and name of the object.
    pub about: (String, String),
    /// `true` for Warning.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: String,
    /// One sentence.
    pub message: String,
}
