//! Reads, decides and explains any bytes.
#![no_main]

#[path = "../../crates/decide/tests/fuzz/decide_file.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
