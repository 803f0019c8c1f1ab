//! Tests of the executable as a process: what people type, what it prints, how it ends, and what it survives.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too, may fail a test")]

mod bad_input;
mod conformance;
mod decide;
mod demo;
mod kill9;
mod peers;
mod process;
mod programs;
mod provider;
mod provider_bench;
mod provider_kill9;
mod simulate;
