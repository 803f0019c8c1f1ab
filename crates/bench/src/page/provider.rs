//! The tables of the provider.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{DASH, grouped, mega, optional, time};
use crate::compare::digits;

/// What the tables need of a row.
#[derive(Debug, Deserialize)]
struct Row {
    workload: String,
    machines: u64,
    callers: u64,
    calls: u64,
    per_second: f64,
    cpu_us_per_call: f64,
    p50_ms: f64,
    p99_ms: f64,
    fsync_ms: Option<f64>,
    bytes: Option<u64>,
    first_byte_ms: Option<f64>,
    log_bytes: Option<u64>,
    target_ms: Option<f64>,
    peak_rss_bytes: u64,
    cpu: String,
    cores: u64,
    kernel: String,
    commit: String,
    load: Option<f64>,
}

/// Whether a row of results is about the provider.
pub(super) fn is_ours(row: &Value) -> bool {
    row["workload"].as_str().is_some_and(|name| crate::provider::names().any(|known| known == name))
}

/// The tables by name.
pub(super) fn tables<'r>(rows: impl Iterator<Item = &'r Value>) -> Result<[(&'static str, String); 3]> {
    let row = |row: &Value| {
        Row::deserialize(row).with_context(|| format!("the row of {} cannot be used", row["workload"]))
    };
    let rows = rows.map(row).collect::<Result<Vec<_>>>()?;
    Ok([("provider-calls", calls(&rows)), ("provider-lists", lists(&rows)), ("provider-start", start(&rows))])
}

fn calls(rows: &[Row]) -> String {
    let rows = rows.iter().filter(|row| row.callers > 1);
    table(
        "Workload | Machines | Callers | Calls | A second | Server's processor a call | p50 | p99 | A write of this disk alone",
        rows,
        |row| {
            vec![
                grouped(row.machines),
                row.callers.to_string(),
                grouped(row.calls),
                format!("{:.0}", row.per_second),
                format!("{} \u{b5}s", digits(row.cpu_us_per_call)),
                time(row.p50_ms),
                time(row.p99_ms),
                optional(row.fsync_ms),
            ]
        },
    )
}

fn lists(rows: &[Row]) -> String {
    let rows = rows.iter().filter(|row| row.bytes.is_some());
    table(
        "Workload | Machines | Answer | Server's processor | First byte | Last byte | Server's memory at most",
        rows,
        |row| {
            vec![
                grouped(row.machines),
                row.bytes.map_or_else(|| DASH.to_owned(), |bytes| format!("{} MB", digits(mega(bytes)))),
                time(row.cpu_us_per_call / 1000.0),
                optional(row.first_byte_ms),
                time(row.p50_ms),
                format!("{:.0} MB", mega(row.peak_rss_bytes)),
            ]
        },
    )
}

fn start(rows: &[Row]) -> String {
    let rows = rows.iter().filter(|row| row.log_bytes.is_some());
    table(
        "Workload | Machines | Log | Until ready: median, slowest | Target | Server's processor | Server's memory at most | Measured on",
        rows,
        |row| {
            let met = |target: f64| if row.p50_ms <= target { ", met".to_owned() } else { String::new() };
            vec![
                grouped(row.machines),
                row.log_bytes.map_or_else(|| DASH.to_owned(), |bytes| format!("{} MB", digits(mega(bytes)))),
                format!("{}, {}", time(row.p50_ms), time(row.p99_ms)),
                row.target_ms
                    .map_or_else(|| DASH.to_owned(), |target| format!("{}{}", time(target), met(target))),
                time(row.cpu_us_per_call / 1000.0),
                format!("{:.0} MB", mega(row.peak_rss_bytes)),
                format!(
                    "{}, {} cores, Linux {}; commit {}; load {}",
                    row.cpu,
                    row.cores,
                    row.kernel,
                    row.commit,
                    row.load.map_or_else(|| DASH.to_owned(), digits)
                ),
            ]
        },
    )
}

fn table<'r>(
    header: &str,
    rows: impl Iterator<Item = &'r Row>,
    cells: impl Fn(&Row) -> Vec<String>,
) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return "Nothing was measured yet.\n".to_owned();
    }
    let columns = header.split('|').count();
    let mut text = format!("| {header} |\n|{}\n", "---|".repeat(columns));
    for row in rows {
        text.push_str(&format!("| {} | {} |\n", row.workload, cells(row).join(" | ")));
    }
    text
}
