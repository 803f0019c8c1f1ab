//! `bigfleet-bench`: measures one workload after the other, each in a process of its own, so that none finds memory or
//! caches as another left them.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use bigfleet_bench::measure::{Effortful, measure};
use bigfleet_bench::workload::by_name;

/// Measures BigFleet.
#[derive(Debug, Parser)]
#[command(name = "bigfleet-bench", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Run,
}

#[derive(Debug, Subcommand)]
enum Run {
    /// Decisions of the engine.
    Engine {
        /// Only the realistic fleet of this size: 5k, 50k, 500k or 5m.
        #[arg(long, conflicts_with = "workload")]
        profile: Option<String>,
        /// Only this workload.
        #[arg(long)]
        workload: Option<String>,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
        /// Measure as little as possible; for tests of the benchmark.
        #[arg(long, hide = true)]
        least: bool,
    },
}

/// What runs when nothing is chosen.
const USUAL: [&str; 5] = ["5k", "50k", "500k", "aggregated", "aggregated-ramp"];

fn main() -> ExitCode {
    let Run::Engine { profile, workload, json, least } = Args::parse().command;
    let result = match profile.or(workload) {
        Some(name) => one(&name, json, least),
        None => USUAL.iter().try_for_each(|name| alone(name, json, least)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bigfleet-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures a workload in this process.
fn one(name: &str, json: bool, least: bool) -> Result<()> {
    let Some(workload) = by_name(name) else {
        bail!("there is no workload {name:?}; known are {}, 5m and dev-50", USUAL.join(", "));
    };
    let how = if least { Effortful::LEAST } else { Effortful::FULL };
    let report = measure(&*workload, how)?;
    if json {
        println!("{}", serde_json::to_string(&report).context("cannot print the report")?);
        return Ok(());
    }
    println!("{} on {} at {}", report.workload, report.cpu, report.commit);
    for (name, value) in report.lines() {
        println!("  {name:<20} {value}");
    }
    Ok(())
}

/// Measures a workload in a process of its own.
fn alone(name: &str, json: bool, least: bool) -> Result<()> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(this);
    command.args(["engine", "--workload", name]);
    command.args(json.then_some("--json")).args(least.then_some("--least"));
    let status = command.status().context("cannot start this program again")?;
    if !status.success() {
        bail!("{name} failed");
    }
    Ok(())
}
