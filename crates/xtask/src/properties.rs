//! `cargo xtask properties`: the property tests of the invariants, on many more cases than the test command takes.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// What the tests of invariants are called.
const TESTS: [&str; 6] =
    ["invariants::", "incremental::", "properties::", "against_oracle::", "core_properties::", "i22_"];

/// Runs every property so many times.
pub(crate) fn run(cases: u32) -> Result<()> {
    let mut test = cargo(["test", "--workspace", "--locked", "--release", "--test", "it", "--"]);
    test.args(TESTS).env("PROPTEST_CASES", cases.to_string());
    workspace::run(&mut test)
}
