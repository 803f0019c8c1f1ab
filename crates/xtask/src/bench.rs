//! `cargo xtask bench`: measures BigFleet with release builds. The measuring itself is in `bigfleet-bench`, so that
//! this crate stays light.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace::{self, cargo};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Decisions of the engine on realistic fleets, the published workloads beside their recorded numbers, and pending
    /// pods from request to decision.
    Engine(Engine),
    /// A provider as a program with a durable store, over real gRPC: mutations, Create and Get under 64 callers, List of
    /// up to 500 K machines, start with 500 K machines.
    Provider(Provider),
    /// Every row, one after the other; writes the numbers to `crates/bench/results.jsonl` and the tables of
    /// `docs/benchmarks.md`.
    All(All),
    /// Writes the tables of `docs/benchmarks.md` anew from the numbers of the last `all --write`.
    Page,
    /// Counts the instructions of four small benches and fails when one grew by more than 3 % (needs valgrind).
    Instructions {
        /// Commit to the numbers of now.
        #[arg(long)]
        update: bool,
    },
}

/// Which workloads.
#[derive(Debug, Args)]
pub(crate) struct Engine {
    /// Only the realistic fleet of this size: 5k, 50k, 500k or 5m.
    #[arg(long, conflicts_with = "workload")]
    profile: Option<String>,
    /// Only this workload.
    #[arg(long)]
    workload: Option<String>,
    /// Decisions that build on the one before, over seconds of churn.
    #[arg(long, conflicts_with = "workload")]
    incremental: bool,
    /// One JSON object for every second of churn, too.
    #[arg(long, requires = "incremental")]
    seconds: bool,
    /// One JSON object a workload and line.
    #[arg(long)]
    json: bool,
}

/// Which of the provider's workloads, and whether to keep the numbers.
#[derive(Debug, Args)]
pub(crate) struct Provider {
    /// Only this workload.
    #[arg(long)]
    workload: Option<String>,
    /// One JSON object a workload and line.
    #[arg(long)]
    json: bool,
    /// Write the numbers and the page.
    #[arg(long)]
    write: bool,
}

/// Which rows, and whether to keep them.
#[derive(Debug, Args)]
pub(crate) struct All {
    /// Write the numbers and the page; without it the page is only printed.
    #[arg(long)]
    write: bool,
    /// The fleet of 24 million machines, too; it takes minutes and 8 GB of memory.
    #[arg(long)]
    with_5m: bool,
    /// Only this row, and others named likewise; the rest of the page stays as it was.
    #[arg(long)]
    workload: Vec<String>,
}

/// Builds the benchmark and runs it.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    if matches!(bench, Bench::Provider(_)) {
        // The program that is measured stands beside the one that measures.
        workspace::run(&mut cargo([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "-p",
            "bigfleet",
            "--bin",
            "bigfleet",
        ]))?;
    }
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "-p", "bigfleet-bench", "--"]);
    if !matches!(bench, Bench::Instructions { .. }) {
        // As `docs/configuration.md` describes for large shards.
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    match bench {
        Bench::Engine(engine) => {
            command.arg("engine");
            for (flag, value) in [("--profile", &engine.profile), ("--workload", &engine.workload)] {
                if let Some(value) = value {
                    command.args([flag, value]);
                }
            }
            command.args(engine.incremental.then_some("--incremental"));
            command.args(engine.seconds.then_some("--seconds"));
            command.args(engine.json.then_some("--json"));
        }
        Bench::Provider(provider) => {
            command.arg("provider");
            if let Some(name) = &provider.workload {
                command.args(["--workload", name]);
            }
            command.args(provider.json.then_some("--json")).args(provider.write.then_some("--write"));
        }
        Bench::All(all) => {
            command.arg("all").args(all.write.then_some("--write")).args(all.with_5m.then_some("--with-5m"));
            for name in &all.workload {
                command.args(["--workload", name]);
            }
        }
        Bench::Page => {
            command.arg("page");
        }
        Bench::Instructions { update } => {
            command.arg("instructions").args(update.then_some("--update"));
        }
    }
    workspace::run(&mut command)
}
