//! `cargo xtask kill9`: the kill -9 test of the executable at many points.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// Runs the test of the fleet, or that of a provider alone, at so many points; `seed` repeats the choices of an earlier
/// run.
pub(crate) fn run(points: u32, seed: Option<u64>, provider: bool) -> Result<()> {
    let name = if provider { "provider_kill9::" } else { "drill24_kill9" };
    let mut test = cargo(["test", "--workspace", "--locked", "--test", "it", name, "--", "--nocapture"]);
    test.env("BIGFLEET_KILL9_POINTS", points.to_string());
    if let Some(seed) = seed {
        test.env("BIGFLEET_KILL9_SEED", seed.to_string());
    }
    workspace::run(&mut test)
}
