//! Machines of this cluster: frames into UpcomingNodes, machines to Nodes, and the sweep of what no frame confirms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_proto::v1alpha1::NodeStateUpdate;
use bigfleet_types::{MachineId, MachineState, Quantity, UnixNanos, keys};

use super::Core;
use super::counters::bump;
use super::drain::{DEADLINE_EXCEEDED, Outcome};
use super::names;
use super::nodes::{self, Resolution};
use super::phase::{Belongs, Verdict, verdict};
use super::writes::Key;
use crate::io::{Phase, UpcomingNode, Write};

/// Bytes of an error that are kept.
const ERROR_BYTES: usize = 1024;
/// Without a marker at the end of the replay, an object without a Node is swept after this much connected time.
const UNCONFIRMED: Duration = Duration::from_secs(600);
/// A sweep of more objects than this, and of more than half of all, needs a second resync.
const LARGE_SWEEP: usize = 10;
/// How far apart the two must be.
const SECOND_RESYNC: Duration = Duration::from_secs(60);

/// One machine, as far as this cluster knows it.
#[derive(Debug)]
pub(super) struct Machine {
    /// The object that the cluster holds.
    pub(super) stored: Option<UpcomingNode>,
    /// The newest frame of this session, with what it asked for when it came.
    pub(super) frame: Option<(Frame, Verdict)>,
    node_name: String,
    provider_id: String,
    /// The Node that it is.
    pub(super) node: Option<String>,
    ambiguous: bool,
    /// Connected time at its last frame.
    confirmed: Duration,
}

/// What a frame says.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) state: MachineState,
    labels: BTreeMap<String, String>,
    resources: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
    last_error: String,
}

impl Core {
    pub(super) fn on_node_state(&mut self, now: UnixNanos, update: NodeStateUpdate) {
        let Ok(id) = MachineId::parse(&update.machine_id) else {
            return bump(&mut self.counters.frames_ignored, "machine_id");
        };
        let Some(state) = MachineState::from_number(update.state) else {
            return bump(&mut self.counters.frames_ignored, "machine_state");
        };
        let belongs = match update.cluster_id.as_str() {
            "" => Belongs::Unsaid,
            id if id == self.config.cluster.as_str() => Belongs::Us,
            _ => Belongs::Another,
        };
        let stored = self.upcoming(&id).map(|object| object.phase);
        let verdict = verdict(stored, state, belongs);
        let known = self.machines.contains_key(&id);
        if !known && !matches!(verdict, Verdict::Put(_)) {
            return bump(&mut self.counters.frames_ignored, "not_ours");
        }
        let confirmed = self.connected_time(now);
        let machine = self.machines.entry(id.clone()).or_insert_with(|| Machine::new(confirmed));
        machine.confirmed = confirmed;
        for (known, new) in
            [(&mut machine.node_name, update.node_name), (&mut machine.provider_id, update.provider_id)]
        {
            if !new.is_empty() {
                *known = new;
            }
        }
        let mut last_error = update.last_error;
        last_error.truncate(last_error.floor_char_boundary(ERROR_BYTES));
        let taints = update.taints.into_iter().map(|taint| (taint.key, taint.value, taint.effect)).collect();
        let resources = update.resources.unwrap_or_default().resources;
        let frame = Frame { state, labels: update.labels, resources, taints, last_error };
        let before = machine.frame.as_ref().map(|(frame, _)| frame.state);
        machine.frame = Some((frame, verdict));
        self.resolve(&id);
        match (state, verdict) {
            (_, Verdict::Release) => self.release(&id),
            // The binding that was drained is over, and a new one begins.
            (MachineState::Configuring, _) => self.forget_drain(&id),
            (MachineState::Draining, _) => self.drain_unasked(now, &id),
            // The provider refused.
            (MachineState::Configured, _) if before == Some(MachineState::Draining) => self.call_off(&id),
            // The shard took its instruction back. A first Configured of the session says what was so before it.
            (MachineState::Configured, _)
                if before == Some(MachineState::Configured) && self.is_ordered_now(&id) =>
            {
                tracing::info!(machine = %id, "the shard calls the drain off");
                self.call_off(&id);
            }
            _ => {}
        }
        if !self.settle(now, &id) && matches!(verdict, Verdict::Put(_)) {
            bump(&mut self.counters.read_back_writes, "noop");
            self.counters.upcoming_unchanged += 1;
        }
        self.label_node(now, &id);
    }

    /// The object of a machine as it will be when all that waits is written.
    pub(super) fn upcoming(&self, id: &MachineId) -> Option<&UpcomingNode> {
        match self.writes.latest(&Key::Machine(id.clone())) {
            Some(Write::PutUpcomingNode(object)) => Some(object),
            Some(_) => None,
            None => self.machines.get(id)?.stored.as_ref(),
        }
    }

    /// Brings the object of a machine to what its newest frame and its drain ask for; `false` when it is so already.
    pub(super) fn settle(&mut self, now: UnixNanos, id: &MachineId) -> bool {
        let Some(machine) = self.machines.get(id).filter(|_| self.session.is_some()) else {
            return false;
        };
        let current = self.upcoming(id);
        let drain = machine.node.as_ref().and_then(|node| self.drains.get(node));
        let result = drain.map(|drain| match &drain.outcome {
            None => (Phase::Draining, String::new()),
            Some(Outcome::Drained) => (Phase::Drained, String::new()),
            Some(Outcome::Failed(left)) => (Phase::Failed, left.clone()),
        });
        let wanted = match &machine.frame {
            Some((_, Verdict::Ignore)) => return false,
            Some((_, Verdict::Release)) => None,
            Some((frame, Verdict::Put(phase))) => {
                let (phase, mut last_error) = match (phase, result, current) {
                    (Phase::Draining | Phase::Ready, Some(result), _) => result,
                    // A drain of before our restart.
                    (Phase::Draining, None, Some(object)) if is_drain_result(object) => {
                        (object.phase, object.last_error.clone())
                    }
                    (Phase::Failed, ..) => (Phase::Failed, frame.last_error.clone()),
                    (phase, ..) => (*phase, String::new()),
                };
                last_error.truncate(last_error.floor_char_boundary(ERROR_BYTES));
                Some(UpcomingNode {
                    machine: Some(id.clone()),
                    labels: frame.labels.clone(),
                    resources: frame.resources.clone(),
                    taints: frame.taints.clone(),
                    provisioning_start: current.and_then(|object| object.provisioning_start).or(Some(now)),
                    provider_id: machine.provider_id.clone(),
                    phase,
                    node: machine.node.clone(),
                    last_error,
                })
            }
            // No frame yet, but an instruction.
            None => match (current, result) {
                (Some(object), Some((phase, last_error))) => {
                    Some(UpcomingNode { phase, last_error, node: machine.node.clone(), ..object.clone() })
                }
                _ => return false,
            },
        };
        let write = match (wanted, current) {
            (None, None) => return false,
            (Some(wanted), Some(current)) if same(&wanted, current) => return false,
            (Some(wanted), _) => Write::PutUpcomingNode(Box::new(wanted)),
            (None, Some(_)) => Write::DeleteUpcomingNode { machine: id.clone() },
        };
        self.writes.want(now, Key::Machine(id.clone()), write);
        true
    }

    /// Finds the Node of a machine again; `true` when it is another than before.
    fn resolve(&mut self, id: &MachineId) -> bool {
        let Some(machine) = self.machines.get_mut(id) else {
            return false;
        };
        let resolution = self.nodes.resolve(id, &machine.node_name, &machine.provider_id);
        let ambiguous = resolution == Resolution::Ambiguous;
        if ambiguous && !machine.ambiguous {
            self.counters.identity_conflicts += 1;
            tracing::warn!(machine = %id, "more than one node claims to be this machine; none is taken");
        }
        machine.ambiguous = ambiguous;
        let node = match resolution {
            Resolution::One(node) => Some(node),
            Resolution::None | Resolution::Ambiguous => None,
        };
        if machine.node == node {
            return false;
        }
        if let Some(old) = machine.node.take()
            && self.owners.get(&old) == Some(id)
        {
            self.owners.remove(&old);
        }
        machine.node.clone_from(&node);
        if let Some(node) = node {
            self.leaving.remove(&node);
            self.owners.insert(node, id.clone());
        }
        true
    }

    /// After nodes changed: finds them again, for all machines.
    pub(super) fn resolve_all(&mut self, now: UnixNanos) {
        let ids: Vec<MachineId> = self.machines.keys().cloned().collect();
        for id in ids {
            if !self.resolve(&id) {
                continue;
            }
            let draining =
                self.machines.get(&id).and_then(|m| m.frame.as_ref()).is_some_and(|(frame, verdict)| {
                    frame.state == MachineState::Draining && matches!(verdict, Verdict::Put(_))
                });
            if draining {
                self.drain_unasked(now, &id);
            }
            self.settle(now, &id);
            self.label_node(now, &id);
        }
        self.delete_left_nodes(now);
    }

    /// Puts the machine's id on its Node, where it is missing.
    fn label_node(&mut self, now: UnixNanos, id: &MachineId) {
        let bound = |machine: &Machine| matches!(machine.frame, Some((_, Verdict::Put(_))));
        let node = self.machines.get(id).filter(|m| bound(m)).and_then(|machine| machine.node.clone());
        let Some(node) = node.and_then(|name| self.nodes.get(&name)).filter(|n| nodes::label(n).is_none())
        else {
            return;
        };
        let key = Key::Label(node.name.clone());
        if self.session.is_some() && names::is_label_value(id.as_str()) && self.writes.latest(&key).is_none()
        {
            let labels = BTreeMap::from([(keys::MACHINE_ID.to_owned(), id.to_string())]);
            self.writes.want(
                now,
                key,
                Write::LabelNode { node: node.name.clone(), uid: node.uid.clone(), labels },
            );
        }
    }

    /// The machine has left this cluster.
    fn release(&mut self, id: &MachineId) {
        self.forget_drain(id);
        let node = self.machines.get(id).and_then(|machine| machine.node.clone());
        if let Some(node) = node.and_then(|name| self.nodes.get(&name)).filter(|n| !nodes::is_protected(n))
            && self.config.delete_node_on_release
        {
            self.leaving.insert(node.name.clone(), node.uid.clone());
            self.nodes_changed = true;
        }
        if self.upcoming(id).is_none() {
            self.forget_machine(id);
        }
    }

    fn forget_machine(&mut self, id: &MachineId) {
        if let Some(node) = self.machines.remove(id).and_then(|machine| machine.node)
            && self.owners.get(&node) == Some(id)
        {
            self.owners.remove(&node);
        }
    }

    /// Nodes whose machine left are deleted once they are not Ready.
    pub(super) fn delete_left_nodes(&mut self, now: UnixNanos) {
        if self.session.is_none() {
            return;
        }
        for (name, uid) in &self.leaving {
            let gone = self.nodes.get(name).is_some_and(|node| node.uid == *uid && !node.ready);
            let key = Key::Node(name.clone());
            if gone && self.writes.latest(&key).is_none() {
                let write = Write::DeleteNode { node: name.clone(), uid: uid.clone() };
                self.writes.want(now, key, write);
            }
        }
    }

    /// The cluster holds this object.
    pub(super) fn on_upcoming(&mut self, now: UnixNanos, object: UpcomingNode) {
        let Some(id) = object.machine.clone() else {
            return bump(&mut self.counters.frames_ignored, "upcoming_node_without_machine");
        };
        let confirmed = self.connected_time(now);
        let machine = self.machines.entry(id).or_insert_with(|| Machine::new(confirmed));
        if machine.provider_id.is_empty() {
            machine.provider_id.clone_from(&object.provider_id);
        }
        if machine.node.is_none() && machine.node_name.is_empty() {
            machine.node_name = object.node.clone().unwrap_or_default();
        }
        machine.stored = Some(object);
        self.nodes_changed = true;
    }

    /// The cluster does not hold the object of this machine (any more).
    pub(super) fn on_upcoming_gone(&mut self, id: &MachineId) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.stored = None;
            let bound = matches!(machine.frame, Some((_, Verdict::Put(_))));
            if !bound && self.writes.latest(&Key::Machine(id.clone())).is_none() {
                self.forget_machine(id);
            }
        }
    }

    /// The replay is complete: what it did not name is not ours any more, unless that would be suspiciously much.
    pub(super) fn sweep_after_resync(&mut self, now: UnixNanos) {
        let stored: Vec<&MachineId> = self.machines.keys().filter(|id| self.upcoming(id).is_some()).collect();
        let unnamed = |id: &&&MachineId| self.machines.get(**id).is_some_and(|m| m.frame.is_none());
        let stale: Vec<MachineId> = stored.iter().filter(unnamed).map(|id| (*id).clone()).collect();
        if stale.len() > LARGE_SWEEP && stale.len() * 2 > stored.len() {
            match self.large_sweep {
                Some(first) if now.since(first) >= SECOND_RESYNC => {}
                first => {
                    self.large_sweep = first.or(Some(now));
                    tracing::error!(
                        stale = stale.len(),
                        stored = stored.len(),
                        "the shard names too few machines of this cluster; nothing is deleted before a second resync says so"
                    );
                    return;
                }
            }
        }
        self.large_sweep = None;
        self.sweep(now, stale);
    }

    /// A shard that does not mark the end of its replay: what it has not named for long and has no Node.
    pub(super) fn sweep_unconfirmed(&mut self, now: UnixNanos) {
        let connected = self.connected_time(now);
        let stale = self.machines.iter().filter(|(id, machine)| {
            machine.frame.is_none()
                && machine.node.is_none()
                && connected.saturating_sub(machine.confirmed) > UNCONFIRMED
                && self.upcoming(id).is_some()
        });
        let stale = stale.map(|(id, _)| id.clone()).collect();
        self.sweep(now, stale);
    }

    fn sweep(&mut self, now: UnixNanos, stale: Vec<MachineId>) {
        for id in stale {
            tracing::info!(machine = %id, "the shard does not name this machine any more");
            self.forget_drain(&id);
            self.writes.want(now, Key::Machine(id.clone()), Write::DeleteUpcomingNode { machine: id });
        }
    }

    /// The session ended: the next replay tells the truth anew.
    pub(super) fn forget_frames(&mut self) {
        self.machines.values_mut().for_each(|machine| machine.frame = None);
        let lost: BTreeSet<MachineId> =
            self.machines.keys().filter(|id| self.upcoming(id).is_none()).cloned().collect();
        lost.iter().for_each(|id| self.forget_machine(id));
    }
}

impl Machine {
    fn new(confirmed: Duration) -> Self {
        Self {
            stored: None,
            frame: None,
            node_name: String::new(),
            provider_id: String::new(),
            node: None,
            ambiguous: false,
            confirmed,
        }
    }
}

fn is_drain_result(object: &UpcomingNode) -> bool {
    object.phase == Phase::Drained
        || (object.phase == Phase::Failed && object.last_error.starts_with(DEADLINE_EXCEEDED))
}

/// Whether nothing visible differs; quantities are compared by value.
fn same(a: &UpcomingNode, b: &UpcomingNode) -> bool {
    let amounts = |object: &UpcomingNode| {
        let parse = |(name, text): (&String, &String)| {
            (name.clone(), Quantity::parse(text).map_err(|_| text.clone()))
        };
        object.resources.iter().map(parse).collect::<Vec<_>>()
    };
    let rest = |object: &UpcomingNode| UpcomingNode { resources: BTreeMap::new(), ..object.clone() };
    rest(a) == rest(b) && amounts(a) == amounts(b)
}
