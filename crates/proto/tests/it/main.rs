//! The wire as others see it: golden vectors, the schema against the public one and the committed one, and the gate
//! against everything that a peer may send.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod gate;
mod golden;
mod schema;
