//! What a spectator sees of the cluster at one moment.

use bigfleet_types::{MachineId, Resources, UnixNanos};

use super::object::{Disruption, Disruptions, EventNote};
use super::store::{PodRecord, Store};
use crate::io::{AvailableCapacity, Uid, UpcomingNode};

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Waits for a node.
    Pending,
    /// Bound, not running yet.
    Starting,
    /// Runs.
    Running,
    /// Asked to end.
    Terminating,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its uid.
    pub uid: Uid,
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The deployment that made it.
    pub deployment: String,
    /// Kubernetes priority.
    pub priority: i32,
    /// Where it is bound.
    pub node: Option<String>,
    /// How far it is.
    pub phase: PodPhase,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Uid,
    /// The machine that it runs on.
    pub machine: MachineId,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// How many pods are bound to it.
    pub pods: usize,
    /// What it offers pods.
    pub allocatable: Resources,
    /// What bound pods request.
    pub used: Resources,
}

/// The cluster at one moment. All lists are sorted: pods by age, nodes by name, the rest by key or time.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Pods, the oldest first.
    pub pods: Vec<PodView>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// How many CapacityRequests there are.
    pub requests: usize,
    /// How many of them are acknowledged.
    pub acknowledged: usize,
    /// UpcomingNodes.
    pub upcoming: Vec<UpcomingNode>,
    /// AvailableCapacities.
    pub available: Vec<AvailableCapacity>,
    /// Events, the oldest first; a bounded number.
    pub events: Vec<EventNote>,
    /// How many bound pods ended, by reason.
    pub disruptions: Disruptions,
}

impl View {
    /// How many pods are in a phase.
    #[must_use]
    pub fn pods_in(&self, phase: PodPhase) -> usize {
        self.pods.iter().filter(|pod| pod.phase == phase).count()
    }

    /// Whether every pod runs and at least one exists.
    #[must_use]
    pub fn all_running(&self) -> bool {
        !self.pods.is_empty() && self.pods.iter().all(|pod| pod.phase == PodPhase::Running)
    }
}

impl Store {
    /// The cluster as it stands.
    #[must_use]
    pub fn view(&self, now: UnixNanos) -> View {
        let pods = self.pods.iter().map(|(uid, pod)| pod_view(uid, pod, now)).collect();
        let nodes = self.nodes.iter().map(|(name, record)| {
            let on_it = self.pods.values().filter(|pod| pod.node.as_ref() == Some(name));
            let (count, used) =
                on_it.fold((0, Resources::EMPTY), |(n, used), pod| (n + 1, used.add(&pod.requests)));
            NodeView {
                name: name.clone(),
                uid: record.node.uid.clone(),
                machine: record.machine.clone(),
                ready: record.node.ready,
                cordoned: record.node.unschedulable,
                pods: count,
                allocatable: record.allocatable.clone(),
                used,
            }
        });
        View {
            pods,
            nodes: nodes.collect(),
            requests: self.requests.len(),
            acknowledged: self.requests.values().filter(|request| request.acknowledged).count(),
            upcoming: self.upcoming.values().cloned().collect(),
            available: self.available.values().cloned().collect(),
            events: self.events.iter().cloned().collect(),
            disruptions: self.counts,
        }
    }

    /// Bound pods that ended, the oldest first; a bounded number.
    #[must_use]
    pub fn evictions(&self) -> Vec<Disruption> {
        self.disruptions.iter().cloned().collect()
    }
}

fn pod_view(uid: &Uid, pod: &PodRecord, now: UnixNanos) -> PodView {
    let phase = match (&pod.node, pod.gone_at) {
        (_, Some(_)) => PodPhase::Terminating,
        (None, None) => PodPhase::Pending,
        (Some(_), None) if pod.is_healthy(now) => PodPhase::Running,
        (Some(_), None) => PodPhase::Starting,
    };
    PodView {
        uid: uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        deployment: pod.deployment.clone(),
        priority: pod.spec.priority,
        node: pod.node.clone(),
        phase,
    }
}
