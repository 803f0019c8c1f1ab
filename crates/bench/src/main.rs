//! `bigfleet-bench`: counts instructions, and measures one workload after the other, each in a process of its own, so that none finds memory or
//! caches as another left them.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use bigfleet_bench::measure::Effortful;
use bigfleet_bench::report::cpu;
use bigfleet_bench::{Measured, instructions, measured, usual};

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
    /// Counts the instructions of small benches and compares them with committed numbers (needs valgrind).
    Instructions {
        /// The committed numbers.
        #[arg(long, default_value = "crates/bench/instructions.txt")]
        file: PathBuf,
        /// Write the file instead.
        #[arg(long)]
        update: bool,
    },
    /// What valgrind runs.
    #[command(hide = true)]
    InstructionsOf {
        /// Which bench.
        name: String,
        /// Stop before what counts.
        #[arg(long)]
        only_prepare: bool,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Run::Engine { profile, workload, json, least } => match profile.or(workload) {
            Some(name) => one(&name, json, least),
            None => usual().try_for_each(|name| alone(name, json, least)),
        },
        Run::Instructions { file, update } => {
            instructions::check(&file, update).map(|table| print!("{table}"))
        }
        Run::InstructionsOf { name, only_prepare } => instructions::run(&name, only_prepare),
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
    let how = if least { Effortful::LEAST } else { Effortful::FULL };
    let measured = measured(name, how)?;
    if json {
        println!("{}", serde_json::to_string(&measured).context("cannot print the report")?);
        return Ok(());
    }
    let (lines, commit) = match &measured {
        Measured::Fleet(report) => (report.lines(), &report.commit),
        Measured::Other(timing) => (timing.lines(), &timing.commit),
    };
    println!("{name} on {} at {commit}", cpu());
    for (name, value) in lines {
        println!("  {name:<22} {value}");
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
