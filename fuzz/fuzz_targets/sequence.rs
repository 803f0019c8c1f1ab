//! The engine that remembers and the one that begins afresh, over any sequence of events.
#![no_main]

#[path = "../../crates/decide/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../crates/decide/tests/fuzz/sequence.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
