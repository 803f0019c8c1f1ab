//! Decisions that build on the one before: a realistic fleet at rest, and seconds of its life.
//!
//! In each second a tenth of the clusters send their roll-up, in which 7 of 100 rows differ from the last one, machines
//! fail and come back, and what was decided in the second before has been carried out.

mod worst;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bigfleet_engine::{Action, ActionKind, Decisions, Effort, Engine, Event, Facts};
use bigfleet_types::{Attribution, Machine, MachineId, MachineState, UnixNanos};
use serde::Serialize;

use crate::compare::Place;
use crate::measure::{Effortful, millis, quantile, to_f64};
use crate::realistic::Realistic;
use crate::sizing::{PROFILES, Tally};
use crate::workload::{START, Workload};

pub use worst::Worst;

/// A second in so many brings a cluster's roll-up.
const ROLLUP_SECONDS: u64 = 10;
/// Of so many machines one fails in each second.
const FAILING: u64 = 25_000;
/// How often what was decided is carried out before the fleet has to be at rest.
const SETTLING: i64 = 8;

/// What was measured. Times in milliseconds unless the name says otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct Incremental {
    /// The fleet.
    pub workload: String,
    /// Machines of all tiers.
    pub records: u64,
    /// Rows of demand before folding.
    pub needs: u64,
    /// The part of them that are gangs, 0 to 1.
    pub gang_share: f64,
    /// The first decision.
    pub cold_full_ms: f64,
    /// Seconds of churn.
    pub seconds: u64,
    /// Rows sent in a second, of which 7 of 100 changed: the mean.
    pub rows_a_second: f64,
    /// Machines that changed in a second, those of actions among them: the mean.
    pub machines_a_second: f64,
    /// Taking a second of churn: the median.
    pub apply_ms: f64,
    /// Deciding after a second of churn: the median.
    pub decide_p50_ms: f64,
    /// The same, exceeded by one in a hundred; the slowest with fewer than 100 seconds.
    pub decide_p99_ms: f64,
    /// Where the decisions spent their time: the mean.
    pub phase_ms: BTreeMap<&'static str, f64>,
    /// Needs that had a turn in a decision: the mean.
    pub needs_evaluated: u64,
    /// Times that a phase looked at a single machine in one: the mean.
    pub machines_touched: u64,
    /// Actions of one: the mean.
    pub actions: u64,
    /// Deciding when nothing changed, in microseconds: the median.
    pub nothing_changed_us: f64,
    /// Deciding when one row of one cluster changed, by the Needs that did not, in nanoseconds.
    pub unchanged_need_ns: f64,
    /// What was decided with 10,000 machines changed took to take.
    pub apply_10k_ms: f64,
    /// The worst that may happen: taking it, and the decision after it.
    pub worst_ms: BTreeMap<&'static str, Worst>,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// A second of churn.
#[derive(Debug, Clone, Serialize)]
pub struct Second {
    /// Its number, from 0 on.
    pub second: u64,
    /// Rows sent.
    pub rows: u64,
    /// Machines that changed.
    pub machines: u64,
    /// Taking all of it, in milliseconds.
    pub apply_ms: f64,
    /// Deciding then.
    pub decide_ms: f64,
    /// Needs that had a turn.
    pub needs_evaluated: u64,
    /// Times that a phase looked at a single machine.
    pub machines_touched: u64,
    /// Actions decided.
    pub actions: u64,
}

/// The fleet beside the engine.
struct World {
    workload: Realistic,
    engine: Engine,
    /// All machines as they are now, in the order in which they were made.
    machines: Vec<Arc<Machine>>,
    places: HashMap<MachineId, usize>,
    now: UnixNanos,
}

/// Measures a profile, and shows every second of churn to `observe`.
///
/// # Errors
/// There is no such profile, its generator is wrong, or the fleet does not come to rest.
pub fn run(profile: &str, how: Effortful, observe: &mut impl FnMut(&Second)) -> Result<Incremental> {
    let known = PROFILES.iter().find(|known| known.name == profile);
    let workload = Realistic::new(*known.with_context(|| format!("there is no profile {profile:?}"))?);
    let (mut world, made) = World::new(workload)?;
    let at = Instant::now();
    let first = world.engine.decide(START);
    let cold = at.elapsed();
    let mut decisions = world.settle(first)?;

    let failing = world.failing();
    let (mut applies, mut decides) = (Vec::new(), Vec::new());
    let mut phases: BTreeMap<&'static str, Duration> = BTreeMap::new();
    let mut sum = Second::NONE;
    let start = Instant::now();
    for second in 0..how.warm {
        let (events, rows) = world.second(second, &decisions.actions, &failing);
        drop(decisions);
        let machines = events.iter().filter(|event| matches!(event, Event::Machine { .. })).count() as u64;
        let at = Instant::now();
        events.into_iter().for_each(|event| world.engine.apply(event));
        let apply = at.elapsed();
        let decide;
        (decide, decisions) = world.decide(&mut phases);
        let Effort { needs, machines: touched, .. } = world.engine.effort();
        let measured = Second {
            second,
            rows,
            machines,
            apply_ms: millis(apply),
            decide_ms: millis(decide),
            needs_evaluated: needs,
            machines_touched: touched,
            actions: decisions.actions.len() as u64,
        };
        observe(&measured);
        sum.add(&measured);
        applies.push(apply);
        decides.push(decide);
        if start.elapsed() > how.budget && second >= 10 {
            break;
        }
    }
    drop(decisions);
    let seconds = decides.len() as u64;
    decides.sort_unstable();
    applies.sort_unstable();
    let mean = |sum: u64| sum / seconds.max(1);
    world.engine.decide(world.now);
    let idle = world.median(5, |_| ());
    let row = world.one_row();
    let one = world.median(5, |engine| {
        row.iter().for_each(|event| engine.apply(event.clone()));
    });
    Ok(Incremental {
        workload: profile.to_owned(),
        records: made.records(),
        needs: made.needs,
        gang_share: to_f64(made.gangs.iter().sum()) / to_f64(made.needs.max(1)),
        cold_full_ms: millis(cold),
        seconds,
        rows_a_second: to_f64(sum.rows) / to_f64(seconds.max(1)),
        machines_a_second: to_f64(sum.machines) / to_f64(seconds.max(1)),
        apply_ms: millis(quantile(&applies, 50)),
        decide_p50_ms: millis(quantile(&decides, 50)),
        decide_p99_ms: millis(quantile(&decides, 99)),
        phase_ms: phases.iter().map(|(name, sum)| (*name, millis(*sum) / to_f64(seconds.max(1)))).collect(),
        needs_evaluated: mean(sum.needs_evaluated),
        machines_touched: mean(sum.machines_touched),
        actions: mean(sum.actions),
        nothing_changed_us: millis(idle) * 1e3,
        unchanged_need_ns: millis(one) * 1e6 / to_f64(made.needs.max(1)),
        apply_10k_ms: world.ten_thousand(),
        worst_ms: worst::all(&mut world)?,
        place: Place::here(),
    })
}

impl Second {
    const NONE: Self = Self {
        second: 0,
        rows: 0,
        machines: 0,
        apply_ms: 0.0,
        decide_ms: 0.0,
        needs_evaluated: 0,
        machines_touched: 0,
        actions: 0,
    };

    /// Adds up what can be counted.
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.machines += other.machines;
        self.needs_evaluated += other.needs_evaluated;
        self.machines_touched += other.machines_touched;
        self.actions += other.actions;
    }
}

impl World {
    /// A fleet and an engine that was told of it.
    fn new(workload: Realistic) -> Result<(Self, Tally)> {
        let mut engine = Engine::new(workload.policy());
        let (mut machines, mut places) = (Vec::new(), HashMap::new());
        let made = workload.fill(&mut |event| {
            if let Event::Machine { machine, .. } = &event {
                places.insert(machine.id.clone(), machines.len());
                machines.push(machine.clone());
            }
            engine.apply(event);
        })?;
        Ok((Self { workload, engine, machines, places, now: START }, made))
    }

    /// Carries out what is decided until nothing is, or next to nothing. Gives what is left to do.
    fn settle(&mut self, mut decisions: Decisions) -> Result<Decisions> {
        for _ in 0..SETTLING {
            if decisions.actions.is_empty() {
                break;
            }
            let done = self.carry_out(&decisions.actions);
            done.into_iter().for_each(|event| self.engine.apply(event));
            self.now = self.now.after(Duration::from_secs(61));
            decisions = self.engine.decide(self.now);
        }
        let records = self.engine.machines() as u64;
        let left = decisions.actions.len() as u64;
        ensure!(left <= records / 500 + 10, "{left} actions of a fleet of {records} at rest");
        Ok(decisions)
    }

    /// What becomes of the machines of actions.
    fn carry_out(&mut self, actions: &[Action]) -> Vec<Event> {
        let mut events = Vec::with_capacity(actions.len());
        for action in actions {
            let Some(place) = self.places.get(&action.machine) else { continue };
            let machine = Arc::make_mut(&mut self.machines[*place]);
            match (action.kind, &action.need) {
                (ActionKind::Bootstrap | ActionKind::Provision, Some(need)) => {
                    machine.state = MachineState::Configured;
                    machine.cluster.clone_from(&action.cluster);
                    machine.attribution = Attribution::of(need);
                }
                (ActionKind::Delete, _) => machine.state = MachineState::Speculative,
                _ => {
                    machine.state = MachineState::Idle;
                    machine.cluster = None;
                    machine.attribution = Attribution::default();
                }
            }
            events.push(event(&self.machines[*place], self.now));
        }
        events
    }

    /// Bound machines that take turns to fail.
    fn failing(&self) -> Vec<usize> {
        let most = (self.machines.len() as u64 / FAILING).max(1) * 20;
        let places =
            (0..self.machines.len()).filter(|at| self.machines[*at].state == MachineState::Configured);
        let mut chosen: Vec<usize> =
            places.skip(96).step_by(97).take(usize::try_from(most).unwrap_or(0)).collect();
        chosen.sort_unstable_by_key(|at| &self.machines[*at].id);
        chosen
    }

    /// What happens in one second, what was decided before first, and how many rows are sent.
    fn second(&mut self, second: u64, decided: &[Action], failing: &[usize]) -> (Vec<Event>, u64) {
        self.now = self.now.after(Duration::from_secs(1));
        let (mut number, mut rows, mut events) = (0u64, 0u64, self.carry_out(decided));
        self.workload.churn(1 + second / ROLLUP_SECONDS, &mut |event| {
            if number % ROLLUP_SECONDS == second % ROLLUP_SECONDS {
                if let Event::Demand { rows: sent, .. } = &event {
                    rows += sent.len() as u64;
                }
                events.push(event);
            }
            number += 1;
        });
        if failing.is_empty() {
            return (events, rows);
        }
        let at_once = (failing.len() / 20).max(1);
        let turn = usize::try_from(second).unwrap_or(0) * at_once;
        for at in 0..at_once {
            let machine = |turn: usize| &self.machines[failing[turn % failing.len()]];
            let mut failed = Machine::clone(machine(turn + at));
            failed.state = MachineState::Failed;
            events.push(event(&Arc::new(failed), self.now));
            if let Some(turn) = turn.checked_sub(at_once) {
                events.push(event(machine(turn + at), self.now));
            }
        }
        (events, rows)
    }

    fn decide(&mut self, phases: &mut BTreeMap<&'static str, Duration>) -> (Duration, Decisions) {
        let start = Instant::now();
        let mut last = start;
        let decisions = self.engine.decide_observed(self.now, &mut |phase| {
            let at = Instant::now();
            *phases.entry(phase.name()).or_default() += at - last;
            last = at;
        });
        (last - start, decisions)
    }

    /// The median of some decisions, each after some change.
    fn median(&mut self, times: usize, change: impl Fn(&mut Engine)) -> Duration {
        let mut took: Vec<Duration> = (0..times)
            .map(|_| {
                change(&mut self.engine);
                self.decide(&mut BTreeMap::new()).0
            })
            .collect();
        took.sort_unstable();
        quantile(&took, 50)
    }

    /// One cluster says that its first row is another, and then that it is not.
    fn one_row(&self) -> Vec<Event> {
        let mut first: Option<Event> = None;
        self.workload.churn(1, &mut |event| {
            if first.is_none() {
                first = Some(event);
            }
        });
        let Some(Event::Demand { cluster, rows, at }) = first else { return Vec::new() };
        let mut other = rows.clone();
        other[0].aggregate = other[0].aggregate.scale(2);
        vec![Event::Demand { cluster: cluster.clone(), rows: other, at }, Event::Demand { cluster, rows, at }]
    }

    /// How long it takes to take 10,000 transitions.
    fn ten_thousand(&mut self) -> f64 {
        let configured = self.machines.iter().filter(|machine| machine.state == MachineState::Configured);
        let changes = configured.take(10_000).map(|machine| {
            let mut draining = Machine::clone(machine);
            draining.state = MachineState::Draining;
            (event(&Arc::new(draining), self.now), event(machine, self.now))
        });
        let (there, back): (Vec<_>, Vec<_>) = changes.unzip();
        let at = Instant::now();
        there.into_iter().for_each(|event| self.engine.apply(event));
        let took = at.elapsed();
        back.into_iter().for_each(|event| self.engine.apply(event));
        millis(took)
    }
}

fn event(machine: &Arc<Machine>, now: UnixNanos) -> Event {
    let idle = machine.state == MachineState::Idle;
    let facts = Facts { idle_since: idle.then_some(now), ..Facts::default() };
    Event::Machine { machine: machine.clone(), facts }
}
