//! The machines: what state each is in, and what is going on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bigfleet_engine::{Event, Facts, PreemptedFor, Purpose};
use bigfleet_types::{Attribution, ClusterId, Machine, MachineId, MachineState, Need, NeedKey, UnixNanos};
use serde::Serialize;

use super::steps::Target;
use super::transition::{Dwell, Transition};

/// What a trace says of the machines. Nothing in it is 0 but perhaps the total.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct State {
    total: u64,
    pub(super) by_state: BTreeMap<&'static str, u64>,
    pub(super) configured_per_cluster: BTreeMap<ClusterName, u64>,
}

/// A cluster's id as the name of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterName(pub(super) ClusterId);

impl Serialize for ClusterName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl std::borrow::Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

/// When something happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) cycle: u64,
    pub(super) time: UnixNanos,
}

#[derive(Debug)]
struct Unit {
    machine: Arc<Machine>,
    facts: Facts,
    /// The cycle in whose beginning its transition completes.
    due: Option<u64>,
}

/// All machines.
#[derive(Debug)]
pub(super) struct World {
    seed: i64,
    dwell: Dwell,
    units: BTreeMap<MachineId, Unit>,
    /// By cycle: whose transitions complete.
    due: BTreeMap<u64, BTreeSet<MachineId>>,
    /// Transitions that will fail.
    failing: BTreeSet<(MachineId, Transition)>,
    /// What the engine has not been told yet.
    changed: BTreeSet<MachineId>,
    state: State,
}

impl World {
    /// Machines as a scenario begins. What is under way began in cycle 0, before there was anybody to see why.
    pub(super) fn new(fleet: &[Arc<Machine>], seed: i64, dwell: Dwell) -> Self {
        let mut world = Self {
            seed,
            dwell,
            units: BTreeMap::new(),
            due: BTreeMap::new(),
            failing: BTreeSet::new(),
            changed: BTreeSet::new(),
            state: State::default(),
        };
        for machine in fleet {
            let id = machine.id.clone();
            world.state.count(machine, 1);
            world
                .units
                .insert(id.clone(), Unit { machine: machine.clone(), facts: Facts::default(), due: None });
            if let Some(transition) = Transition::under_way(machine.state) {
                let dwell = world.dwell.draw(seed, &id, transition, 0);
                world.schedule(&id, dwell.max(1));
            }
        }
        world.forget();
        world
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// How many machines of each cluster are Configured.
    pub(super) fn configured(&self) -> BTreeMap<ClusterId, u64> {
        let counts = self.state.configured_per_cluster.iter();
        counts.map(|(cluster, machines)| (cluster.0.clone(), *machines)).collect()
    }

    /// A process starts anew: what only it knew is gone, and it has not seen a machine yet.
    pub(super) fn forget(&mut self) {
        for (id, unit) in &mut self.units {
            let draining = unit.machine.state == MachineState::Draining;
            let preempted_for = if draining { Purpose::Unknown } else { Purpose::None };
            unit.facts = Facts { preempted_for, ..Facts::default() };
            self.changed.insert(id.clone());
        }
    }

    /// The first look of a process: Idle machines that nobody stamped are stamped now.
    pub(super) fn load(&mut self, now: Now) {
        for unit in self.units.values_mut().filter(|unit| unit.machine.state == MachineState::Idle) {
            unit.facts.idle_since = unit.facts.idle_since.or(Some(now.time));
        }
    }

    /// What changed since the last call.
    pub(super) fn changes(&mut self) -> Vec<Event> {
        let change = |id: MachineId| match self.units.get(&id) {
            Some(unit) => Event::Machine { machine: unit.machine.clone(), facts: unit.facts.clone() },
            None => Event::Removed(id),
        };
        std::mem::take(&mut self.changed).into_iter().map(change).collect()
    }

    /// Completes the transitions that are due.
    pub(super) fn complete_due(&mut self, now: Now) {
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= now.cycle) {
            for id in first.remove() {
                self.complete(&id, now);
            }
        }
    }

    pub(super) fn bootstrap(&mut self, id: &MachineId, cluster: &ClusterId, need: &Need, now: Now) {
        self.begin(id, Transition::Configure, now, |unit| {
            let machine = Arc::make_mut(&mut unit.machine);
            machine.cluster = Some(cluster.clone());
            machine.attribution = Attribution::of(need);
        });
    }

    /// A machine that is there in this very cycle goes on to the Need that it was made for.
    pub(super) fn provision(&mut self, id: &MachineId, key: &NeedKey, need: &Need, now: Now) {
        self.begin(id, Transition::Create, now, |unit| unit.facts.created_for = Some(key.clone()));
        if self.units.get(id).is_some_and(|unit| unit.machine.state == MachineState::Idle) {
            self.bootstrap(id, &key.cluster, need, now);
        }
    }

    pub(super) fn drain(&mut self, id: &MachineId, preemptor: Option<PreemptedFor>, now: Now) {
        self.begin(id, Transition::Drain, now, |unit| {
            unit.facts.preempted_for = preemptor.map_or(Purpose::None, Purpose::Preemption);
        });
    }

    pub(super) fn delete(&mut self, id: &MachineId, now: Now) {
        self.begin(id, Transition::Delete, now, |_| {});
    }

    /// The next such transition of the machine ends in Failed.
    pub(super) fn let_fail(&mut self, id: &MachineId, transition: Transition) {
        self.failing.insert((id.clone(), transition));
    }

    /// The machines that a fault strikes, by id.
    pub(super) fn targets(&self, target: &Target) -> Vec<MachineId> {
        match target {
            Target::Machine(id) => vec![id.clone()],
            Target::Configured { cluster, count } => {
                let there = |unit: &&Unit| {
                    unit.machine.state == MachineState::Configured
                        && unit.machine.cluster.as_ref() == Some(cluster)
                };
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                self.units.values().filter(there).take(count).map(|unit| unit.machine.id.clone()).collect()
            }
        }
    }

    pub(super) fn fail(&mut self, id: &MachineId, now: UnixNanos) {
        self.unschedule(id);
        self.change(id, |unit| unit.enter(MachineState::Failed, now));
    }

    pub(super) fn remove(&mut self, id: &MachineId) {
        self.unschedule(id);
        if let Some(unit) = self.units.remove(id) {
            self.state.count(&unit.machine, -1);
            self.changed.insert(id.clone());
        }
    }

    fn begin(&mut self, id: &MachineId, transition: Transition, now: Now, set: impl FnOnce(&mut Unit)) {
        self.change(id, |unit| {
            unit.enter(transition.state(), now.time);
            set(unit);
        });
        match self.dwell.draw(self.seed, id, transition, now.cycle) {
            0 => self.complete(id, now),
            dwell => self.schedule(id, now.cycle.saturating_add(dwell)),
        }
    }

    fn complete(&mut self, id: &MachineId, now: Now) {
        let Some(unit) = self.units.get_mut(id) else { return };
        unit.due = None;
        let state = unit.machine.state;
        let Some((transition, target)) = Transition::under_way(state).zip(state.target()) else { return };
        let fails = self.failing.remove(&(id.clone(), transition));
        let end = if fails { MachineState::Failed } else { target };
        self.change(id, |unit| unit.enter(end, now.time));
    }

    fn schedule(&mut self, id: &MachineId, cycle: u64) {
        if let Some(unit) = self.units.get_mut(id) {
            unit.due = Some(cycle);
            self.due.entry(cycle).or_default().insert(id.clone());
        }
    }

    fn unschedule(&mut self, id: &MachineId) {
        let due = self.units.get_mut(id).and_then(|unit| unit.due.take());
        if let Some(machines) = due.and_then(|cycle| self.due.get_mut(&cycle)) {
            machines.remove(id);
        }
    }

    fn change(&mut self, id: &MachineId, change: impl FnOnce(&mut Unit)) {
        if let Some(unit) = self.units.get_mut(id) {
            self.state.count(&unit.machine, -1);
            change(unit);
            self.state.count(&unit.machine, 1);
            self.changed.insert(id.clone());
        }
    }
}

impl Unit {
    /// Facts are of one state only, and a machine that serves nobody bears nobody's stamps.
    fn enter(&mut self, state: MachineState, now: UnixNanos) {
        let machine = Arc::make_mut(&mut self.machine);
        machine.state = state;
        if !state.is_bound() {
            machine.attribution = Attribution::default();
            if state != MachineState::Failed {
                machine.cluster = None;
            }
        }
        let idle_since = (state == MachineState::Idle).then_some(now);
        self.facts = Facts { idle_since, ..Facts::default() };
    }
}

impl State {
    /// One machine more or less.
    fn count(&mut self, machine: &Machine, change: i64) {
        fn tally<K: Ord>(map: &mut BTreeMap<K, u64>, name: K, change: i64) {
            let entry = map.entry(name);
            match entry {
                std::collections::btree_map::Entry::Occupied(mut number) => {
                    *number.get_mut() = number.get().saturating_add_signed(change);
                    if *number.get() == 0 {
                        number.remove();
                    }
                }
                std::collections::btree_map::Entry::Vacant(number) if change > 0 => {
                    number.insert(change.unsigned_abs());
                }
                std::collections::btree_map::Entry::Vacant(_) => {}
            }
        }
        self.total = self.total.saturating_add_signed(change);
        tally(&mut self.by_state, machine.state.name(), change);
        if let (MachineState::Configured, Some(cluster)) = (machine.state, &machine.cluster) {
            tally(&mut self.configured_per_cluster, ClusterName(cluster.clone()), change);
        }
    }
}
