//! The benchmarks themselves: what the generators make, that it is always the same, and what is reported. No test looks
//! at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fleets;
mod instructions;
mod page;
mod reports;
