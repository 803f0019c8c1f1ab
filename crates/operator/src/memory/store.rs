//! The tables, and how callers change them. What the cluster's own controllers do is in `control` and `bind`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{MachineId, QuantityError, Resources, Rounding, UnixNanos};

use super::object::{
    Budget, Config, Deployment, Disruption, DisruptionReason, Disruptions, EventNote, PodSpec,
};
use super::watch::{Key, Watch};
use crate::core::Order;
use crate::io::{AvailableCapacity, CapacityRequest, Input, Node, Pod, Uid, UpcomingNode};

/// How many events and disruptions are remembered.
const MEMORY: usize = 10_000;
/// The label that names a node's machine.
pub(super) const MACHINE_LABEL: &str = "bigfleet.lucy.sh/machine-id";

/// A change that the cluster refuses. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A resource amount is no quantity, or negative.
    #[error("{what}: the amount of {resource} is wrong: {problem}")]
    Quantity {
        /// The deployment or machine.
        what: String,
        /// The resource.
        resource: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such deployment.
    #[error("there is no deployment {name:?}")]
    NoDeployment {
        /// The name asked for.
        name: String,
    },
}

#[derive(Debug)]
pub(super) struct PodRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) deployment: String,
    pub(super) daemon_set: bool,
    pub(super) spec: Arc<PodSpec>,
    pub(super) requests: Resources,
    pub(super) node: Option<String>,
    /// When it runs, once bound.
    pub(super) runs_at: Option<UnixNanos>,
    /// When it is gone, once asked to end.
    pub(super) gone_at: Option<UnixNanos>,
}

impl PodRecord {
    pub(super) fn is_healthy(&self, now: UnixNanos) -> bool {
        self.gone_at.is_none() && self.runs_at.is_some_and(|at| at <= now)
    }
}

#[derive(Debug)]
pub(super) struct NodeRecord {
    pub(super) node: Node,
    pub(super) machine: MachineId,
    pub(super) allocatable: Resources,
    pub(super) ready_at: UnixNanos,
}

/// A whole cluster as a plain value. Every method that changes it takes the time; [`Store::step`] lets its
/// controllers act and [`Store::next_wake`] says when that is due.
#[derive(Debug)]
pub struct Store {
    pub(super) config: Config,
    pub(super) deployments: BTreeMap<String, (Deployment, Arc<PodSpec>, Resources)>,
    pub(super) budgets: BTreeMap<String, Budget>,
    /// By uid; uids ascend with creation.
    pub(super) pods: BTreeMap<Uid, PodRecord>,
    pub(super) nodes: BTreeMap<String, NodeRecord>,
    /// By the uid of their pod.
    pub(super) requests: BTreeMap<Uid, Arc<CapacityRequest>>,
    pub(super) upcoming: BTreeMap<MachineId, UpcomingNode>,
    pub(super) available: BTreeMap<String, AvailableCapacity>,
    pub(super) events: VecDeque<EventNote>,
    pub(super) disruptions: VecDeque<Disruption>,
    pub(super) counts: Disruptions,
    pub(super) watch: Watch,
    /// Nodes whose pods the operator wants to see.
    watched: BTreeSet<String>,
    pub(super) writes: u64,
    /// How many of the next writes conflict whatever they are.
    pub(super) conflicts_ahead: u32,
    uids: u64,
}

impl Store {
    /// An empty cluster.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            watch: Watch::new(config.watch_latency, config.watch_jitter, config.seed),
            config,
            deployments: BTreeMap::new(),
            budgets: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            requests: BTreeMap::new(),
            upcoming: BTreeMap::new(),
            available: BTreeMap::new(),
            events: VecDeque::new(),
            disruptions: VecDeque::new(),
            counts: Disruptions::default(),
            watched: BTreeSet::new(),
            writes: 0,
            conflicts_ahead: 0,
            uids: 0,
        }
    }

    pub(super) fn fresh_uid(&mut self, kind: &str) -> Uid {
        self.uids += 1;
        format!("{kind}-{:010}", self.uids).into()
    }

    /// Creates or replaces a deployment. Its pods appear with the next step.
    ///
    /// # Errors
    /// When a request of its pods is no quantity.
    pub fn apply_deployment(&mut self, deployment: Deployment) -> Result<(), ApplyError> {
        let requests = parse_amounts(
            &format!("deployment {}", deployment.name),
            &deployment.pod.requests,
            Rounding::Up,
        )?;
        let spec = Arc::new(deployment.pod.clone());
        self.deployments.insert(deployment.name.clone(), (deployment, spec, requests));
        Ok(())
    }

    /// Changes how many pods a deployment wants. Pods come and go with the next step.
    ///
    /// # Errors
    /// When there is no such deployment.
    pub fn scale(&mut self, name: &str, replicas: u32) -> Result<(), ApplyError> {
        let (deployment, ..) = self
            .deployments
            .get_mut(name)
            .ok_or_else(|| ApplyError::NoDeployment { name: name.to_owned() })?;
        deployment.replicas = replicas;
        Ok(())
    }

    /// Creates or replaces a disruption budget.
    pub fn apply_budget(&mut self, budget: Budget) {
        self.budgets.insert(budget.name.clone(), budget);
    }

    /// Removes a disruption budget, if there is one of that name.
    pub fn remove_budget(&mut self, name: &str) {
        self.budgets.remove(name);
    }

    /// A machine joins as a node named `node-<machine>`, not Ready yet; gives that name. Joining again only renews
    /// labels and allocatable.
    ///
    /// # Errors
    /// When an amount of `allocatable` is no quantity.
    pub fn join_node(
        &mut self,
        now: UnixNanos,
        machine: &MachineId,
        labels: BTreeMap<String, String>,
        allocatable: &BTreeMap<String, String>,
    ) -> Result<String, ApplyError> {
        let allocatable = parse_amounts(&format!("machine {machine}"), allocatable, Rounding::Down)?;
        let name = format!("node-{machine}");
        if let Some(record) = self.nodes.get_mut(&name) {
            record.node.labels.extend(labels);
            record.allocatable = allocatable;
        } else {
            let uid = self.fresh_uid("node");
            let mut node = Node { name: name.clone(), uid, labels, ..Node::default() };
            node.labels.insert(MACHINE_LABEL.to_owned(), machine.to_string());
            node.labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
            let ready_at = now.after(self.config.node_ready);
            self.nodes
                .insert(name.clone(), NodeRecord { node, machine: machine.clone(), allocatable, ready_at });
        }
        self.publish_node(now, &name);
        Ok(name)
    }

    /// A machine goes away with its node; pods that are still on it are lost. Gives whether there was one.
    pub fn remove_node(&mut self, now: UnixNanos, machine: &MachineId) -> bool {
        let name = format!("node-{machine}");
        if self.nodes.remove(&name).is_none() {
            return false;
        }
        self.watch.publish_gone(now, Key::Node(name.clone()));
        let on_it = self.pods.iter().filter(|(_, pod)| pod.node.as_deref() == Some(&*name));
        let lost: Vec<Uid> = on_it.map(|(uid, _)| uid.clone()).collect();
        for uid in lost {
            // One that was on its way out has been counted already.
            if self.pods.get(&uid).is_some_and(|pod| pod.gone_at.is_none()) {
                self.note_disruption(now, &uid, DisruptionReason::NodeLost);
            }
            self.drop_pod(now, &uid);
        }
        true
    }

    /// Remembers an Event.
    pub fn record_event(&mut self, event: EventNote) {
        remember(&mut self.events, event);
    }

    /// The watch breaks: events are lost until `now + outage`, then everything is listed anew.
    pub fn break_watch(&mut self, now: UnixNanos, outage: Duration) {
        self.watch.break_until(now.after(outage));
    }

    /// Lets the next `count` writes conflict.
    pub fn conflict_next(&mut self, count: u32) {
        self.conflicts_ahead = count;
    }

    /// An operator starts to watch: it is told of every object, then that this was all.
    pub fn start_watch(&mut self, now: UnixNanos) {
        self.watch.restart();
        self.watched.clear();
        let version = Input::ServerVersion(self.config.server_version.clone());
        self.watch.publish(now, Key::Version, version);
        let requests: Vec<_> = self.requests.values().cloned().collect();
        for request in requests {
            self.watch.publish(now, Key::Request(request.uid.clone()), Input::Request(request));
        }
        for available in self.available.values() {
            let input = Input::AvailableCapacity(Box::new(available.clone()));
            self.watch.publish(now, Key::Available(available.key.clone()), input);
        }
        self.list(now);
        self.watch.publish_last(now, Key::Synced, Input::Synced);
    }

    /// The operator wants the pods of a node: all of them now, then their changes.
    pub fn watch_pods(&mut self, now: UnixNanos, node: &str) {
        self.watched.insert(node.to_owned());
        self.list_pods(now, node);
    }

    /// The operator no longer wants the pods of a node.
    pub fn unwatch_pods(&mut self, node: &str) {
        self.watched.remove(node);
    }

    /// Lists after a broken watch: every object as it is, and the end of those that ended unseen.
    pub(super) fn relist(&mut self, now: UnixNanos) {
        for key in self.watch.told() {
            let exists = match &key {
                Key::Node(name) => self.nodes.contains_key(name),
                Key::Pod(uid) => self.pods.contains_key(uid),
                Key::Upcoming(machine) => self.upcoming.contains_key(machine),
                // A list of the requests says by itself which are gone.
                Key::Version | Key::Request(_) | Key::Available(_) | Key::PodsListed(_) | Key::Synced => true,
            };
            if !exists {
                self.watch.publish_gone(now, key);
            }
        }
        self.watch.publish_list(now, self.requests.values().cloned().collect());
        self.list(now);
    }

    /// Lists everything but the requests and the hints.
    fn list(&mut self, now: UnixNanos) {
        let nodes: Vec<String> = self.nodes.keys().cloned().collect();
        for name in nodes {
            self.publish_node(now, &name);
        }
        for (machine, upcoming) in &self.upcoming {
            let input = Input::UpcomingNode(Box::new(upcoming.clone()));
            self.watch.publish(now, Key::Upcoming(machine.clone()), input);
        }
        let watched: Vec<String> = self.watched.iter().cloned().collect();
        for node in watched {
            self.list_pods(now, &node);
        }
    }

    fn list_pods(&mut self, now: UnixNanos, node: &str) {
        let on_it = self.pods.iter().filter(|(_, pod)| pod.node.as_deref() == Some(node));
        let pods: Vec<Uid> = on_it.map(|(uid, _)| uid.clone()).collect();
        for uid in pods {
            self.publish_pod(now, &uid);
        }
        let node = node.to_owned();
        self.watch.publish_last(now, Key::PodsListed(node.clone()), Input::PodsListed(node));
    }

    pub(super) fn publish_node(&mut self, now: UnixNanos, name: &str) {
        if let Some(record) = self.nodes.get(name) {
            let node = Arc::new(record.node.clone());
            self.watch.publish(now, Key::Node(name.to_owned()), Input::Node(node));
        }
    }

    /// Tells of a pod, once it is bound to a node whose pods are watched.
    pub(super) fn publish_pod(&mut self, now: UnixNanos, uid: &Uid) {
        let Some(record) = self.pods.get(uid) else { return };
        let Some(node) = record.node.as_ref().filter(|node| self.watched.contains(*node)) else { return };
        let pod = Pod {
            uid: uid.clone(),
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            node: node.clone(),
            deleting: record.gone_at.is_some(),
            daemon_set: record.daemon_set,
            termination_grace: record.spec.termination_grace,
            ..Pod::default()
        };
        self.watch.publish(now, Key::Pod(uid.clone()), Input::Pod(Arc::new(pod)));
    }

    /// Removes a pod and tells of it.
    pub(super) fn drop_pod(&mut self, now: UnixNanos, uid: &Uid) {
        if let Some(record) = self.pods.remove(uid)
            && record.node.is_some_and(|node| self.watched.contains(&node))
        {
            self.watch.publish_gone(now, Key::Pod(uid.clone()));
        }
    }

    /// Asks a pod to end within `grace`. One that was never bound ends at once.
    pub(super) fn end_pod(&mut self, now: UnixNanos, uid: &Uid, grace: Duration, reason: DisruptionReason) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        if record.gone_at.is_some() {
            return;
        }
        let wait = if record.node.is_some() { record.spec.shutdown.min(grace) } else { Duration::ZERO };
        record.gone_at = Some(now.after(wait));
        if record.node.is_some() {
            self.note_disruption(now, uid, reason);
            self.publish_pod(now, uid);
        }
    }

    fn note_disruption(&mut self, now: UnixNanos, uid: &Uid, reason: DisruptionReason) {
        let Some(record) = self.pods.get(uid) else { return };
        if record.daemon_set {
            return;
        }
        match reason {
            DisruptionReason::Evicted => self.counts.evicted += 1,
            DisruptionReason::Deleted => self.counts.deleted += 1,
            DisruptionReason::NodeLost => self.counts.node_lost += 1,
            DisruptionReason::ScaledDown => self.counts.scaled_down += 1,
        }
        let node = record.node.as_ref().and_then(|name| self.nodes.get(name));
        let order = node.map_or(Order::None, |node| Order::of(&node.node));
        let disruption = Disruption {
            at: now,
            pod: uid.clone(),
            name: format!("{}/{}", record.namespace, record.name),
            node: record.node.clone().unwrap_or_default(),
            reason,
            order,
        };
        remember(&mut self.disruptions, disruption);
    }
}

fn remember<T>(memory: &mut VecDeque<T>, item: T) {
    if memory.len() == MEMORY {
        memory.pop_front();
    }
    memory.push_back(item);
}

fn parse_amounts(
    what: &str,
    amounts: &BTreeMap<String, String>,
    rounding: Rounding,
) -> Result<Resources, ApplyError> {
    let pairs = amounts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    Resources::parse(pairs, rounding).map_err(|(resource, error): (String, QuantityError)| {
        ApplyError::Quantity { what: what.to_owned(), resource, problem: error.to_string() }
    })
}
