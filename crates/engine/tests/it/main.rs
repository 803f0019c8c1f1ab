//! Tests of the engine through its public interface.
#![allow(
    clippy::unwrap_used,
    clippy::cloned_ref_to_slice_refs,
    reason = "helpers of tests, too, may fail a test; a test reads better with values"
)]

mod cost_and_order;
mod demand_table;
mod dsl;
mod interim;
mod oracle;
mod phase1;
mod phase3;
mod properties;
mod random;
mod verdicts;
mod world;
