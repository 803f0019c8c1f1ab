//! `cargo xtask sim`: the generated worlds and the soak of the closed loop, on far more seeds and cycles than the test
//! command takes.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// The tests that take their size from the environment.
const TESTS: [&str; 3] = ["c_generated::c16_generated", "c_soak::c_soak", "c_scale::c08_cardinality_of_5k"];

/// How much to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Worlds that C16 generates.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of their seeds; a failure names the one to begin with.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Cycles of the soak; above 10000 with 50 clusters instead of 30.
    #[arg(long, default_value_t = 10_000)]
    soak: u32,
    /// Cycles of C8.
    #[arg(long, default_value_t = 300)]
    cycles: u32,
}

/// Runs the tests with these sizes.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut test = cargo(["test", "-p", "bigfleet-sim", "--locked", "--release", "--test", "it", "--"]);
    test.args(TESTS).args(["--exact", "--nocapture"]);
    test.env("BIGFLEET_SIM_SEEDS", options.seeds.to_string());
    test.env("BIGFLEET_SIM_FIRST", options.first.to_string());
    test.env("BIGFLEET_SIM_SOAK", options.soak.to_string());
    test.env("BIGFLEET_SIM_CYCLES", options.cycles.to_string());
    test.env("BIGFLEET_SIM_CLUSTERS", "20");
    workspace::run(&mut test)
}
