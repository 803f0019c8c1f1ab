//! Reclaim: instructions to drains, their acknowledgement, and drains that go on after a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{OperatorMessage, ReclaimAck, ReclaimInstruction};
use bigfleet_types::{MachineId, UnixNanos};

use super::Core;
use super::annotations;
use super::counters::bump;
use super::drain::{Cordon, Drain, Notice, Outcome, Step};
use super::nodes::{self, Resolution};
use super::writes::Key;
use crate::io::{Output, Write};

/// The grace of an instruction that gives none, and of a drain without an instruction.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
const MAX_GRACE: Duration = Duration::from_secs(24 * 3600);
/// An instruction is acknowledged at the latest after this.
const ACK_WITHIN: Duration = Duration::from_secs(5);
/// A cordon waits this long for an uncordon of the same node that is under way.
const UNCORDON_WAIT: Duration = Duration::from_millis(100);
/// Drains that evict at the same time.
const PARALLEL: usize = 64;

/// What a drain is begun with.
#[derive(Debug)]
struct Begin {
    /// The instruction, or what stands for it.
    order: String,
    /// Whether an instruction of this session asks for it.
    ordered: bool,
    deadline: UnixNanos,
    notice: Notice,
}

/// An instruction that is not acknowledged yet.
#[derive(Debug)]
pub(super) struct PendingAck {
    instruction: String,
    nodes: Vec<String>,
    due: UnixNanos,
}

impl Core {
    pub(super) fn on_reclaim(&mut self, now: UnixNanos, instruction: ReclaimInstruction) {
        let id = instruction.instruction_id;
        let grace = match u64::try_from(instruction.grace_period_seconds) {
            Err(_) | Ok(0) => DEFAULT_GRACE,
            Ok(seconds) => Duration::from_secs(seconds).min(MAX_GRACE),
        };
        let entries =
            if instruction.machine_ids.is_empty() { instruction.nodes } else { instruction.machine_ids };
        let mut nodes = Vec::new();
        for entry in entries.iter().collect::<BTreeSet<_>>() {
            match self.target(entry) {
                Ok((node, machine)) => {
                    let priority = instruction.preemptor_priority;
                    let message = format!(
                        "instruction {id}: the node is emptied within {}s (preemptor priority {priority})",
                        grace.as_secs()
                    );
                    let notice = Notice { reason: "BigFleetReclaim", message };
                    let (order, deadline) = (id.clone(), now.after(grace));
                    let begin = Begin { order, ordered: true, deadline, notice };
                    self.begin_drain(now, &node, &machine, begin);
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                }
                Err(reason) => {
                    bump(&mut self.counters.reclaim_unresolved, reason);
                    tracing::warn!(instruction = id, entry, reason, "not drained");
                }
            }
        }
        self.pending_acks.push(PendingAck { instruction: id, nodes, due: now.after(ACK_WITHIN) });
    }

    /// The Node that an entry of an instruction means, and its machine.
    fn target(&self, entry: &str) -> Result<(String, MachineId), &'static str> {
        let by_machine = MachineId::parse(entry).ok().and_then(|id| {
            let known = self.machines.get(&id);
            let resolution = match known.and_then(|machine| machine.node.clone()) {
                Some(node) => Resolution::One(node),
                None => self.nodes.resolve(&id, "", ""),
            };
            match resolution {
                Resolution::None => None,
                Resolution::Ambiguous => Some(Err("ambiguous")),
                Resolution::One(node) => {
                    let labelled =
                        self.nodes.get(&node).and_then(|node| nodes::label(node)) == Some(id.as_str());
                    Some(if known.is_some() || labelled { Ok((node, id)) } else { Err("not_ours") })
                }
            }
        });
        let (name, machine) = match by_machine {
            Some(found) => found?,
            None => {
                let node = self.nodes.get(entry).ok_or("no_node")?;
                let labelled = nodes::label(node).and_then(|id| MachineId::parse(id).ok());
                let machine = labelled.or_else(|| self.owners.get(entry).cloned()).ok_or("not_ours")?;
                (entry.to_owned(), machine)
            }
        };
        match self.nodes.get(&name) {
            Some(node) if nodes::is_protected(node) => Err("protected"),
            _ => Ok((name, machine)),
        }
    }

    /// Starts a drain, or tightens one that is under way: the earlier deadline stays.
    fn begin_drain(&mut self, now: UnixNanos, node: &str, machine: &MachineId, begin: Begin) {
        let Begin { order, ordered, deadline, notice } = begin;
        self.called_off.remove(machine);
        let epoch = self.shard_epoch();
        let ordered_in = ordered.then_some(self.sessions);
        if let Some(drain) = self.drains.get_mut(node) {
            drain.epoch = epoch;
            drain.ordered_in = ordered_in.or(drain.ordered_in);
        }
        match self.drains.get_mut(node).filter(|drain| drain.is_active()) {
            Some(drain) if drain.deadline <= deadline => return,
            Some(drain) => {
                drain.deadline = deadline;
                drain.grace = deadline.since(now);
                drain.instruction = order;
                drain.cordon = Cordon::Due { at: now, tries: 0 };
            }
            None => {
                let mut drain = Drain::new(now, node.to_owned(), machine.clone(), order, deadline, false);
                drain.notice = Some(notice);
                drain.epoch = epoch;
                drain.ordered_in = ordered_in;
                self.drains.insert(drain.node.clone(), drain);
            }
        }
        self.settle(now, machine);
    }

    /// The shard drains a machine. Its node either carries a drain of before our restart, or the instruction was lost.
    pub(super) fn drain_unasked(&mut self, now: UnixNanos, id: &MachineId) {
        self.called_off.remove(id);
        let name = self.machines.get(id).and_then(|machine| machine.node.clone());
        let Some(node) = name.and_then(|name| self.nodes.get(&name)).cloned() else {
            return;
        };
        if self.drains.contains_key(&node.name) {
            return;
        }
        if nodes::is_protected(&node) {
            bump(&mut self.counters.reclaim_unresolved, "protected");
            tracing::warn!(machine = %id, node = node.name, "a protected node is not drained");
            return;
        }
        match annotations::drain(&node).filter(|(_, deadline)| *deadline > now) {
            Some((instruction, deadline)) => {
                tracing::info!(machine = %id, node = node.name, "a drain goes on");
                let cordoned = node.unschedulable;
                let drain = Drain::new(
                    now,
                    node.name.clone(),
                    id.clone(),
                    instruction.to_owned(),
                    deadline,
                    cordoned,
                );
                self.drains.insert(drain.node.clone(), drain);
            }
            None => {
                let message = format!(
                    "the machine is being drained without an instruction: the node is emptied within {}s",
                    DEFAULT_GRACE.as_secs()
                );
                let notice = Notice { reason: "BigFleetDrainUnasked", message };
                let (order, deadline) = (annotations::unasked(id), now.after(DEFAULT_GRACE));
                let begin = Begin { order, ordered: false, deadline, notice };
                self.begin_drain(now, &node.name, id, begin);
            }
        }
    }

    /// The binding that a drain was to end is over.
    pub(super) fn forget_drain(&mut self, id: &MachineId) {
        self.called_off.remove(id);
        let of_machine: Vec<String> = self
            .drains
            .values()
            .filter(|drain| drain.machine == *id)
            .map(|drain| drain.node.clone())
            .collect();
        for node in of_machine {
            if self.drains.remove(&node).is_some_and(|drain| drain.is_active()) {
                bump(&mut self.counters.drain_results, "released");
                self.outputs.push(Output::UnwatchPods { node });
            }
        }
    }

    /// Does what the drains want now.
    pub(super) fn poll_drains(&mut self, now: UnixNanos) {
        let evicting = self.evicting();
        let names: Vec<String> = self.drains.keys().cloned().collect();
        for name in names {
            let evict = evicting.contains(&name);
            let force = self.config.force_delete_at_deadline;
            let Some(drain) = self.drains.get_mut(&name) else {
                continue;
            };
            for step in drain.step(now, evict, force) {
                self.drain_step(now, &name, step);
            }
        }
        self.poll_reclaim_acks(now);
        self.take_back_cordons(now);
    }

    /// The drains that may evict: those that end first.
    fn evicting(&self) -> BTreeSet<String> {
        let mut active: Vec<_> =
            self.drains.values().filter(|d| d.is_active()).map(|d| (d.deadline, &d.node)).collect();
        active.sort_unstable();
        active.into_iter().take(PARALLEL).map(|(_, node)| node.clone()).collect()
    }

    fn drain_step(&mut self, now: UnixNanos, node: &str, step: Step) {
        match step {
            Step::Cordon => {
                let Some(drain) = self.drains.get_mut(node) else {
                    return;
                };
                if self.writes.abandon(&Key::Cordon(node.to_owned())) {
                    // The end of an earlier drain is being written: were it to arrive last, the node would take pods.
                    if let Cordon::Due { tries, .. } = drain.cordon {
                        drain.cordon = Cordon::Due { at: now.after(UNCORDON_WAIT), tries };
                    }
                    return;
                }
                let Some(known) = self.nodes.get(node) else {
                    drain.cordon = Cordon::Gone;
                    return;
                };
                let cordons = !known.unschedulable || annotations::ours(known);
                let annotations = annotations::of_drain(&drain.instruction, drain.deadline, cordons);
                let id = self.outputs.write(Write::Cordon {
                    node: node.to_owned(),
                    uid: known.uid.clone(),
                    annotations,
                });
                self.drain_writes.insert(id, node.to_owned());
                if let Some(drain) = self.drains.get_mut(node)
                    && let Cordon::Due { tries, .. } = drain.cordon
                {
                    drain.cordon = Cordon::Asked { id, tries };
                }
            }
            Step::Watch => self.outputs.push(Output::WatchPods { node: node.to_owned() }),
            Step::Evict { uid, write, first, naked } => {
                if let (Write::Evict { namespace, name, .. }, true) = (&write, first) {
                    let pod = format!("{namespace}/{name}");
                    let mut message = format!("the pod's node {node} leaves the cluster");
                    if naked {
                        message.push_str("; no controller owns the pod, so that nothing makes it again");
                    }
                    self.event(("Pod", &pod), false, "BigFleetEvicting", message);
                }
                let id = self.outputs.write(write);
                self.drain_writes.insert(id, node.to_owned());
                if let Some(drain) = self.drains.get_mut(node) {
                    drain.evicting(&uid, id);
                }
            }
            Step::Blocked { namespace, name, message } => {
                let pod = format!("{namespace}/{name}");
                self.event(("Pod", &pod), true, "BigFleetEvictionBlocked", message);
            }
            Step::Delete(write) => {
                // Nobody waits for the answer: the drain ends here, whatever becomes of the pod.
                self.outputs.write(write);
            }
            Step::Ended => {
                self.outputs.push(Output::UnwatchPods { node: node.to_owned() });
                let Some((machine, outcome)) =
                    self.drains.get(node).and_then(|d| Some((d.machine.clone(), d.outcome.clone()?)))
                else {
                    return;
                };
                match outcome {
                    Outcome::Drained => {
                        bump(&mut self.counters.drain_results, "drained");
                        let message = "no pod is left that has to go".to_owned();
                        self.event(("Node", node), false, "BigFleetDrained", message);
                    }
                    Outcome::Failed(left) => {
                        bump(&mut self.counters.drain_results, "failed");
                        tracing::warn!(node, left, "a drain did not finish");
                        self.event(("Node", node), true, "BigFleetDrainTimeout", left);
                    }
                }
                self.settle(now, &machine);
            }
        }
    }

    /// Acknowledges instructions whose nodes are all cordoned (or gone), or that have waited long enough.
    fn poll_reclaim_acks(&mut self, now: UnixNanos) {
        let mut pending = std::mem::take(&mut self.pending_acks);
        pending.retain(|ack| {
            let cordons = ack.nodes.iter().map(|node| self.drains.get(node).map(|drain| drain.cordon));
            let settled = cordons
                .clone()
                .all(|cordon| !matches!(cordon, Some(Cordon::Due { .. } | Cordon::Asked { .. })));
            if !settled && now < ack.due {
                return true;
            }
            let started = cordons.filter(|cordon| *cordon == Some(Cordon::Done)).count();
            let payload = Some(Payload::ReclaimAck(ReclaimAck {
                instruction_id: ack.instruction.clone(),
                nodes_started: i32::try_from(started).unwrap_or(i32::MAX),
            }));
            self.outputs.push(Output::Send(Box::new(OperatorMessage { payload })));
            false
        });
        self.pending_acks = pending;
    }

    /// When [`Core::poll_drains`] has something to do next.
    pub(super) fn next_drain_wake(&self) -> Option<UnixNanos> {
        let evicting = self.evicting();
        let drains = self.drains.values().filter_map(|drain| drain.next_wake(evicting.contains(&drain.node)));
        let acks = self.pending_acks.iter().map(|ack| ack.due);
        let reversals = self.reversals().map(|(at, ..)| at.after(Duration::from_nanos(1)));
        drains.chain(acks).chain(reversals).min()
    }
}
