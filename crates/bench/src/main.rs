//! `bigfleet-bench`: counts instructions, and measures one workload after the other, each in a process of its own, so that none finds memory or
//! caches as another left them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use bigfleet_bench::measure::Effortful;
use bigfleet_bench::page::rewritten;
use bigfleet_bench::provider::{self, Setting, Size};
use bigfleet_bench::results::Results;
use bigfleet_bench::{CHURN, LARGEST, Measured, instructions, measured, timing, usual};

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
        /// Decisions that build on the one before, over seconds of churn: of the fleet of this profile, or of 5k, 50k
        /// and 500k.
        #[arg(long, conflicts_with = "workload")]
        incremental: bool,
        /// One JSON object for every second of churn, before the report.
        #[arg(long, requires = "incremental")]
        seconds: bool,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
        /// Measure as little as possible; for tests of the benchmark.
        #[arg(long, hide = true)]
        least: bool,
    },
    /// A provider as a program with a durable store, over real gRPC.
    Provider(Provider),
    /// Measures everything, or what is named, and writes the numbers and the tables of the page.
    All(All),
    /// Writes the tables of the page anew, from the numbers that were measured last.
    Page(Files),
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

/// Where numbers and tables go.
#[derive(Debug, clap::Args)]
struct Files {
    /// The numbers: one JSON object a row and line.
    #[arg(long, default_value = "crates/bench/results.jsonl")]
    results: PathBuf,
    /// The page with the tables.
    #[arg(long, default_value = "docs/benchmarks.md")]
    page: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Provider {
    /// Only this workload.
    #[arg(long)]
    workload: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Keep the numbers and write the tables of the page.
    #[arg(long)]
    write: bool,
    /// The executable; without it the one beside this program.
    #[arg(long)]
    program: Option<PathBuf>,
    /// A folder on the disk that is to be measured.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    #[command(flatten)]
    files: Files,
}

#[derive(Debug, clap::Args)]
struct All {
    /// Write the files; without it only the tables are printed.
    #[arg(long)]
    write: bool,
    /// The fleet of 24 million machines, too; it takes minutes and 8 GB.
    #[arg(long)]
    with_5m: bool,
    /// Only these rows; the others stay as they were.
    #[arg(long)]
    workload: Vec<String>,
    /// Measure as little as possible; for tests of the benchmark.
    #[arg(long, hide = true)]
    least: bool,
    #[command(flatten)]
    files: Files,
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Run::Engine { profile, incremental: true, seconds, json, least, .. } => {
            let known = ["5k", "50k", "500k"].map(str::to_owned);
            let names = profile.map_or_else(|| known.to_vec(), |name| vec![name]);
            names.iter().try_for_each(|name| incremental(name, seconds, json, least))
        }
        Run::Engine { profile, workload, json, least, .. } => match profile.or(workload) {
            Some(name) => one(&name, json, least),
            None => usual().try_for_each(|name| {
                print!("{}", alone(name, json, least)?);
                Ok(())
            }),
        },
        Run::Provider(options) => measure_provider(&options),
        Run::All(all) => measure_all(&all),
        Run::Page(files) => Results::read(&files.results).and_then(|results| write_page(&files, &results)),
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

/// Measures seconds in the life of a fleet.
fn incremental(profile: &str, seconds: bool, json: bool, least: bool) -> Result<()> {
    let how = if least { Effortful::LEAST } else { Effortful::FULL };
    let mut lines = Vec::new();
    let measured = timing::incremental::run(profile, how, &mut |second| {
        lines.extend(seconds.then(|| serde_json::to_string(second)));
    })?;
    for line in lines {
        println!("{}", line.context("cannot print a second")?);
    }
    let text = if json { serde_json::to_string(&measured) } else { serde_json::to_string_pretty(&measured) };
    println!("{}", text.context("cannot print the report")?);
    Ok(())
}

/// Measures a workload in this process.
fn one(name: &str, json: bool, least: bool) -> Result<()> {
    let how = if least { Effortful::LEAST } else { Effortful::FULL };
    let measured = measured(name, how)?;
    if json {
        println!("{}", serde_json::to_string(&measured).context("cannot print the report")?);
        return Ok(());
    }
    let (lines, place) = match &measured {
        Measured::Fleet(report) => (report.lines(), &report.place),
        Measured::Other(timing) => (timing.lines(), &timing.place),
    };
    println!("{name} on {} at {}", place.cpu, place.commit);
    for (name, value) in lines {
        println!("  {name:<22} {value}");
    }
    Ok(())
}

/// Measures a workload in a process of its own. Gives what it printed.
fn alone(name: &str, json: bool, least: bool) -> Result<String> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(this);
    command.arg("engine").stderr(Stdio::inherit());
    match name.strip_prefix(CHURN) {
        Some(profile) => command.args(["--profile", profile, "--incremental"]),
        None => command.args(["--workload", name]),
    };
    command.args(json.then_some("--json")).args(least.then_some("--least"));
    let output = command.output().context("cannot start this program again")?;
    if !output.status.success() {
        bail!("{name} failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed something that is no text"))
}

/// Measures a provider, one workload after the other: each starts a server of its own.
fn measure_provider(options: &Provider) -> Result<()> {
    let program = options.program.clone().map_or_else(provider::program_beside, Ok)?;
    fs::create_dir_all(&options.folder)
        .with_context(|| format!("cannot make {}", options.folder.display()))?;
    let setting = Setting { program, folder: options.folder.clone(), size: Size::Full };
    let names: Vec<&str> =
        options.workload.as_deref().map_or_else(|| provider::names().collect(), |name| vec![name]);
    let mut results = Results::read(&options.files.results)?;
    for name in names {
        let report = provider::measured(name, &setting)?;
        let row = serde_json::to_value(&report).context("cannot print the report")?;
        if options.json {
            println!("{row}");
        } else {
            println!("{name} on {} at {}", report.place.cpu, report.place.commit);
            for (name, value) in report.lines()? {
                println!("  {name:<22} {value}");
            }
        }
        results.put(row)?;
    }
    if options.write {
        let file = &options.files.results;
        fs::write(file, results.text()).with_context(|| format!("cannot write {}", file.display()))?;
        write_page(&options.files, &results)?;
    }
    Ok(())
}

/// Measures one row after the other. One that fails keeps its last numbers, and the others are still measured.
fn measure_all(all: &All) -> Result<()> {
    let mut names: Vec<String> = all.workload.clone();
    if names.is_empty() {
        names = usual().map(str::to_owned).collect();
        names.extend(["5k", "50k", "500k"].map(|profile| format!("{CHURN}{profile}")));
    }
    if all.with_5m {
        names.extend([LARGEST.to_owned(), format!("{CHURN}{LARGEST}")]);
    }
    let mut results = Results::read(&all.files.results)?;
    let mut failed = Vec::new();
    for (number, name) in (1..).zip(&names) {
        eprintln!("{number} of {}: {name}", names.len());
        let row = alone(name, true, all.least).and_then(|line| {
            let mut row: serde_json::Value = serde_json::from_str(&line)?;
            // A fleet has a row of its own for its churn.
            row["workload"] = name.as_str().into();
            Ok(row)
        });
        match row.and_then(|row| results.put(row)) {
            Ok(()) => {}
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    if all.write {
        let file = &all.files.results;
        fs::write(file, results.text()).with_context(|| format!("cannot write {}", file.display()))?;
        write_page(&all.files, &results)?;
    } else {
        print!("{}", rewritten(&page_text(&all.files)?, &results)?);
    }
    if !failed.is_empty() {
        bail!("{} of {} rows keep their last numbers:\n{}", failed.len(), names.len(), failed.join("\n"));
    }
    Ok(())
}

fn page_text(files: &Files) -> Result<String> {
    fs::read_to_string(&files.page).with_context(|| format!("cannot read {}", files.page.display()))
}

fn write_page(files: &Files, results: &Results) -> Result<()> {
    let page = rewritten(&page_text(files)?, results)?;
    fs::write(&files.page, page).with_context(|| format!("cannot write {}", files.page.display()))
}
