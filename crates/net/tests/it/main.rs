//! Tests over real sockets on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod admin;
mod channel;
mod fake;
mod grpc;
mod limits;
mod listen;

use std::time::Duration;

/// Longer than anything here takes; only a hang reaches it.
const LONG: Duration = Duration::from_secs(30);
/// Long enough for something to go wrong when it is not meant to happen.
const SHORT: Duration = Duration::from_millis(300);
