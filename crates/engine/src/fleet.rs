//! The machines: hot facts in parallel columns by slot, cold ones apart, classes and pools kept beside them.

use std::sync::Arc;

use bigfleet_types::{CapacityType, Machine, MachineId, MachineState, NanoDollars, UnixNanos};

use crate::class::{ClassIx, Classes};
use crate::event::{Eligibility, Facts};
use crate::intern::{ClusterIx, Map, Symbols};
use crate::lanes::Lanes;
use crate::members::{PoolIx, Pools, Slot};
use crate::place::place;

/// No point in time: not Idle, not excess.
const NEVER: i64 = i64::MIN;

/// All machines.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    by_id: Map<MachineId, Slot>,
    // Columns, by slot.
    state: Vec<MachineState>,
    eligibility: Vec<Eligibility>,
    class: Vec<ClassIx>,
    pool: Vec<PoolIx>,
    cluster: Vec<Option<ClusterIx>>,
    rank: Vec<u32>,
    idle_since: Vec<i64>,
    excess_since: Vec<i64>,
    cold: Vec<Option<Cold>>,
    /// Live slots in the byte order of their ids, once settled.
    order: Vec<Slot>,
    fresh: Vec<Slot>,
    /// Slots given up since the last settling. Nothing may reuse them before pools and order have forgotten them.
    retired: Vec<Slot>,
    free: Vec<Slot>,
    pub(crate) classes: Classes,
    pub(crate) pools: Pools,
}

/// What no phase looks at for every machine.
#[derive(Debug)]
struct Cold {
    machine: Arc<Machine>,
    facts: Facts,
}

impl Fleet {
    /// Adds a machine or replaces all that was known of it.
    pub(crate) fn upsert(&mut self, machine: Arc<Machine>, facts: Facts, symbols: &mut Symbols) {
        let slot = match self.by_id.get(&machine.id) {
            Some(slot) => *slot,
            None => self.take_slot(&machine.id),
        };
        self.unfile(slot);
        let at = slot.at();
        let cluster = machine.cluster.as_ref().map(|id| symbols.cluster(id));
        let stays = machine.state == MachineState::Configured
            && self.state[at] == MachineState::Configured
            && self.cluster[at] == cluster
            && self.cold[at].is_some();
        if !stays {
            self.excess_since[at] = NEVER;
        }
        if let (MachineState::Configured, Some(since)) = (machine.state, facts.excess_since) {
            self.excess_since[at] = since.0;
        }
        self.state[at] = machine.state;
        self.cluster[at] = cluster;
        self.eligibility[at] = facts.eligibility;
        self.idle_since[at] = match (machine.state, facts.idle_since) {
            (MachineState::Idle, Some(since)) => since.0,
            _ => NEVER,
        };
        self.cold[at] = Some(Cold { machine, facts });
        self.file(slot, symbols);
    }

    /// Forgets a machine. An unknown id is no matter.
    pub(crate) fn remove(&mut self, id: &MachineId) {
        if let Some(slot) = self.by_id.remove(id) {
            self.unfile(slot);
            self.cold[slot.at()] = None;
            self.retired.push(slot);
        }
    }

    /// Files every machine anew, after classes changed their meaning or `symbols` was replaced.
    pub(crate) fn refile(&mut self, symbols: &mut Symbols) {
        self.classes = Classes::default();
        self.pools = Pools::default();
        for position in 0..self.cold.len() {
            let Some(cold) = &self.cold[position] else { continue };
            self.cluster[position] = cold.machine.cluster.as_ref().map(|id| symbols.cluster(id));
            self.file(Slot::new(position), symbols);
        }
    }

    /// Brings order and pools up to date. Every pass begins with it.
    pub(crate) fn settle(&mut self) {
        if !self.fresh.is_empty() || !self.retired.is_empty() {
            let cold = &self.cold;
            self.order.retain(|slot| cold[slot.at()].is_some());
        }
        if !self.fresh.is_empty() {
            let live =
                std::mem::take(&mut self.fresh).into_iter().filter(|slot| self.cold[slot.at()].is_some());
            self.order.extend(live);
            let cold = &self.cold;
            // Two sorted runs when ids arrive in order, which this sort notices.
            self.order.sort_by(|a, b| id_of(cold, *a).cmp(&id_of(cold, *b)));
            for (rank, slot) in (0..).zip(&self.order) {
                self.rank[slot.at()] = rank;
            }
        }
        self.pools.settle(&self.pool, &self.rank);
        self.free.append(&mut self.retired);
    }

    fn take_slot(&mut self, id: &MachineId) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.state.push(MachineState::Failed);
            self.eligibility.push(Eligibility::WITHHELD);
            self.class.push(ClassIx::new(0));
            self.pool.push(PoolIx::NONE);
            self.cluster.push(None);
            self.rank.push(0);
            self.idle_since.push(NEVER);
            self.excess_since.push(NEVER);
            self.cold.push(None);
            Slot::new(self.cold.len() - 1)
        });
        self.by_id.insert(id.clone(), slot);
        self.fresh.push(slot);
        slot
    }

    /// Enters the machine of a slot into its class and pool.
    fn file(&mut self, slot: Slot, symbols: &mut Symbols) {
        let at = slot.at();
        let Some(Cold { machine, facts }) = &self.cold[at] else { return };
        let class = self.classes.join(machine, symbols);
        self.class[at] = class;
        let place = place(machine, facts, self.cluster[at], symbols);
        self.pool[at] = place.map_or(PoolIx::NONE, |place| self.pools.join(slot, class, place));
        self.count(at, 1);
    }

    /// Takes the machine of a slot out of its class and pool.
    fn unfile(&mut self, slot: Slot) {
        let at = slot.at();
        if self.cold[at].is_none() {
            return;
        }
        self.count(at, -1);
        self.classes.leave(self.class[at]);
        self.pools.leave(self.pool[at]);
        self.pool[at] = PoolIx::NONE;
    }

    /// Keeps the class's supply numbers. A withheld machine is invisible; a Configured one is never withheld.
    fn count(&mut self, at: usize, change: i32) {
        let withheld = self.eligibility[at] == Eligibility::WITHHELD;
        let supply = self.classes.supply_mut(self.class[at]);
        let number = match self.state[at] {
            MachineState::Configured => &mut supply.configured,
            MachineState::Idle if !withheld => &mut supply.idle,
            MachineState::Speculative if !withheld => &mut supply.speculative,
            _ => return,
        };
        *number = number.saturating_add_signed(change);
    }

    /// How many slots there are, for columns of a pass.
    pub(crate) fn slots(&self) -> usize {
        self.cold.len()
    }

    /// How many machines there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The live slots in the byte order of their ids.
    pub(crate) fn in_id_order(&self) -> &[Slot] {
        &self.order
    }

    /// The slot's place in the byte order of ids.
    pub(crate) fn rank(&self, slot: Slot) -> u32 {
        self.rank[slot.at()]
    }

    pub(crate) fn state(&self, slot: Slot) -> MachineState {
        self.state[slot.at()]
    }

    pub(crate) fn releasable(&self, slot: Slot) -> bool {
        self.eligibility[slot.at()].releasable
    }

    pub(crate) fn class(&self, slot: Slot) -> ClassIx {
        self.class[slot.at()]
    }

    pub(crate) fn capacity(&self, slot: Slot) -> &Lanes {
        self.classes.capacity(self.class(slot))
    }

    pub(crate) fn capacity_type(&self, slot: Slot) -> CapacityType {
        self.classes.get(self.class(slot)).traits.capacity_type
    }

    pub(crate) fn price(&self, slot: Slot) -> NanoDollars {
        self.classes.get(self.class(slot)).traits.price
    }

    pub(crate) fn pool(&self, slot: Slot) -> PoolIx {
        self.pool[slot.at()]
    }

    pub(crate) fn cluster(&self, slot: Slot) -> Option<ClusterIx> {
        self.cluster[slot.at()]
    }

    /// The provider's record; every live slot has one.
    pub(crate) fn machine(&self, slot: Slot) -> Option<&Arc<Machine>> {
        self.cold[slot.at()].as_ref().map(|cold| &cold.machine)
    }

    /// Where a machine is kept.
    pub(crate) fn slot_of(&self, id: &MachineId) -> Option<Slot> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn eligibility(&self, slot: Slot) -> Eligibility {
        self.eligibility[slot.at()]
    }

    /// Since when the machine is excess, if it is.
    pub(crate) fn excess_since(&self, slot: Slot) -> Option<UnixNanos> {
        Some(UnixNanos(self.excess_since[slot.at()])).filter(|since| since.0 != NEVER)
    }

    /// Since when the machine is Idle, if that is known.
    pub(crate) fn idle_since(&self, slot: Slot) -> Option<UnixNanos> {
        Some(UnixNanos(self.idle_since[slot.at()])).filter(|since| since.0 != NEVER)
    }

    /// Starts the clock of excess unless it runs; says since when it runs.
    pub(crate) fn start_excess(&mut self, slot: Slot, now: UnixNanos) -> UnixNanos {
        let since = &mut self.excess_since[slot.at()];
        if *since == NEVER {
            *since = now.0;
        }
        UnixNanos(*since)
    }

    /// Stops the clock of excess.
    pub(crate) fn clear_excess(&mut self, slot: Slot) {
        self.excess_since[slot.at()] = NEVER;
    }
}

fn id_of(cold: &[Option<Cold>], slot: Slot) -> Option<&MachineId> {
    cold[slot.at()].as_ref().map(|cold| &cold.machine.id)
}
