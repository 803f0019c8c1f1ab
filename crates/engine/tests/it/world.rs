//! A closed loop: what the engine decides happens, at once or some cycles later.

use std::collections::BTreeMap;

use bigfleet_engine::{Action, ActionKind, Decisions, Engine, Event, Facts, Policy};
use bigfleet_types::{Attribution, MachineState, NeedKey, UnixNanos};

use crate::dsl::{M, N, cluster, demand, secs};

/// Ten seconds a cycle.
const CYCLE: i64 = 10;

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) machines: BTreeMap<String, M>,
    /// How many cycles a Create takes; 0: a Provision ends Configured at once.
    create: u64,
    cycle: u64,
    creating: Vec<(u64, String)>,
}

impl World {
    pub(crate) fn new(machines: Vec<M>, create: u64) -> Self {
        let mut world = Self {
            engine: Engine::new(Policy::default()),
            machines: BTreeMap::new(),
            create,
            cycle: 0,
            creating: Vec::new(),
        };
        machines.into_iter().for_each(|machine| world.put(machine));
        world
    }

    pub(crate) fn put(&mut self, machine: M) {
        self.engine.apply(machine.event());
        self.machines.insert(machine.machine.id.to_string(), machine);
    }

    pub(crate) fn wants(&mut self, name: &str, needs: &[N]) {
        self.engine.apply(demand(name, needs));
        self.engine.apply(Event::Heard(cluster(name)));
    }

    fn now(&self) -> UnixNanos {
        secs(i64::try_from(self.cycle).unwrap() * CYCLE)
    }

    /// One cycle: what is due happens, the engine decides, the actions are carried out.
    pub(crate) fn step(&mut self) -> Decisions {
        self.cycle += 1;
        let due: Vec<_> = self.creating.extract_if(.., |(at, _)| *at <= self.cycle).collect();
        for (_, id) in due {
            self.change(&id, MachineState::Idle, None);
        }
        let decisions = self.engine.decide(self.now());
        for action in &decisions.actions {
            self.carry_out(action);
        }
        decisions
    }

    /// Actions of `cycles` cycles, summed by a count.
    pub(crate) fn total(&mut self, cycles: usize, count: impl Fn(&Decisions) -> usize) -> usize {
        (0..cycles).map(|_| count(&self.step())).sum()
    }

    fn carry_out(&mut self, action: &Action) {
        let id = action.machine.to_string();
        match action.kind {
            ActionKind::Bootstrap => self.change(&id, MachineState::Configured, Some(action)),
            ActionKind::Provision if self.create == 0 => {
                self.change(&id, MachineState::Configured, Some(action))
            }
            ActionKind::Provision => {
                self.change(&id, MachineState::Creating, Some(action));
                self.creating.push((self.cycle + self.create, id));
            }
            ActionKind::Preempt | ActionKind::Reclaim => self.change(&id, MachineState::Idle, None),
            ActionKind::Delete => self.change(&id, MachineState::Speculative, None),
        }
    }

    pub(crate) fn change(&mut self, id: &str, state: MachineState, action: Option<&Action>) {
        let mut machine = self.machines[id].clone();
        let bound = state == MachineState::Configured;
        let idle = state == MachineState::Idle;
        machine.machine.state = state;
        machine.machine.cluster = action.and_then(|action| action.cluster.clone()).filter(|_| bound);
        machine.machine.attribution = match action.and_then(|action| action.need.as_deref()) {
            Some(need) if bound => Attribution::of(need),
            _ => Attribution::default(),
        };
        let created_for: Option<NeedKey> =
            action.and_then(|action| action.need_key.clone()).filter(|_| state == MachineState::Creating);
        machine.facts = Facts {
            created_for,
            idle_since: idle.then(|| self.now()),
            eligibility: machine.facts.eligibility,
            ..Facts::default()
        };
        self.put(machine);
    }
}
