//! Measurements that are not about one decision: the operator's aggregation, a table's refresh, a closed loop, and a
//! shard's core fed from bytes.

mod audit;
mod core;
pub mod incremental;
mod ingest;
mod list;
mod pending;
mod replace;
pub(crate) mod rollup;
mod soak;
mod start;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::compare::{Comparison, Place, Recorded, Timed};
use crate::measure::{Effortful, millis, peak_rss, to_f64};
use crate::report::NOTHING;

/// One measurement by name.
struct Spec {
    name: &'static str,
    /// What is measured.
    what: &'static str,
    /// What of it is decoded from bytes.
    decoded: &'static str,
    recorded: Recorded,
    run: fn() -> Result<Run>,
}

const ROLLUPS: &str = "roll-ups";
const LIST: &str = "List";
const BOTH: &str = "List and roll-ups";

const fn spec(
    name: &'static str,
    what: &'static str,
    decoded: &'static str,
    recorded: Recorded,
    run: fn() -> Result<Run>,
) -> Spec {
    Spec { name, what, decoded, recorded, run }
}

/// All of them, in the order in which they run. A new one is a file with a `run`, and a line here; the commands, the page and
/// its tables follow.
const SPECS: [Spec; 17] = [
    spec("needs-replace", replace::WHAT, NOTHING, replace::RECORDED, replace::run),
    spec("rollup-25k", rollup::WHAT, NOTHING, rollup::RECORDED, rollup::run),
    spec("decision-audit-50k", audit::WHAT, NOTHING, audit::COPY.target(2.0), || audit::run("50k")),
    spec("decision-audit-500k", audit::WHAT, NOTHING, audit::COPY, || audit::run("500k")),
    spec("soak", soak::WHAT, NOTHING, soak::RECORDED, soak::run),
    spec("wire-list-decode", list::DECODE, LIST, list::DECODE_RECORDED, list::decode),
    spec("full-reconcile", list::RECONCILE, LIST, list::RECONCILE_RECORDED, list::reconcile),
    spec("rollup-ingest", ingest::WHAT, ROLLUPS, ingest::RECORDED, ingest::run),
    spec("cold-start-5k", start::COLD, BOTH, start::NONE.target(20.0), || start::cold("5k")),
    spec("cold-start-50k", start::COLD, BOTH, start::NONE.target(120.0), || start::cold("50k")),
    spec("cold-start-500k", start::COLD, BOTH, start::NONE.target(1200.0), || start::cold("500k")),
    spec("restart-herd", start::HERD, ROLLUPS, start::HERD_RECORDED, start::herd),
    spec("pending-pods-1000", pending::WHAT, NOTHING, pending::peer(2_400.0), || pending::run(1_000)),
    spec("pending-pods-5000", pending::WHAT, NOTHING, pending::peer(13_800.0), || pending::run(5_000)),
    spec("pending-pods-10000", pending::WHAT, NOTHING, pending::peer(33_300.0).target(20.0), || {
        pending::run(10_000)
    }),
    spec("pending-pods-100000", pending::WHAT, NOTHING, pending::NO_PEER, || pending::run(100_000)),
    spec("pending-pods-1000000", pending::WHAT, NOTHING, pending::NO_PEER.target(1000.0), || {
        pending::run(1_000_000)
    }),
];

/// Their names, in the order in which they run.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SPECS.iter().map(|spec| spec.name)
}

/// What was measured. Times in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    /// Which.
    pub workload: String,
    /// What is measured.
    pub what: &'static str,
    /// Machines.
    pub records: u64,
    /// Rows of demand.
    pub needs: u64,
    /// The part of them that are gangs, 0 to 1.
    pub gang_share: f64,
    /// Requests, where the workload has them.
    pub pods: Option<u64>,
    /// Bytes that were decoded, where the workload has them.
    pub bytes: Option<u64>,
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
    /// Memory of the process when it had most, the generator's and the bytes included.
    pub peak_rss_bytes: u64,
    /// What of it was decoded from bytes in the times.
    pub decoded: &'static str,
    /// A recorded number and a target beside ours.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Where it was measured.
    #[serde(flatten)]
    pub place: Place,
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
    pub(crate) bytes: Option<u64>,
    pub(crate) actions: u64,
}

/// A clock that is read where one part ends and the next begins.
pub(crate) struct Laps(Instant);

impl Laps {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// The time since the beginning or the last call.
    pub(crate) fn end(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}

/// Measures one of [`names`].
pub(crate) fn by_name(name: &str, how: Effortful) -> Option<Result<Timing>> {
    SPECS.iter().find(|spec| spec.name == name).map(|spec| repeated(spec, how))
}

fn repeated(spec: &Spec, how: Effortful) -> Result<Timing> {
    let place = Place::here();
    let name = spec.name;
    let start = Instant::now();
    let first = (spec.run)()?;
    let made = first.made;
    let mut runs = vec![first.parts];
    while runs.len() < how.cold && start.elapsed() < how.budget {
        let run = (spec.run)()?;
        anyhow::ensure!(run.made == made, "two equal runs of {name} differ: {made:?} and {:?}", run.made);
        runs.push(run.parts);
    }
    let total = |parts: &Vec<(&str, Duration)>| parts.iter().map(|(_, took)| *took).sum::<Duration>();
    runs.sort_by_key(total);
    let median = &runs[runs.len() / 2];
    let phase_ms: BTreeMap<_, _> = median.iter().map(|(part, took)| (*part, millis(*took))).collect();
    let cold_full_ms = millis(total(median));
    let (timed, timed_ms) = match spec.recorded.timed {
        Timed::Part(part) => (part, phase_ms.get(part).copied().unwrap_or_default()),
        _ => ("all of it", cold_full_ms),
    };
    Ok(Timing {
        workload: name.to_owned(),
        what: spec.what,
        records: made.records,
        needs: made.needs,
        gang_share: to_f64(made.gangs) / to_f64(made.needs.max(1)),
        pods: made.pods,
        bytes: made.bytes,
        cold_full_ms,
        cold_full_min_ms: millis(total(&runs[0])),
        cold_full_max_ms: millis(total(&runs[runs.len() - 1])),
        cold_runs: runs.len() as u64,
        phase_ms,
        actions: made.actions,
        peak_rss_bytes: peak_rss()?,
        decoded: spec.decoded,
        comparison: spec.recorded.beside(timed.to_owned(), timed_ms),
        place,
    })
}

impl Timing {
    /// The lines of a table, names and values.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let parts: Vec<String> = self.phase_ms.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
        let mut lines = vec![
            ("measured".to_owned(), self.what.to_owned()),
            (
                "took".to_owned(),
                format!(
                    "{:.3} ms (median of {}, {:.3} to {:.3})",
                    self.cold_full_ms, self.cold_runs, self.cold_full_min_ms, self.cold_full_max_ms
                ),
            ),
        ];
        lines.extend(self.comparison.lines());
        lines.extend([
            ("parts".to_owned(), parts.join(", ")),
            ("decoded".to_owned(), self.decoded.to_owned()),
            ("records".to_owned(), self.records.to_string()),
            ("needs".to_owned(), format!("{} ({:.1} % gangs)", self.needs, self.gang_share * 100.0)),
            ("actions".to_owned(), self.actions.to_string()),
        ]);
        let optional = [("pods", self.pods), ("bytes", self.bytes)];
        lines.extend(
            optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))),
        );
        lines
    }
}
