//! The provider kit over real gRPC on loopback, with real files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod baremetal;
mod boot;
mod crash;
mod dispatch;
mod durable;
mod exec;
mod fixture;
mod knobs;
mod list;
mod model;
mod serving;
mod tls;
