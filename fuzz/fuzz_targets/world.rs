//! Engine and oracle on any world.
#![no_main]

#[path = "../../crates/decide/tests/fuzz/bytes.rs"]
mod bytes;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../crates/decide/tests/it/oracle.rs"]
mod oracle;
#[path = "../../crates/decide/tests/fuzz/world.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
