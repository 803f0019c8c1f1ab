//! The suite against our own providers, and against the same providers broken in one way at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too, may fail a test")]

mod certify;
mod defects;
mod double;
mod proxy;
