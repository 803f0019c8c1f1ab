//! Tests of the engine through its public interface.

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
