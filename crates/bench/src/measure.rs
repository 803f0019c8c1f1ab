//! The loop that times one workload.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bigfleet_engine::{Decisions, Effort, Engine, Event, Phase};
use bigfleet_types::UnixNanos;

use crate::compare::{Recorded, Timed};
use crate::report::Report;
use crate::sizing::Tally;
use crate::workload::{Changed, ROLLUP, START, Workload};

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effortful {
    /// First decisions at most, each on an engine filled afresh.
    pub cold: usize,
    /// Rounds of changes at most.
    pub warm: u64,
    /// After this long, no further cold run begins if their number is odd, nor, apart from that, a further round, once there
    /// is one of each.
    pub budget: Duration,
}

impl Effortful {
    /// For numbers that are published.
    pub const FULL: Self = Self { cold: 11, warm: 200, budget: Duration::from_secs(20) };
    /// For tests of the benchmark.
    pub const LEAST: Self = Self { cold: 1, warm: 2, budget: Duration::from_secs(20) };
}

/// One decision, measured.
struct Pass {
    took: Duration,
    phases: BTreeMap<Phase, Duration>,
    effort: Effort,
    decisions: Decisions,
}

/// Measures a workload.
///
/// # Errors
/// The generator is wrong, or the fleet was not at rest when it should have been.
pub fn measure(workload: &dyn Workload, how: Effortful) -> Result<Report> {
    let rss_before = rss()?;
    let (mut engine, made, apply) = filled(workload)?;
    let first = decide(&mut engine, START);
    let rss_after = rss()?;
    let actions = first.decisions.actions.len() as u64;
    if let Some(most) = workload.most_actions(made.records()) {
        ensure!(
            actions <= most,
            "{} takes {actions} actions at first, more than the {most} of a fleet at rest; the generator is wrong",
            workload.name()
        );
    }
    let recorded = workload.recorded();
    // What is about later decisions needs one first decision.
    let later = |recorded: Recorded| matches!(recorded.timed, Timed::Warm | Timed::WarmP99);
    let most_cold = if recorded.is_some_and(later) { 1 } else { how.cold };
    let mut report = Report::new(workload.name(), &made);
    report.rss_bytes_per_record = Some(rss_after.saturating_sub(rss_before) / made.records().max(1));
    report.actions = actions;
    report.apply_ms = millis(apply);
    report.cold_needs_evaluated = first.effort.needs;
    report.cold_machines_touched = first.effort.machines;

    warm(workload, &mut engine, how, &mut report);
    drop(engine);

    let mut cold = vec![(first.took, first.phases)];
    drop(first.decisions);
    let start = Instant::now();
    // An odd number, so that the median is not the slower one of two.
    while cold.len() < most_cold && (start.elapsed() < how.budget || cold.len().is_multiple_of(2)) {
        let (mut engine, _, _) = filled(workload)?;
        let pass = decide(&mut engine, START);
        ensure!(pass.decisions.actions.len() as u64 == actions, "two equal fleets took different actions");
        cold.push((pass.took, pass.phases));
    }
    cold.sort_unstable_by_key(|(took, _)| *took);
    let (median, phases) = &cold[cold.len() / 2];
    report.cold_runs = cold.len() as u64;
    report.cold_full_ms = millis(*median);
    report.cold_full_min_ms = millis(cold[0].0);
    report.cold_full_max_ms = millis(cold[cold.len() - 1].0);
    report.phase_ms = named(phases);
    if let Some(recorded) = recorded {
        report.compare(recorded);
    }
    Ok(report)
}

/// Rounds of changed demand, each followed by a decision. What is decided is not carried out: rows that lack something
/// lack it again.
fn warm(workload: &dyn Workload, engine: &mut Engine, how: Effortful, report: &mut Report) {
    let (mut times, mut applies) = (Vec::new(), Vec::new());
    let mut phases: BTreeMap<Phase, Duration> = BTreeMap::new();
    let mut changed = Changed::default();
    let start = Instant::now();
    for round in 1..=how.warm {
        let mut events = Vec::new();
        let sent = workload.churn(round, &mut |event| events.push(event));
        changed.rows += sent.rows;
        changed.changed += sent.changed;
        let at = Instant::now();
        events.into_iter().for_each(|event| engine.apply(event));
        applies.push(at.elapsed());
        let late = ROLLUP.saturating_mul(u32::try_from(round).unwrap_or(u32::MAX));
        if !workload.remembers() {
            engine.forget();
        }
        let pass = decide(engine, START.after(late));
        times.push(pass.took);
        for (phase, took) in pass.phases {
            *phases.entry(phase).or_default() += took;
        }
        report.needs_evaluated = pass.effort.needs;
        report.machines_touched = pass.effort.machines;
        report.warm_actions = pass.decisions.actions.len() as u64;
        if start.elapsed() > how.budget && round >= 10 {
            break;
        }
    }
    let passes = times.len() as u64;
    times.sort_unstable();
    applies.sort_unstable();
    report.warm_passes = passes;
    report.warm_full_p50_ms = millis(quantile(&times, 50));
    report.warm_full_p99_ms = millis(quantile(&times, 99));
    report.warm_apply_p50_ms = millis(quantile(&applies, 50));
    report.warm_phase_ms = named(&phases);
    report.warm_phase_ms.values_mut().for_each(|sum| *sum /= to_f64(passes.max(1)));
    report.rows_changed = to_f64(changed.changed) / to_f64(changed.rows.max(1));
}

/// An engine that holds the workload, what was made and how long the engine took to take it.
pub(crate) fn filled(workload: &dyn Workload) -> Result<(Engine, Tally, Duration)> {
    const BATCH: usize = 4096;
    let mut engine = Engine::new(workload.policy());
    let mut applying = Duration::ZERO;
    let mut batch: Vec<Event> = Vec::with_capacity(BATCH);
    let mut take = |batch: &mut Vec<Event>| {
        let start = Instant::now();
        batch.drain(..).for_each(|event| engine.apply(event));
        applying += start.elapsed();
    };
    let made = workload.fill(&mut |event| {
        batch.push(event);
        if batch.len() == BATCH {
            take(&mut batch);
        }
    })?;
    take(&mut batch);
    Ok((engine, made, applying))
}

fn decide(engine: &mut Engine, now: UnixNanos) -> Pass {
    let mut phases: BTreeMap<Phase, Duration> = BTreeMap::new();
    let start = Instant::now();
    let mut last = start;
    let decisions = engine.decide_observed(now, &mut |phase| {
        let at = Instant::now();
        *phases.entry(phase).or_default() += at - last;
        last = at;
    });
    let end = Instant::now();
    *phases.entry(Phase::Other).or_default() += end - last;
    Pass { took: end - start, phases, effort: engine.effort(), decisions }
}

fn named(phases: &BTreeMap<Phase, Duration>) -> BTreeMap<&'static str, f64> {
    Phase::ALL
        .iter()
        .map(|phase| (phase.name(), millis(phases.get(phase).copied().unwrap_or_default())))
        .collect()
}

/// The smallest time that at least so many in a hundred do not exceed. `sorted` is not empty.
pub(crate) fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[allow(clippy::cast_precision_loss, reason = "counts for display")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Bytes of this process that are in memory.
fn rss() -> Result<u64> {
    memory("VmRSS:")
}

/// Bytes of this process that were in memory when it had most.
pub(crate) fn peak_rss() -> Result<u64> {
    memory("VmHWM:")
}

fn memory(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("/proc/self/status has no {name}"))? * 1024)
}
