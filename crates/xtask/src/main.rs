//! `cargo xtask`: what this repository needs beyond cargo itself. One file a command.

mod bench;
mod certify;
mod e2e;
mod fuzz;
mod guards;
mod kill9;
mod licenses;
mod mutants;
mod properties;
mod schema;
mod sim;
mod test;
mod traces;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development commands of BigFleet.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that a change must pass, in order; stops at the first failure.
    Test,
    /// Checks that keep the repository in shape: arrows, purity, file length, documents.
    Guards,
    /// Compares the wire schema with the committed one.
    Schema {
        /// Write additions to the committed schema. A change that breaks peers is never accepted.
        #[arg(long)]
        accept: bool,
    },
    /// Checks licences, banned crates and sources of everything that is linked in (needs cargo-deny).
    Licenses,
    /// Writes the golden traces of the simulator and the shard anew, for a person to review with `git diff`.
    Traces,
    /// Kills the shard and the provider at random points while demand moves, and looks at what becomes of the fleet.
    Kill9 {
        /// How many points.
        #[arg(long, default_value_t = 50)]
        points: u32,
        /// Repeats the choices of the run that printed this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// A provider alone, under a load of calls, in place of the fleet.
        #[arg(long)]
        provider: bool,
    },
    /// Runs the whole conformance suite on every provider of ours.
    Certify(certify::Options),
    /// Changes the phases of the engine in many small ways, one at a time, and sees whether a test notices (needs
    /// cargo-mutants).
    Mutants {
        /// How many changes.
        #[arg(long, default_value_t = 200)]
        sample: usize,
        /// Which ones.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Checks the invariants of decisions on many random worlds; the test command takes 256 of each.
    Properties {
        /// How many worlds a property.
        #[arg(long, default_value_t = 100_000)]
        cases: u32,
        /// The crates whose properties are to be checked; all if none is named.
        #[arg(long = "package")]
        packages: Vec<String>,
    },
    /// Lets libFuzzer look for an input on which a fuzz target fails (needs a C++ compiler).
    Fuzz(fuzz::Options),
    /// Lets the closed loop run through many generated worlds and a long soak.
    Sim(sim::Options),
    /// Measures BigFleet on this machine, with release builds.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// BigFleet on a real Kubernetes, on loopback: builds etcd, kube-apiserver and the rest once (needs Go), starts them,
    /// and takes our programs through a story with checks.
    E2e(e2e::Options),
    /// Plays a host of e2e; `fakecloud` runs it.
    #[command(hide = true)]
    E2eBoot {
        /// The run's folder.
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Test => test::run(),
        Command::Guards => guards::run(),
        Command::Schema { accept } => schema::run(accept),
        Command::Licenses => licenses::run(),
        Command::Traces => traces::run(),
        Command::Kill9 { points, seed, provider } => kill9::run(points, seed, provider),
        Command::Certify(options) => certify::run(&options),
        Command::Mutants { sample, seed } => mutants::run(sample, seed),
        Command::Properties { cases, packages } => properties::run(cases, &packages),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Bench(what) => bench::run(&what),
        Command::E2e(options) => e2e::run(&options),
        Command::E2eBoot { folder } => e2e::boot::run(&folder),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
