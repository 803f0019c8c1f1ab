//! Tests of the engine through its public interface.
#![allow(
    clippy::unwrap_used,
    clippy::cloned_ref_to_slice_refs,
    reason = "helpers of tests, too, may fail a test; a test reads better with values"
)]

mod against_oracle;
mod bad_input;
mod cost_and_order;
mod demand_table;
mod dsl;
mod effort;
mod explained;
mod incremental;
mod invariants;
mod phase1;
mod phase3;
mod properties;
mod random;
mod told;
mod verdicts;
mod world;

// The worked examples by number, written once for engine and oracle: `decide` asks both and wants one answer.
use against_oracle::decide;

#[path = "../../../oracle/tests/it/decide_files.rs"]
mod decide_files;
#[path = "../../../oracle/tests/it/fleet.rs"]
mod fleet;
#[path = "../../../oracle/tests/it/folding.rs"]
mod folding;
#[path = "../../../oracle/tests/it/gangs.rs"]
mod gangs;
#[path = "../../../oracle/tests/it/looped.rs"]
mod looped;
#[path = "../../../oracle/tests/it/matching.rs"]
mod matching;
#[path = "../../../oracle/tests/it/phase2.rs"]
mod phase2;
#[path = "../../../oracle/tests/it/phase1.rs"]
mod shared_phase1;
#[path = "../../../oracle/tests/it/phase3.rs"]
mod shared_phase3;
#[path = "../../../oracle/tests/it/verdicts.rs"]
mod shared_verdicts;
#[path = "../../../oracle/tests/it/single_rules.rs"]
mod single_rules;
#[path = "../../../oracle/tests/it/spread.rs"]
mod spread;
