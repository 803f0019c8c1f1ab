//! Drains that are off: their machine stays with the cluster, so that its node has to take pods again. Only a cordon of
//! ours is taken back.
//!
//! A drain is off when the shard shows its machine Configured
//! * after it had shown it Draining: the provider refused;
//! * after its instruction, in the same session and not for the first time in it: the order is taken back. A shard that
//!   does not mark the end of its replay may repeat a state for no reason, so from it this means nothing;
//! * in the replay of a later process than the one that ordered the drain: the order died with that process, whose calls
//!   are fenced from now on, and a shard that still wants the machine orders anew;
//! * long after the drain's deadline, whoever ordered it.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_types::{MachineId, MachineState, UnixNanos};

use super::Core;
use super::annotations;
use super::writes::Key;
use crate::io::Write;

/// A machine that is still in use this long after its drain's deadline was not taken.
const REVERSAL: Duration = Duration::from_secs(60);

impl Core {
    /// The epoch of the shard's process; 0 when it is not known.
    pub(super) fn shard_epoch(&self) -> i64 {
        self.session.as_ref().map_or(0, |session| session.epoch)
    }

    /// The drain of a machine is off. Its cordon is taken back as soon as the node shows it.
    pub(super) fn call_off(&mut self, id: &MachineId) {
        self.forget_drain(id);
        self.called_off.insert(id.clone());
    }

    /// The replay is complete: calls off what an earlier process of the shard ordered and nobody carried out.
    pub(super) fn call_off_superseded(&mut self) {
        let epoch = self.shard_epoch();
        let superseded = self.drains.values().filter(|drain| drain.epoch != 0 && drain.epoch < epoch);
        let in_use: BTreeSet<MachineId> =
            superseded.map(|drain| drain.machine.clone()).filter(|id| self.is_configured(id)).collect();
        for id in in_use {
            tracing::info!(machine = %id, "the shard that ordered this drain is gone, and the machine is in use");
            self.call_off(&id);
        }
    }

    /// Whether a machine's drain was ordered in this session, by a shard that repeats no state without a reason.
    pub(super) fn is_ordered_now(&self, id: &MachineId) -> bool {
        self.session.as_ref().is_some_and(|session| session.resynced)
            && self
                .drains
                .values()
                .any(|drain| drain.machine == *id && drain.ordered_in == Some(self.sessions))
    }

    fn is_configured(&self, id: &MachineId) -> bool {
        let frame = self.machines.get(id).and_then(|machine| machine.frame.as_ref());
        frame.is_some_and(|(frame, _)| frame.state == MachineState::Configured)
    }

    /// Takes back the cordons that are due.
    pub(super) fn take_back_cordons(&mut self, now: UnixNanos) {
        let due: Vec<_> = self.reversals().filter(|(at, ..)| *at < now).collect();
        for (_, node, machine) in due {
            self.forget_drain(&machine);
            self.uncordoned.insert(node.clone());
            let Some(uid) = self.nodes.get(&node).map(|node| node.uid.clone()) else {
                continue;
            };
            let write = Write::Uncordon { node: node.clone(), uid, annotations: annotations::keys() };
            self.writes.want(now, Key::Cordon(node.clone()), write);
            let message = "the machine stays with this cluster".to_owned();
            self.event(("Node", &node), false, "BigFleetUncordoned", message);
            self.settle(now, &machine);
        }
    }

    /// Nodes whose cordon is to be taken back, and after when.
    pub(super) fn reversals(&self) -> impl Iterator<Item = (UnixNanos, String, MachineId)> {
        self.nodes.cordoned().filter(|node| !self.uncordoned.contains(&node.name)).filter_map(|node| {
            let machine = self.owners.get(&node.name)?;
            let (_, deadline) = annotations::drain(node)?;
            let off = self.called_off.contains(machine);
            let after = if off { UnixNanos(i64::MIN) } else { deadline.after(REVERSAL) };
            self.is_configured(machine).then(|| (after, node.name.clone(), machine.clone()))
        })
    }
}
