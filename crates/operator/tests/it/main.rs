//! Integration tests of the operator, in one program because linking is slow.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod aggregate_examples;
mod aggregate_random;
mod core_bootstrap;
mod core_demand;
mod core_drained;
mod core_hints;
mod core_invariants;
mod core_kit;
mod core_overhead;
mod core_read_back;
mod core_reclaim;
mod core_reversal;
mod fake_shard;
mod memory_cluster;
mod memory_store;
mod session_client;
mod session_service;
mod template_bootstrap;
mod template_language;
