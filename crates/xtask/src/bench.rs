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
    /// One JSON object a workload and line.
    #[arg(long)]
    json: bool,
}

/// Builds the benchmark and runs it.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "-p", "bigfleet-bench", "--"]);
    match bench {
        Bench::Engine(engine) => {
            command.arg("engine");
            for (flag, value) in [("--profile", &engine.profile), ("--workload", &engine.workload)] {
                if let Some(value) = value {
                    command.args([flag, value]);
                }
            }
            command.args(engine.json.then_some("--json"));
        }
        Bench::Instructions { update } => {
            command.arg("instructions").args(update.then_some("--update"));
        }
    }
    workspace::run(&mut command)
}
