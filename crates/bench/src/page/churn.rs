//! The tables of seconds in the life of a fleet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{grouped, time};
use crate::CHURN;
use crate::compare::digits;
use crate::sizing::churn_target;

/// What the tables need of a row.
#[derive(Debug, Deserialize)]
struct Row {
    workload: String,
    records: u64,
    rows_a_second: f64,
    machines_a_second: f64,
    seconds: u64,
    apply_ms: f64,
    decide_p50_ms: f64,
    decide_p99_ms: f64,
    phase_ms: BTreeMap<String, f64>,
    needs_evaluated: u64,
    machines_touched: u64,
    nothing_changed_us: f64,
    unchanged_need_ns: f64,
    apply_10k_ms: f64,
    worst_ms: BTreeMap<String, Worst>,
    commit: String,
    load: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Worst {
    apply_ms: f64,
    decide_ms: f64,
    number: u64,
}

/// Whether a row of results is about churn.
pub(super) fn is_ours(row: &Value) -> bool {
    row["workload"].as_str().is_some_and(|name| name.starts_with(CHURN))
}

/// The tables by name.
pub(super) fn tables<'r>(rows: impl Iterator<Item = &'r Value>) -> Result<[(&'static str, String); 2]> {
    let row = |row: &Value| {
        Row::deserialize(row).with_context(|| format!("the row of {} cannot be used", row["workload"]))
    };
    let rows = rows.map(row).collect::<Result<Vec<_>>>()?;
    if rows.is_empty() {
        return Ok(["churn", "worst"].map(|name| (name, "Nothing was measured yet.\n".to_owned())));
    }
    Ok([("churn", seconds(&rows)), ("worst", worst(&rows))])
}

fn against(target: Option<f64>, ours: f64) -> String {
    target.map_or_else(String::new, |target| {
        if ours <= target {
            format!(" ({}, met)", digits(target))
        } else {
            format!(" ({}, {} times that)", digits(target), digits(ours / target))
        }
    })
}

fn seconds(rows: &[Row]) -> String {
    let mut text = "| Fleet | Records | Sent in a second: rows, machines | Taking them | Decision: p50 of all seconds | p99 (target), ms \
        | Rows with a turn, machines looked at | Phases, mean ms | Nothing changed (10 us) | An unchanged row (50 ns) \
        | Taking 10,000 machines, ms (target) |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let profile = row.workload.trim_start_matches(CHURN);
        let mut phases: Vec<_> = row.phase_ms.iter().filter(|(_, ms)| **ms >= 0.0005).collect();
        phases.sort_by(|a, b| b.1.total_cmp(a.1));
        let phases: Vec<String> =
            phases.iter().map(|(name, ms)| format!("{name} {}", digits(**ms))).collect();
        let _ = writeln!(
            text,
            "| {profile} | {} | {:.0}, {:.0} | {} | {} of {} | {}{} | {}, {} | {} | {} us | {} ns | {}{} |",
            grouped(row.records),
            row.rows_a_second,
            row.machines_a_second,
            time(row.apply_ms),
            time(row.decide_p50_ms),
            row.seconds,
            digits(row.decide_p99_ms),
            against(churn_target(profile), row.decide_p99_ms),
            grouped(row.needs_evaluated),
            grouped(row.machines_touched),
            phases.join(", "),
            digits(row.nothing_changed_us),
            digits(row.unchanged_need_ns),
            digits(row.apply_10k_ms),
            against(Some(1.0), row.apply_10k_ms),
        );
    }
    let load = |row: &Row| row.load.map_or_else(String::new, |load| format!(" at load {}", digits(load)));
    let places: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}{}", row.workload.trim_start_matches(CHURN), row.commit, load(row)))
        .collect();
    let _ = write!(text, "\nCommits: {}.\n", places.join("; "));
    text
}

fn worst(rows: &[Row]) -> String {
    let mut text =
        "| Fleet | What happens | Machines or rows | Taking it | Deciding |\n|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        for (name, worst) in &row.worst_ms {
            let _ = writeln!(
                text,
                "| {} | {name} | {} | {} | {} |",
                row.workload.trim_start_matches(CHURN),
                grouped(worst.number),
                time(worst.apply_ms),
                time(worst.decide_ms),
            );
        }
    }
    text
}
