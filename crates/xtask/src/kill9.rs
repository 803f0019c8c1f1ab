//! `cargo xtask kill9`: the kill -9 test of the executable at many points.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// Runs the test at so many points; `seed` repeats the choices of an earlier run.
pub(crate) fn run(points: u32, seed: Option<u64>) -> Result<()> {
    let mut test = cargo(["test", "--workspace", "--locked", "--test", "it", "kill9::", "--", "--nocapture"]);
    test.env("BIGFLEET_KILL9_POINTS", points.to_string());
    if let Some(seed) = seed {
        test.env("BIGFLEET_KILL9_SEED", seed.to_string());
    }
    workspace::run(&mut test)
}
