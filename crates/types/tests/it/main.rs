//! Tests of the vocabulary, by table and by property.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod cost;
mod profile;
mod quantity;
mod resources;
mod state;
