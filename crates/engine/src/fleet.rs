//! The machines: facts in parallel columns by slot; names, shapes, classes and pools beside them.
//!
//! Nothing of what a caller hands in is kept: a machine costs its row in the columns and its name, and shares the rest.

use std::sync::Arc;

use bigfleet_types::{CapacityType, Machine, MachineId, MachineState, NanoDollars, UnixNanos};

use crate::changes::Changes;
use crate::class::{ClassIx, Classes};
use crate::event::{Eligibility, Facts};
use crate::ids::Ids;
use crate::intern::{ClusterIx, Map, Symbols};
use crate::lanes::Lanes;
use crate::members::{PoolIx, Pools, Slot};
use crate::place::{Place, PlaceIx, Places, place};
use crate::shape::{ShapeIx, Shapes, hostname};

mod columns;

pub(crate) use columns::Columns;

/// No point in time: not Idle, not excess.
const NEVER: i64 = i64::MIN;

/// All machines.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) ids: Ids,
    // Columns, by slot.
    state: Vec<MachineState>,
    eligibility: Vec<Eligibility>,
    shape: Vec<ShapeIx>,
    class: Vec<ClassIx>,
    pool: Vec<PoolIx>,
    /// Since when the machine is Idle or, if it is Configured, excess.
    since: Vec<i64>,
    /// Hostnames that are labels and not the machine's name.
    hosts: Map<Slot, Box<str>>,
    /// Slots given up since the last settling. Nothing may reuse them before pools and order have forgotten them.
    retired: Vec<Slot>,
    free: Vec<Slot>,
    shapes: Shapes,
    places: Places,
    /// How often a machine left its class and place since the last fresh start.
    pub(crate) moves: usize,
    pub(crate) classes: Classes,
    pub(crate) pools: Pools,
    /// Since the last decision.
    pub(crate) changes: Changes,
}

impl Fleet {
    /// Adds a machine or replaces all that was known of it.
    pub(crate) fn upsert(&mut self, machine: &Machine, facts: &Facts, symbols: &mut Symbols) {
        let known = self.ids.find(machine.id.as_str());
        // No other state has a place in a cluster.
        let bound = matches!(machine.state, MachineState::Configured | MachineState::Configuring);
        let cluster = machine.cluster.as_ref().filter(|_| bound).map(|id| symbols.cluster(id));
        let shape = self.shapes.of(machine, known.map(|slot| self.shape[slot.at()]));
        let since = match (machine.state, facts.excess_since, facts.idle_since) {
            (MachineState::Configured, Some(since), _) | (MachineState::Idle, _, Some(since)) => since.0,
            (MachineState::Configured, None, _) => known.map_or(NEVER, |slot| self.excess_of(slot, cluster)),
            _ => NEVER,
        };
        let place = place(machine, facts, cluster, symbols).map(|place| self.places.number(place));
        let host = hostname(machine).filter(|host| ***host != *machine.id.as_str());
        // What changes most often is where a machine is, and not what it is.
        let is_same_kind =
            known.is_some_and(|slot| self.shape[slot.at()] == shape && self.has_host(slot, host));
        if !is_same_kind {
            self.shapes.join(shape);
        }
        let slot = match known {
            Some(slot) if is_same_kind && self.is_unchanged(slot, machine.state, facts, place, since) => {
                return;
            }
            Some(slot) => {
                self.leave_place(slot);
                if !is_same_kind {
                    self.leave_class(slot);
                }
                slot
            }
            None => self.take_slot(&machine.id),
        };
        let at = slot.at();
        self.state[at] = machine.state;
        self.eligibility[at] = facts.eligibility;
        self.since[at] = since;
        if !is_same_kind {
            match host {
                Some(host) => drop(self.hosts.insert(slot, (**host).into())),
                None => drop(self.hosts.remove(&slot)),
            }
            self.shape[at] = shape;
            self.join_class(slot, symbols);
        }
        self.join_place(slot, place);
    }

    /// Whether a machine goes by this hostname; `None`: by its id.
    fn has_host(&self, slot: Slot, host: Option<&Arc<str>>) -> bool {
        self.hosts.get(&slot).map(|known| &**known) == host.map(|host| &**host)
    }

    /// Whether all that is told of a machine, but for its shape and host, is known already.
    fn is_unchanged(
        &self,
        slot: Slot,
        state: MachineState,
        facts: &Facts,
        place: Option<PlaceIx>,
        since: i64,
    ) -> bool {
        let at = slot.at();
        self.state[at] == state
            && self.eligibility[at] == facts.eligibility
            && self.since[at] == since
            && self.known_pool(slot).map(|pool| self.pools.get(pool).place) == place
    }

    /// Since when a machine is excess, if it stays in this cluster.
    fn excess_of(&self, slot: Slot, cluster: Option<ClusterIx>) -> i64 {
        let stays = self.state(slot) == MachineState::Configured && self.cluster(slot) == cluster;
        if stays { self.since[slot.at()] } else { NEVER }
    }

    /// Forgets a machine. An unknown id is no matter.
    pub(crate) fn remove(&mut self, id: &MachineId) {
        if let Some(slot) = self.ids.find(id.as_str()) {
            self.leave_place(slot);
            self.leave_class(slot);
            self.ids.vacate(slot);
            self.hosts.remove(&slot);
            self.state[slot.at()] = MachineState::Failed;
            self.retired.push(slot);
        }
    }

    /// Files every machine anew, after classes changed their meaning and numbers went from `old` to `new`.
    pub(crate) fn refile(&mut self, old: &Symbols, new: &mut Symbols) {
        self.changes.all();
        self.classes = Classes::default();
        self.moves = 0;
        self.shapes.forget_classes();
        let (pools, places) = (std::mem::take(&mut self.pools), std::mem::take(&mut self.places));
        let mut renumbered: Vec<Option<PlaceIx>> = vec![None; places.len()];
        for position in 0..self.ids.slots() {
            let slot = Slot::new(position);
            if !self.ids.is_named(slot) {
                continue;
            }
            let pool = self.pool[position];
            let place = (pool != PoolIx::NONE).then(|| {
                let place = pools.get(pool).place;
                let number = || self.places.number(places.get(place).renumbered(old, new));
                *renumbered[place.at()].get_or_insert_with(number)
            });
            self.join_class(slot, new);
            self.join_place(slot, place);
        }
    }

    /// Brings order and pools up to date. Every pass begins with it.
    pub(crate) fn settle(&mut self) {
        self.ids.settle();
        self.pools.settle(&self.pool, self.ids.ranks(), &self.places, &self.classes);
        self.free.append(&mut self.retired);
    }

    fn take_slot(&mut self, id: &MachineId) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.state.push(MachineState::Failed);
            self.eligibility.push(Eligibility::WITHHELD);
            self.shape.push(ShapeIx::new(0));
            self.class.push(ClassIx::new(0));
            self.pool.push(PoolIx::NONE);
            self.since.push(NEVER);
            Slot::new(self.state.len() - 1)
        });
        self.ids.name(slot, id.as_str());
        slot
    }

    /// Enters the machine of a slot, whose shape and host are known, into its class.
    fn join_class(&mut self, slot: Slot, symbols: &mut Symbols) {
        let at = slot.at();
        let host = match self.hosts.get(&slot) {
            Some(host) => symbols.host(host),
            None => symbols.host(self.ids.text(slot)),
        };
        let Some(shape) = self.shapes.get_mut(self.shape[at]) else { return };
        self.class[at] = self.classes.join(shape, host, symbols);
    }

    /// Takes the machine of a slot, which is in no place any more, out of its shape and class.
    fn leave_class(&mut self, slot: Slot) {
        self.shapes.leave(self.shape[slot.at()]);
        self.classes.leave(self.class[slot.at()]);
    }

    /// Enters the machine of a slot, whose class and state are known, into a place.
    fn join_place(&mut self, slot: Slot, place: Option<PlaceIx>) {
        let at = slot.at();
        self.pool[at] = PoolIx::NONE;
        self.changes.machine(slot, place.map(|place| self.places.get(place)));
        if let Some(place) = place {
            let pool = self.pools.join(slot, self.class[at], place, &self.places);
            self.pool[at] = pool;
            if self.state[at] == MachineState::Configured && self.since[at] != NEVER {
                self.pools.set_clocks(pool, true);
            }
        }
        self.count(at, 1);
    }

    /// Takes the machine of a slot out of its place.
    fn leave_place(&mut self, slot: Slot) {
        let at = slot.at();
        let pool = self.pool[at];
        self.changes.left(slot, self.known_pool(slot).map(|pool| self.place(pool)));
        self.count(at, -1);
        self.moves += 1;
        self.pools.leave(pool);
        self.pool[at] = PoolIx::NONE;
    }

    /// Keeps the class's supply numbers. A withheld machine is invisible; a Configured one is never withheld.
    fn count(&mut self, at: usize, change: i32) {
        let withheld = self.eligibility[at] == Eligibility::WITHHELD;
        let class = self.class[at];
        let supply = self.classes.supply_mut(class);
        let was_free = supply.is_free();
        let number = match self.state[at] {
            MachineState::Configured => &mut supply.configured,
            MachineState::Idle if !withheld => &mut supply.idle,
            MachineState::Speculative if !withheld => &mut supply.speculative,
            _ => return,
        };
        *number = number.saturating_add_signed(change);
        if supply.is_free() != was_free {
            self.changes.flipped(class);
        }
    }

    /// How many slots there are, for columns of a pass.
    pub(crate) fn slots(&self) -> usize {
        self.ids.slots()
    }

    /// How many machines there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// How many places were ever in use since the last fresh start.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// The slot's place in the byte order of ids.
    pub(crate) fn rank(&self, slot: Slot) -> u32 {
        self.ids.ranks()[slot.at()]
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

    /// The class of the machines of a pool.
    pub(crate) fn class_of(&self, pool: PoolIx) -> ClassIx {
        self.pools.get(pool).class
    }

    pub(crate) fn capacity(&self, slot: Slot) -> &Lanes {
        self.classes.capacity(self.class(slot))
    }

    pub(crate) fn pool(&self, slot: Slot) -> PoolIx {
        self.pool[slot.at()]
    }

    /// The pool of a machine, if it is in one.
    pub(crate) fn known_pool(&self, slot: Slot) -> Option<PoolIx> {
        Some(self.pool(slot)).filter(|pool| *pool != PoolIx::NONE)
    }

    /// Where the machines of a pool are.
    pub(crate) fn place(&self, pool: PoolIx) -> Place {
        self.places.get(self.pools.get(pool).place)
    }

    /// Where a bound machine is bound.
    pub(crate) fn cluster(&self, slot: Slot) -> Option<ClusterIx> {
        match self.pool(slot) {
            PoolIx::NONE => None,
            pool => match self.place(pool) {
                Place::Bound(binding) => Some(binding.cluster),
                _ => None,
            },
        }
    }

    /// How the machines of a pool are paid for.
    pub(crate) fn capacity_type(&self, pool: PoolIx) -> CapacityType {
        self.classes.get(self.pools.get(pool).class).traits.capacity_type
    }

    pub(crate) fn price(&self, pool: PoolIx) -> NanoDollars {
        self.classes.get(self.pools.get(pool).class).traits.price
    }

    pub(crate) fn eligibility(&self, slot: Slot) -> Eligibility {
        self.eligibility[slot.at()]
    }

    /// Since when the Configured machine is excess, if it is.
    pub(crate) fn excess_since(&self, slot: Slot) -> Option<UnixNanos> {
        self.idle_since(slot)
    }

    /// Since when the machine is Idle, if that is known.
    pub(crate) fn idle_since(&self, slot: Slot) -> Option<UnixNanos> {
        Some(UnixNanos(self.since[slot.at()])).filter(|since| since.0 != NEVER)
    }

    /// Starts the clock of excess unless it runs; says since when it runs.
    pub(crate) fn start_excess(&mut self, slot: Slot, now: UnixNanos) -> UnixNanos {
        let since = &mut self.since[slot.at()];
        if *since == NEVER {
            *since = now.0;
        }
        UnixNanos(*since)
    }

    /// Stops the clock of excess.
    pub(crate) fn clear_excess(&mut self, slot: Slot) {
        self.since[slot.at()] = NEVER;
    }
}

#[cfg(test)]
mod tests {
    use bigfleet_types::keys;

    use super::*;

    #[test]
    fn a_machine_keeps_its_shape_when_only_its_host_has_another_name() {
        let (mut fleet, mut symbols) = (Fleet::default(), Symbols::default());
        let mut machine = Machine::new(MachineId::trusted("m-1"), MachineState::Idle);
        machine.instance_type = "small".into();
        for host in ["host-1", "host-2", "m-1", "host-1"] {
            machine.labels.insert(keys::HOSTNAME.into(), host.into());
            fleet.upsert(&machine, &Facts::default(), &mut symbols);
            let (told, _) = fleet.columns().machines(&symbols.texts()).next().unwrap();
            assert_eq!(&*told.instance_type, "small", "{host}");
            let known = told.attribute(keys::HOSTNAME);
            assert_eq!(known, Some(host));
        }
        let classes = (0..fleet.classes.len()).map(|at| fleet.classes.get(ClassIx::new(at)).supply.idle);
        assert_eq!(classes.sum::<u32>(), 1);
    }

    #[test]
    fn a_machine_that_only_moves_leaves_one_place_and_joins_another() {
        let (mut fleet, mut symbols) = (Fleet::default(), Symbols::default());
        let machine = |state| Machine::new(MachineId::trusted("m-1"), state);
        for state in [MachineState::Idle, MachineState::Failed, MachineState::Speculative, MachineState::Idle]
        {
            fleet.upsert(&machine(state), &Facts::default(), &mut symbols);
            fleet.settle();
            let supply = fleet.classes.get(fleet.class(Slot::new(0))).supply;
            let expected =
                (u32::from(state == MachineState::Idle), u32::from(state == MachineState::Speculative));
            assert_eq!((supply.idle, supply.speculative), expected, "{state:?}");
            let members: usize = fleet.pools.all().map(|(_, pool)| pool.members().len()).sum();
            assert_eq!(members, usize::from(state != MachineState::Failed), "{state:?}");
        }
        assert!(!fleet.classes.mostly_empty());
        fleet.remove(&MachineId::trusted("m-1"));
        assert!(fleet.shapes.all().iter().all(Option::is_none));
    }
}
