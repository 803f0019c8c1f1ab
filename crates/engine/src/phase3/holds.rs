//! Idle machines that go when their hold ends, by its end.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_types::UnixNanos;

use crate::fleet::Fleet;
use crate::intern::Map;
use crate::members::Slot;
use crate::place::Place;
use crate::policy::Policy;

/// The ends of all holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    ends: BTreeSet<(UnixNanos, Slot)>,
    of: Map<Slot, UnixNanos>,
}

/// Since when a machine is Idle and how long it is held; `None`: it is no Idle machine that may go, or is held for ever.
pub(super) fn hold(fleet: &Fleet, slot: Slot, policy: &Policy) -> Option<(UnixNanos, Duration)> {
    let pool = fleet.known_pool(slot)?;
    if !fleet.releasable(slot) || !matches!(fleet.place(pool), Place::Idle | Place::Held) {
        return None;
    }
    Some((fleet.idle_since(slot)?, policy.idle_hold(fleet.capacity_type(pool))?))
}

impl Holds {
    /// Looks at all machines.
    pub(crate) fn start_over(&mut self, fleet: &Fleet, policy: &Policy) {
        let idle = fleet.pools.all().filter(|(ix, _)| matches!(fleet.place(*ix), Place::Idle | Place::Held));
        let held = idle.filter(|(ix, _)| policy.idle_hold(fleet.capacity_type(*ix)).is_some());
        let slots = held.flat_map(|(_, pool)| pool.members().iter().copied());
        let end = |slot| hold(fleet, slot, policy).map(|(since, hold)| (since.after(hold), slot));
        let ends: Vec<(UnixNanos, Slot)> = slots.filter_map(end).collect();
        self.of = ends.iter().map(|(end, slot)| (*slot, *end)).collect();
        self.ends = ends.into_iter().collect();
    }

    /// Looks again at machines that are or were Idle.
    pub(crate) fn catch_up(&mut self, fleet: &Fleet, policy: &Policy, slots: &[Slot]) {
        for slot in slots {
            if let Some(end) = self.of.remove(slot) {
                self.ends.remove(&(end, *slot));
            }
            if let Some((since, hold)) = hold(fleet, *slot, policy) {
                let end = since.after(hold);
                self.of.insert(*slot, end);
                self.ends.insert((end, *slot));
            }
        }
    }

    /// The machines, those whose holds end first in front.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Slot> {
        self.ends.iter().map(|(_, slot)| *slot)
    }
}
