//! Measurements that are not about one decision: the operator's aggregation, a table's refresh, a closed loop.

mod pending;
mod replace;
pub(crate) mod rollup;
mod soak;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::measure::{Effortful, millis};
use crate::report::{commit, cpu};

/// The names of all of them, in the order in which they run.
pub(crate) const NAMES: [&str; 7] = [
    "needs-replace",
    "rollup-25k",
    "soak",
    "pending-pods-1000",
    "pending-pods-10000",
    "pending-pods-100000",
    "pending-pods-1000000",
];

/// What was measured. Times in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    /// Which.
    pub workload: String,
    /// Machines.
    pub records: u64,
    /// Rows of demand.
    pub needs: u64,
    /// The part of them that are gangs, 0 to 1.
    pub gang_share: f64,
    /// Requests or cycles, where the workload has them.
    pub pods: Option<u64>,
    /// All of it, nothing done before: the median.
    pub cold_full_ms: f64,
    /// The fastest run.
    pub cold_full_min_ms: f64,
    /// The slowest run.
    pub cold_full_max_ms: f64,
    /// Runs.
    pub cold_runs: u64,
    /// Where the median run spent its time; adds up to it.
    pub phase_ms: BTreeMap<&'static str, f64>,
    /// Actions decided.
    pub actions: u64,
    /// What is measured.
    pub timed: &'static str,
    /// The published number.
    pub recorded: &'static str,
    /// The processor's name.
    pub cpu: String,
    /// The commit of the working directory.
    pub commit: String,
}

/// One run: how long each part took, and what came out.
pub(crate) struct Run {
    pub(crate) parts: Vec<(&'static str, Duration)>,
    pub(crate) made: Made,
}

/// What a run was about. The same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Made {
    pub(crate) records: u64,
    pub(crate) needs: u64,
    pub(crate) gangs: u64,
    pub(crate) pods: Option<u64>,
    pub(crate) actions: u64,
}

/// Measures one of [`NAMES`].
pub(crate) fn by_name(name: &str, how: Effortful) -> Option<Result<Timing>> {
    let pending = |pods| {
        repeated(name, how, pending::TIMED, pending::RECORDED[pods], || {
            pending::run(10u64.pow(3 + u32::try_from(pods).unwrap_or(0)))
        })
    };
    Some(match name {
        "needs-replace" => repeated(name, how, replace::TIMED, replace::RECORDED, replace::run),
        "rollup-25k" => repeated(name, how, rollup::TIMED, rollup::RECORDED, rollup::run),
        "soak" => repeated(name, how, soak::TIMED, soak::RECORDED, soak::run),
        "pending-pods-1000" => pending(0),
        "pending-pods-10000" => pending(1),
        "pending-pods-100000" => pending(2),
        "pending-pods-1000000" => pending(3),
        _ => return None,
    })
}

fn repeated(
    name: &str,
    how: Effortful,
    timed: &'static str,
    recorded: &'static str,
    mut once: impl FnMut() -> Result<Run>,
) -> Result<Timing> {
    let start = Instant::now();
    let first = once()?;
    let made = first.made;
    let mut runs = vec![first.parts];
    while runs.len() < how.cold && start.elapsed() < how.budget {
        let run = once()?;
        anyhow::ensure!(run.made == made, "two equal runs of {name} differ: {made:?} and {:?}", run.made);
        runs.push(run.parts);
    }
    let total = |parts: &Vec<(&str, Duration)>| parts.iter().map(|(_, took)| *took).sum::<Duration>();
    runs.sort_by_key(total);
    let median = &runs[runs.len() / 2];
    Ok(Timing {
        workload: name.to_owned(),
        records: made.records,
        needs: made.needs,
        gang_share: crate::measure::to_f64(made.gangs) / crate::measure::to_f64(made.needs.max(1)),
        pods: made.pods,
        cold_full_ms: millis(total(median)),
        cold_full_min_ms: millis(total(&runs[0])),
        cold_full_max_ms: millis(total(&runs[runs.len() - 1])),
        cold_runs: runs.len() as u64,
        phase_ms: median.iter().map(|(part, took)| (*part, millis(*took))).collect(),
        actions: made.actions,
        timed,
        recorded,
        cpu: cpu(),
        commit: commit(),
    })
}

impl Timing {
    /// The lines of a table, names and values.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let parts: Vec<String> = self.phase_ms.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
        let mut lines = vec![
            ("timed".to_owned(), self.timed.to_owned()),
            (
                "took".to_owned(),
                format!(
                    "{:.3} ms (median of {}, {:.3} to {:.3})",
                    self.cold_full_ms, self.cold_runs, self.cold_full_min_ms, self.cold_full_max_ms
                ),
            ),
            ("recorded before".to_owned(), self.recorded.to_owned()),
            ("parts".to_owned(), parts.join(", ")),
            ("records".to_owned(), self.records.to_string()),
            ("needs".to_owned(), format!("{} ({:.1} % gangs)", self.needs, self.gang_share * 100.0)),
            ("actions".to_owned(), self.actions.to_string()),
        ];
        if let Some(pods) = self.pods {
            lines.push(("pods".to_owned(), pods.to_string()));
        }
        lines
    }
}
