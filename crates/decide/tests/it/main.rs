//! The file formats from outside: what is accepted and refused, and the bytes that come out.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod accepted;
mod examples;
mod explained;
mod fuzzed;
mod oracle;
mod permutations;
mod printed;
mod refused;
mod total;
mod written;

/// A file around a fleet and a demand, both as JSON arrays.
fn file(fleet: &str, demand: &str) -> String {
    format!(r#"{{"format": "bigfleet.decide/v1", "fleet": {fleet}, "demand": {demand}}}"#)
}

/// A file with one machine entry.
fn with_entry(entry: &str) -> String {
    file(&format!("[{entry}]"), "[]")
}

/// A file with one machine record.
fn with_machine(members: &str) -> String {
    with_entry(&format!(r#"{{"machine": {{{members}}}}}"#))
}

/// A file with one cluster `c` that has one row.
fn with_need(members: &str) -> String {
    file("[]", &format!(r#"[{{"rollup": {{"clusterId": "c", "needs": [{{{members}}}]}}}}]"#))
}

/// What a file that is fine says.
fn read(text: &str) -> bigfleet_decide::Input {
    bigfleet_decide::read(text.as_bytes()).unwrap_or_else(|refused| panic!("{refused}: {text}"))
}
