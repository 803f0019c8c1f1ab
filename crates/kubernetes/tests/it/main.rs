//! Tests of what Kubernetes sees of us, without a Kubernetes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod crd_manifest;
mod crd_objects;
mod fake_api;
mod leader;
mod shell_watch;
mod shell_write;
