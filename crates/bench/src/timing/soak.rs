//! A closed loop of 10,000 cycles: demand comes and goes, every action is carried out at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bigfleet_engine::{Action, ActionKind, Engine, Event, Facts};
use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{
    Attribution, ClusterId, Machine, MachineId, MachineState, Need, Probability, UnixNanos,
};

use super::{Made, Run};
use crate::compare::{Recorded, Timed};
use crate::factory::{Factory, cluster};
use crate::realistic::amounts;
use crate::synthetic::{model, priced, profile, row};
use crate::workload::{ROLLUP, START};

pub(super) const WHAT: &str = "10,000 cycles of 3,000 machines and 30 clusters, all decisions together";
pub(super) const RECORDED: Recorded = Recorded::none(Timed::Cold, "some 30 s for a longer variant");

const CYCLES: u64 = 10_000;
const SEED: u64 = 0xCAFE_BABE;

pub(super) fn run() -> Result<Run> {
    let mut world = World::new();
    let mut chance = Seeded::new(SEED);
    let mut demand: BTreeMap<ClusterId, Vec<Need>> = BTreeMap::new();
    let unit = amounts(1000, 1024, 0);
    let mut now = START;
    let (mut deciding, mut applying, mut actions) = (Duration::ZERO, Duration::ZERO, 0);
    for cycle in 0..CYCLES {
        now = now.after(ROLLUP);
        let mut events = Vec::new();
        if cycle % 5 == 0 {
            let id = cluster(below(&mut chance, 30));
            let units = i64::try_from(1 + below(&mut chance, 50)).unwrap_or(1);
            let priority = i32::try_from(below(&mut chance, 1_000_000)).unwrap_or(0);
            let need = row(&profile("m", false, priority, 8), &unit, units, "");
            demand.insert(id.clone(), vec![need.clone()]);
            events.push(Event::Demand { cluster: id.clone(), rows: vec![need], at: now });
            events.push(Event::Heard(id));
        }
        if cycle % 35 == 0 {
            let id = cluster(below(&mut chance, 30));
            demand.remove(&id);
            events.push(Event::Demand { cluster: id, rows: Vec::new(), at: now });
        }
        events.extend(std::mem::take(&mut world.news));
        let start = Instant::now();
        events.into_iter().for_each(|event| world.engine.apply(event));
        let applied = Instant::now();
        let decisions = world.engine.decide(now);
        deciding += applied.elapsed();
        applying += applied - start;
        actions += decisions.actions.len() as u64;
        for action in &decisions.actions {
            world.carry_out(action, now)?;
        }
    }
    let made = Made {
        records: world.machines.len() as u64,
        needs: demand.values().map(|rows| rows.len() as u64).sum(),
        actions,
        ..Made::default()
    };
    anyhow::ensure!(actions > CYCLES / 10, "a soak of only {actions} actions is none");
    Ok(Run { parts: vec![("apply", applying), ("decide", deciding)], made })
}

/// A random number below `end`.
fn below(chance: &mut Seeded, end: u64) -> usize {
    usize::try_from(chance.below(end)).unwrap_or(0)
}

struct World {
    engine: Engine,
    machines: BTreeMap<MachineId, Machine>,
    /// What the engine has to hear before the next decision.
    news: Vec<Event>,
}

impl World {
    /// 1,000 Idle and 2,000 Speculative machines at $6.00, one in twenty of which is lost in an hour.
    fn new() -> Self {
        let mut kind = priced(model("m", "a", None, amounts(1000, 1024, 0)), 6);
        kind.interruption = Probability::new(0.05).unwrap_or(Probability::ZERO);
        let mut factory = Factory::new();
        let state = |i| if i < 1000 { MachineState::Idle } else { MachineState::Speculative };
        let news: Vec<_> = (0..3000).map(|i| factory.make(&kind, state(i), None)).collect();
        let record = |event: &Event| match event {
            Event::Machine { machine, .. } => Some((machine.id.clone(), (**machine).clone())),
            _ => None,
        };
        let machines = news.iter().filter_map(record).collect();
        Self { engine: Engine::new(bigfleet_engine::Policy::default()), machines, news }
    }

    /// What the action leads to in the end, at once.
    fn carry_out(&mut self, action: &Action, now: UnixNanos) -> Result<()> {
        let machine =
            self.machines.get_mut(&action.machine).context("an action on a machine that is none")?;
        machine.attribution = Attribution::default();
        machine.cluster = None;
        match action.kind {
            ActionKind::Bootstrap | ActionKind::Provision => {
                machine.state = MachineState::Configured;
                machine.cluster = action.cluster.clone();
                machine.attribution = action.need.as_deref().map(Attribution::of).unwrap_or_default();
            }
            ActionKind::Preempt | ActionKind::Reclaim => machine.state = MachineState::Idle,
            ActionKind::Delete => machine.state = MachineState::Speculative,
        }
        let idle_since = (machine.state == MachineState::Idle).then_some(now);
        let facts = Facts { idle_since, ..Facts::default() };
        self.news.push(Event::Machine { machine: Arc::new(machine.clone()), facts });
        Ok(())
    }
}
