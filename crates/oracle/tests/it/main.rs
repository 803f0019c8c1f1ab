//! The worked examples of the engine's specification, by number, against the oracle. The engine's tests run the same
//! files against both.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod decide_files;
mod fleet;
mod folding;
mod gangs;
mod looped;
mod matching;
mod phase1;
mod phase2;
mod phase3;
mod properties;
mod single_rules;
mod spread;
mod verdicts;

use bigfleet_oracle::decide;
