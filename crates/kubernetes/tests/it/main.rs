//! Tests of what Kubernetes sees of us, without a Kubernetes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod crd_manifest;
mod crd_objects;
mod fake_api;
mod leader;
mod pods_examples;
mod pods_kit;
mod pods_life;
mod pods_service;
mod pods_table;
mod shell_daemon_sets;
mod shell_watch;
mod shell_write;
