//! The tables of `docs/benchmarks.md`, written from the rows that were measured. Everything else on the page is left as
//! it is: a table stands between a line `<!-- bench: NAME -->` and the next line `<!-- bench: end -->`.

mod churn;
mod provider;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::compare::{digits, in_words};
use crate::results::Results;

const BEGIN: &str = "<!-- bench: ";
const END: &str = "<!-- bench: end -->";

/// Where nothing was measured.
const DASH: &str = "-";

/// What a page needs of a row. Rows of decisions have the `warm` numbers, the others have `what`.
#[derive(Debug, Deserialize)]
struct Row {
    workload: String,
    records: u64,
    needs: u64,
    gang_share: f64,
    cold_full_ms: f64,
    cold_full_min_ms: f64,
    cold_full_max_ms: f64,
    cold_runs: u64,
    phase_ms: BTreeMap<String, f64>,
    decoded: String,
    what: Option<String>,
    pods: Option<u64>,
    bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    timed: Option<String>,
    timed_ms: Option<f64>,
    recorded: Option<String>,
    ratio: Option<f64>,
    target_ms: Option<f64>,
    warm_full_p50_ms: Option<f64>,
    warm_full_p99_ms: Option<f64>,
    warm_apply_p50_ms: Option<f64>,
    apply_ms: Option<f64>,
    rows_changed: Option<f64>,
    rss_bytes_per_record: Option<u64>,
    cpu: String,
    cores: u64,
    kernel: String,
    commit: String,
    load: Option<f64>,
}

/// Which rows a table has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fleet,
    Incremental,
    /// The first decisions on published workloads, and everything that is not a decision.
    Other,
}

impl Row {
    fn kind(&self) -> Kind {
        match self.workload.as_str() {
            "5k" | "50k" | "500k" | "5m" | "aggregated" | "aggregated-ramp" => Kind::Fleet,
            name if name.starts_with("incremental-") => Kind::Incremental,
            _ => Kind::Other,
        }
    }

    fn rows(&self) -> String {
        match self.gang_share {
            0.0 => grouped(self.needs),
            share => format!("{}, {:.0} % gangs", grouped(self.needs), share * 100.0),
        }
    }

    /// What is compared, against a target: met, or how far it is.
    fn target(&self) -> String {
        let (Some(target), Some(ours)) = (self.target_ms, self.timed_ms) else { return DASH.to_owned() };
        let limit = time(target);
        if ours <= target {
            format!("{limit}, met")
        } else {
            format!("{limit}, {} times that", digits(ours / target))
        }
    }

    fn against(&self) -> String {
        self.ratio.map_or_else(|| DASH.to_owned(), in_words)
    }

    /// Bytes a record and what they may be.
    fn memory(&self) -> String {
        let Some(bytes) = self.rss_bytes_per_record else { return DASH.to_owned() };
        let most = match self.workload.as_str() {
            "50k" | "500k" | "aggregated" => 300,
            "5m" => 340,
            _ => return bytes.to_string(),
        };
        format!("{bytes} (at most {most}{})", if bytes <= most { ", met" } else { "" })
    }

    fn phases(&self) -> String {
        // In the order of what they took.
        let mut phases: Vec<_> = self.phase_ms.iter().filter(|(_, ms)| **ms >= 0.0005).collect();
        phases.sort_by(|a, b| b.1.total_cmp(a.1));
        let phase = |(name, ms): &(&String, &f64)| format!("{name} {}", digits(**ms));
        phases.iter().map(phase).collect::<Vec<_>>().join(", ")
    }
}

/// The page with its tables written anew.
///
/// # Errors
/// A row lacks something, or the page lacks a table, has one twice, or has one that is not known.
pub fn rewritten(page: &str, results: &Results) -> Result<String> {
    let row = |row: &serde_json::Value| {
        Row::deserialize(row).with_context(|| format!("the row of {} cannot be used", row["workload"]))
    };
    let ours = results.rows().filter(|row| !provider::is_ours(row) && !churn::is_ours(row));
    let rows = ours.map(row).collect::<Result<Vec<_>>>()?;
    let mut tables = BTreeMap::from([
        ("machine", machine(&rows)),
        ("fleets", fleets(&rows)),
        ("incremental", incremental(&rows)),
        ("phases", phases(&rows)),
        ("published", published(&rows)),
        ("parts", parts(&rows)),
    ]);
    tables.extend(churn::tables(results.rows().filter(|row| churn::is_ours(row)))?);
    tables.extend(provider::tables(results.rows().filter(|row| provider::is_ours(row)))?);
    let mut text = String::with_capacity(page.len());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let Some(table) = tables.remove(name) else {
            bail!("the page has a table {name:?} that is not known, or has it twice");
        };
        ensure!(lines.any(|line| line == END), "the table {name:?} of the page has no line {END:?}");
        let _ = write!(text, "\n{table}\n{END}\n");
    }
    if let Some(name) = tables.keys().next() {
        bail!("the page has no line \"{BEGIN}{name} -->\" where that table belongs");
    }
    Ok(text)
}

/// Where the rows were measured.
fn machine(rows: &[Row]) -> String {
    let distinct = |text: &dyn Fn(&Row) -> String| {
        let all: BTreeSet<_> = rows.iter().map(text).collect();
        all.into_iter().collect::<Vec<_>>().join("; ")
    };
    let machines = distinct(&|row| format!("{}, {} cores, Linux {}", row.cpu, row.cores, row.kernel));
    let mut by_commit: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows {
        by_commit.entry(&row.commit).or_default().push(&row.workload);
    }
    let mut text = format!("{machines}.\n");
    if by_commit.is_empty() {
        return "Nothing was measured yet.\n".to_owned();
    }
    let commits = by_commit.len();
    for (commit, rows) in by_commit {
        let whose = if commits > 1 { format!(": {}", rows.join(", ")) } else { String::new() };
        let _ = writeln!(text, "Commit {commit}{whose}.");
    }
    let mut loads: Vec<f64> = rows.iter().filter_map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (loads.first(), loads.last()) {
        let _ = writeln!(text, "Load average of the minute before each row: {least:.1} to {most:.1}.");
        // One row after the other makes a load of one.
        if *most > 1.5 {
            text.push_str("Other work ran beside it: times are upper bounds.\n");
        }
    }
    text
}

fn fleets(rows: &[Row]) -> String {
    let header = "Workload | Records | Rows | Taking all events | First decision: median (fastest to slowest of runs) | Target | Recorded for a cycle | \
                  Ours | Later ones: p50, p99 | Bytes a record";
    table(header, rows, Kind::Fleet, |row| {
        let (cold, fastest, slowest) =
            (time(row.cold_full_ms), time(row.cold_full_min_ms), time(row.cold_full_max_ms));
        vec![
            grouped(row.records),
            row.rows(),
            optional(row.apply_ms),
            format!("{cold} ({fastest} to {slowest} of {})", row.cold_runs),
            row.target(),
            row.recorded.clone().unwrap_or_else(|| DASH.to_owned()),
            row.against(),
            format!("{}, {}", optional(row.warm_full_p50_ms), optional(row.warm_full_p99_ms)),
            row.memory(),
        ]
    })
}

fn incremental(rows: &[Row]) -> String {
    let header = "Workload | Records | Rows | Rows changed | Taking the roll-ups: p50 | Decision: p50 | p99 | Target for p99";
    table(header, rows, Kind::Incremental, |row| {
        vec![
            grouped(row.records),
            row.rows(),
            row.rows_changed
                .map_or_else(|| DASH.to_owned(), |part| format!("{} % of those sent", digits(part * 100.0))),
            optional(row.warm_apply_p50_ms),
            optional(row.warm_full_p50_ms),
            optional(row.warm_full_p99_ms),
            row.target(),
        ]
    })
}

fn phases(rows: &[Row]) -> String {
    table("Workload | First decision by phase, in ms", rows, Kind::Fleet, |row| vec![row.phases()])
}

fn published(rows: &[Row]) -> String {
    let header = "Workload | Records | Rows | Timed | Decoded | Ours, median | Recorded | Ours | Target";
    table(header, rows, Kind::Other, |row| {
        vec![
            grouped(row.records),
            row.rows(),
            row.timed.clone().unwrap_or_else(|| DASH.to_owned()),
            row.decoded.clone(),
            optional(row.timed_ms),
            row.recorded.clone().unwrap_or_else(|| DASH.to_owned()),
            row.against(),
            row.target(),
        ]
    })
}

fn parts(rows: &[Row]) -> String {
    let header = "Workload | What | Parts, in ms | Pods or bytes | Memory at most";
    let others: Vec<&Row> = rows.iter().filter(|row| row.what.is_some()).collect();
    table(header, others, Kind::Other, |row| {
        let pods = row.pods.map(|pods| format!("{} pods", grouped(pods)));
        let bytes = row.bytes.map(|bytes| format!("{} MB", digits(mega(bytes))));
        vec![
            row.what.clone().unwrap_or_default(),
            row.phases(),
            pods.or(bytes).unwrap_or_else(|| DASH.to_owned()),
            row.peak_rss_bytes.map_or_else(|| DASH.to_owned(), |bytes| format!("{:.0} MB", mega(bytes))),
        ]
    })
}

fn table<'r>(
    header: &str,
    rows: impl IntoIterator<Item = &'r Row>,
    kind: Kind,
    cells: impl Fn(&Row) -> Vec<String>,
) -> String {
    let columns = header.split('|').count();
    let mut text = format!("| {header} |\n|{}\n", "---|".repeat(columns));
    for row in rows.into_iter().filter(|row| row.kind() == kind) {
        let _ = writeln!(text, "| {} | {} |", row.workload, cells(row).join(" | "));
    }
    text
}

/// Milliseconds, or seconds from ten of them on.
fn time(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{} s", digits(ms / 1000.0)) } else { format!("{} ms", digits(ms)) }
}

fn optional(ms: Option<f64>) -> String {
    ms.map_or_else(|| DASH.to_owned(), time)
}

fn mega(bytes: u64) -> f64 {
    crate::measure::to_f64(bytes) / 1e6
}

/// A count with a comma before every three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
