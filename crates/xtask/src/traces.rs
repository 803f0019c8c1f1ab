//! `cargo xtask traces`: writes the golden traces anew. What changed in them is for a person to judge.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// The tests that compare traces with files, and rewrite the files when they are told to.
const TESTS: [&str; 5] =
    ["scenario_traces::", "core_traces::", "c_base::", "c_gangs::c09_", "c_supply::c14_"];

/// Rewrites every trace, then compares all of them with what was written.
pub(crate) fn run() -> Result<()> {
    workspace::run(tests().env("BIGFLEET_UPDATE_TRACES", "1"))?;
    workspace::run(tests().env_remove("BIGFLEET_UPDATE_TRACES"))
}

fn tests() -> std::process::Command {
    let mut test = cargo(["test", "--workspace", "--locked", "--test", "it", "--"]);
    test.args(TESTS);
    test
}
