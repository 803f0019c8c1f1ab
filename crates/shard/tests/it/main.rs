//! Tests of the shard: the core as lists of events, the shell over real sockets and files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod core_audits;
mod core_drills;
mod core_drills_operators;
mod core_faults;
mod core_field_reports;
mod core_model;
mod core_order;
mod core_phases;
mod core_preempt;
mod core_properties;
mod core_random;
mod core_regressions;
mod core_rollups;
mod core_scenarios;
mod core_table;
mod core_traces;
mod core_world;
mod golden;
mod shell_audit;
mod shell_decision_audit;
mod shell_drills;
mod shell_epoch;
mod shell_fake;
mod shell_flow;
mod shell_logs;
mod shell_operator;
mod shell_outbox;
mod shell_provider;
mod shell_service;
mod shell_session;
mod shell_shard;
