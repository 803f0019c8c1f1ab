//! What is reported of a workload.

use std::collections::BTreeMap;

use bigfleet_engine::Phase;
use serde::Serialize;

use crate::compare::{Comparison, Place, Recorded, Timed};
use crate::measure::to_f64;
use crate::sizing::Tally;

/// What is decoded where all is in memory.
pub const NOTHING: &str = "nothing";

/// The measurements of one fleet. Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which.
    pub workload: String,
    /// Machines of all tiers.
    pub records: u64,
    /// Rows of demand before folding.
    pub needs: u64,
    /// The part of them that are gangs, 0 to 1.
    pub gang_share: f64,
    /// The first decision after the engine was filled: everything from the call to the answer, indexes and order of
    /// all that was applied included. Taking the events and freeing the answer are not. The median of `cold_runs`.
    pub cold_full_ms: f64,
    /// The fastest cold run.
    pub cold_full_min_ms: f64,
    /// The slowest cold run.
    pub cold_full_max_ms: f64,
    /// Cold runs, each on an engine filled afresh.
    pub cold_runs: u64,
    /// What the engine took to take all events, decoded ones.
    pub apply_ms: f64,
    /// A decision after a round of roll-ups: the median.
    pub warm_full_p50_ms: f64,
    /// The same, exceeded by one in a hundred; the slowest with fewer than 100 passes.
    pub warm_full_p99_ms: f64,
    /// Rounds.
    pub warm_passes: u64,
    /// What the engine took to take a round of roll-ups: the median.
    pub warm_apply_p50_ms: f64,
    /// The part of the rows that changed from round to round.
    pub rows_changed: f64,
    /// Needs that went through the phases in the last warm pass.
    pub needs_evaluated: u64,
    /// Times that a phase looked at a single machine in it.
    pub machines_touched: u64,
    /// The same for the cold pass.
    pub cold_needs_evaluated: u64,
    /// The same for the cold pass.
    pub cold_machines_touched: u64,
    /// Where the median cold run spent its time; adds up to it.
    pub phase_ms: BTreeMap<&'static str, f64>,
    /// Where the warm passes spent theirs: the mean.
    pub warm_phase_ms: BTreeMap<&'static str, f64>,
    /// Memory of the process that came with the engine, its demand and the answer, by machines.
    pub rss_bytes_per_record: Option<u64>,
    /// Actions of the cold decision.
    pub actions: u64,
    /// Actions of the last warm one.
    pub warm_actions: u64,
    /// What of it was decoded from bytes in the times: nothing.
    pub decoded: &'static str,
    /// A recorded number and a target beside ours.
    #[serde(flatten)]
    pub comparison: Option<Comparison>,
    /// Where it was measured.
    #[serde(flatten)]
    pub place: Place,
}

impl Report {
    pub(crate) fn new(workload: &str, made: &Tally) -> Self {
        Self {
            workload: workload.to_owned(),
            records: made.records(),
            needs: made.needs,
            gang_share: to_f64(made.gangs()) / to_f64(made.needs.max(1)),
            cold_full_ms: 0.0,
            cold_full_min_ms: 0.0,
            cold_full_max_ms: 0.0,
            cold_runs: 0,
            apply_ms: 0.0,
            warm_full_p50_ms: 0.0,
            warm_full_p99_ms: 0.0,
            warm_passes: 0,
            warm_apply_p50_ms: 0.0,
            rows_changed: 0.0,
            needs_evaluated: 0,
            machines_touched: 0,
            cold_needs_evaluated: 0,
            cold_machines_touched: 0,
            phase_ms: BTreeMap::new(),
            warm_phase_ms: BTreeMap::new(),
            rss_bytes_per_record: None,
            actions: 0,
            warm_actions: 0,
            decoded: NOTHING,
            comparison: None,
            place: Place::here(),
        }
    }

    /// Puts what is measured beside a published number.
    pub(crate) fn compare(&mut self, recorded: Recorded) {
        let (timed, ms) = match recorded.timed {
            Timed::Cold => ("first decision", Some(self.cold_full_ms)),
            Timed::Warm => ("later decisions, mean", Some(self.warm_phase_ms.values().sum())),
            Timed::WarmP99 => ("later decisions, p99", Some(self.warm_full_p99_ms)),
            Timed::Indexes => {
                let settle = self.phase_ms.get(Phase::Settle.name()).copied();
                ("taking all events, settle", settle.map(|settle| settle + self.apply_ms))
            }
            Timed::Phase(phase) => (phase.name(), self.phase_ms.get(phase.name()).copied()),
            Timed::Part(part) => (part, None),
        };
        self.comparison = ms.map(|ms| recorded.beside(timed.to_owned(), ms));
    }

    /// The lines of a table, names and values.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let ms = |value: f64| format!("{value:.3} ms");
        let mut lines = vec![
            ("records".to_owned(), self.records.to_string()),
            ("needs".to_owned(), format!("{} ({:.1} % gangs)", self.needs, self.gang_share * 100.0)),
            (
                "cold full".to_owned(),
                format!(
                    "{} (median of {}, {} to {})",
                    ms(self.cold_full_ms),
                    self.cold_runs,
                    ms(self.cold_full_min_ms),
                    ms(self.cold_full_max_ms)
                ),
            ),
            ("applying all events".to_owned(), ms(self.apply_ms)),
            (
                "warm full".to_owned(),
                format!(
                    "p50 {}, p99 {} ({} passes, {:.1} % of rows changed)",
                    ms(self.warm_full_p50_ms),
                    ms(self.warm_full_p99_ms),
                    self.warm_passes,
                    self.rows_changed * 100.0
                ),
            ),
            ("applying a round".to_owned(), ms(self.warm_apply_p50_ms)),
            (
                "effort, warm".to_owned(),
                format!("{} needs, {} machines", self.needs_evaluated, self.machines_touched),
            ),
            (
                "effort, cold".to_owned(),
                format!("{} needs, {} machines", self.cold_needs_evaluated, self.cold_machines_touched),
            ),
            ("actions".to_owned(), format!("{} cold, {} warm", self.actions, self.warm_actions)),
        ];
        if let Some(comparison) = &self.comparison {
            lines.splice(0..0, comparison.lines());
        }
        if let Some(bytes) = self.rss_bytes_per_record {
            lines.push(("memory".to_owned(), format!("{bytes} bytes a record")));
        }
        for (title, phases) in [("phases, cold", &self.phase_ms), ("phases, warm", &self.warm_phase_ms)] {
            let parts: Vec<String> =
                phases.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
            lines.push((title.to_owned(), parts.join(", ")));
        }
        lines
    }
}
