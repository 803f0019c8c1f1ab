//! Decisions that build on the one before: a realistic fleet at rest, and seconds of its life.
//!
//! In each second a tenth of the clusters send their roll-up, in which 7 of 100 rows differ from the last one, and
//! machines fail and come back. What is decided meanwhile is not carried out.

mod worst;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bigfleet_engine::{Action, ActionKind, Decisions, Engine, Event, Facts};
use bigfleet_types::{Attribution, Machine, MachineId, MachineState, UnixNanos};
use serde::Serialize;

use crate::compare::Place;
use crate::measure::{Effortful, filled, millis, quantile, to_f64};
use crate::realistic::Realistic;
use crate::sizing::PROFILES;
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
    /// Machines that changed in a second: the mean.
    pub machines_a_second: f64,
    /// Taking a second of churn: the median.
    pub apply_ms: f64,
    /// Deciding after a second of churn: the median.
    pub decide_p50_ms: f64,
    /// The same, exceeded by one in a hundred; the slowest with fewer than 100 seconds.
    pub decide_p99_ms: f64,
    /// Where the decisions spent their time: the mean.
    pub phase_ms: BTreeMap<&'static str, f64>,
    /// Needs that had a turn in the last decision.
    pub needs_evaluated: u64,
    /// Times that a phase looked at a single machine in it.
    pub machines_touched: u64,
    /// Actions of the last decision.
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

/// The fleet beside the engine: only machines that are not any more as the workload made them.
struct World {
    workload: Realistic,
    engine: Engine,
    changed: BTreeMap<MachineId, Machine>,
    now: UnixNanos,
}

/// Measures a profile.
///
/// # Errors
/// There is no such profile, its generator is wrong, or the fleet does not come to rest.
pub fn run(profile: &str, how: Effortful) -> Result<Incremental> {
    let known = PROFILES.iter().find(|known| known.name == profile);
    let workload = Realistic::new(*known.with_context(|| format!("there is no profile {profile:?}"))?);
    let (engine, made, _) = filled(&workload)?;
    let mut world = World { workload, engine, changed: BTreeMap::new(), now: START };
    let at = Instant::now();
    let first = world.engine.decide(START);
    let cold = at.elapsed();
    world.settle(first)?;

    let sample = world.sample(made.records())?;
    let (mut applies, mut decides) = (Vec::new(), Vec::new());
    let mut phases: BTreeMap<&'static str, Duration> = BTreeMap::new();
    let (mut rows, mut machines) = (0u64, 0u64);
    let start = Instant::now();
    for second in 0..how.warm {
        let (events, sent) = world.second(second, &sample);
        rows += sent;
        machines += events.iter().filter(|event| matches!(event, Event::Machine { .. })).count() as u64;
        let at = Instant::now();
        events.into_iter().for_each(|event| world.engine.apply(event));
        applies.push(at.elapsed());
        let (took, decisions) = world.decide(&mut phases);
        decides.push(took);
        drop(decisions);
        if start.elapsed() > how.budget && second >= 10 {
            break;
        }
    }
    let seconds = decides.len() as u64;
    decides.sort_unstable();
    applies.sort_unstable();
    let effort = world.engine.effort();
    let actions = world.engine.decide(world.now).actions.len() as u64;
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
        rows_a_second: to_f64(rows) / to_f64(seconds.max(1)),
        machines_a_second: to_f64(machines) / to_f64(seconds.max(1)),
        apply_ms: millis(quantile(&applies, 50)),
        decide_p50_ms: millis(quantile(&decides, 50)),
        decide_p99_ms: millis(quantile(&decides, 99)),
        phase_ms: phases.iter().map(|(name, sum)| (*name, millis(*sum) / to_f64(seconds.max(1)))).collect(),
        needs_evaluated: effort.needs,
        machines_touched: effort.machines,
        actions,
        nothing_changed_us: millis(idle) * 1e3,
        unchanged_need_ns: millis(one) * 1e6 / to_f64(made.needs.max(1)),
        apply_10k_ms: world.ten_thousand()?,
        worst_ms: worst::all(&mut world)?,
        place: Place::here(),
    })
}

impl World {
    /// Carries out what is decided until nothing is, or next to nothing.
    fn settle(&mut self, mut decisions: Decisions) -> Result<()> {
        for _ in 0..SETTLING {
            if decisions.actions.is_empty() {
                break;
            }
            self.carry_out(&decisions.actions)?;
            self.now = self.now.after(Duration::from_secs(61));
            decisions = self.engine.decide(self.now);
        }
        let records = self.engine.machines() as u64;
        let left = decisions.actions.len() as u64;
        ensure!(left <= records / 500 + 10, "{left} actions of a fleet of {records} at rest");
        Ok(())
    }

    fn carry_out(&mut self, actions: &[Action]) -> Result<()> {
        let ids: BTreeSet<&MachineId> = actions.iter().map(|action| &action.machine).collect();
        self.fetch(|machine| ids.contains(&machine.id))?;
        for action in actions {
            let Some(machine) = self.changed.get_mut(&action.machine) else { continue };
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
            self.engine.apply(event(machine, self.now));
        }
        Ok(())
    }

    /// Gets the records of machines that are still as they were made.
    fn fetch(&mut self, mut wanted: impl FnMut(&Machine) -> bool) -> Result<()> {
        let changed = &mut self.changed;
        self.workload.fill(&mut |event| {
            if let Event::Machine { machine, .. } = event
                && wanted(&machine)
                && !changed.contains_key(&machine.id)
            {
                changed.insert(machine.id.clone(), (*machine).clone());
            }
        })?;
        Ok(())
    }

    /// Bound machines that take turns to fail.
    fn sample(&mut self, records: u64) -> Result<Vec<MachineId>> {
        let (mut number, mut ids) = (0u64, BTreeSet::new());
        self.fetch(|machine| {
            number += u64::from(machine.state == MachineState::Configured);
            let chosen = machine.state == MachineState::Configured && number.is_multiple_of(97);
            if chosen && (ids.len() as u64) < (records / FAILING).max(1) * 20 {
                ids.insert(machine.id.clone());
                return true;
            }
            false
        })?;
        Ok(ids.into_iter().collect())
    }

    /// What happens in one second, and how many rows are sent.
    fn second(&mut self, second: u64, sample: &[MachineId]) -> (Vec<Event>, u64) {
        self.now = self.now.after(Duration::from_secs(1));
        let (mut number, mut rows, mut events) = (0u64, 0u64, Vec::new());
        self.workload.churn(1 + second / ROLLUP_SECONDS, &mut |event| {
            if number % ROLLUP_SECONDS == second % ROLLUP_SECONDS {
                if let Event::Demand { rows: sent, .. } = &event {
                    rows += sent.len() as u64;
                }
                events.push(event);
            }
            number += 1;
        });
        if sample.is_empty() {
            return (events, rows);
        }
        let failing = (sample.len() / 20).max(1);
        let turn = usize::try_from(second).unwrap_or(0) * failing;
        for at in 0..failing {
            let id = |turn: usize| &sample[turn % sample.len()];
            if let Some(machine) = self.changed.get_mut(id(turn + at)) {
                let mut failed = machine.clone();
                failed.state = MachineState::Failed;
                events.push(event(&failed, self.now));
            }
            if let Some(machine) = turn.checked_sub(failing).and_then(|turn| self.changed.get(id(turn + at)))
            {
                events.push(event(machine, self.now));
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
    fn ten_thousand(&mut self) -> Result<f64> {
        let mut left = 10_000;
        let mut events = Vec::new();
        let now = self.now;
        self.workload.fill(&mut |made| {
            if let Event::Machine { machine, .. } = made
                && machine.state == MachineState::Configured
                && left > 0
            {
                left -= 1;
                let mut idle = (*machine).clone();
                idle.state = MachineState::Draining;
                events.push((event(&idle, now), event(&machine, now)));
            }
        })?;
        let (there, back): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        let at = Instant::now();
        there.into_iter().for_each(|event| self.engine.apply(event));
        let took = at.elapsed();
        back.into_iter().for_each(|event| self.engine.apply(event));
        Ok(millis(took))
    }
}

fn event(machine: &Machine, now: UnixNanos) -> Event {
    let idle = machine.state == MachineState::Idle;
    let facts = Facts { idle_since: idle.then_some(now), ..Facts::default() };
    Event::Machine { machine: Arc::new(machine.clone()), facts }
}
