//! The closed loop from outside.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod c_base;
mod c_gangs;
mod c_generated;
mod c_golden;
mod c_order;
mod c_scale;
mod c_soak;
mod c_supply;
mod scenario_example;
mod scenario_refused;
mod scenario_rules;
mod scenario_same_bytes;
mod scenario_traces;

/// A number from the environment: how much more than usual the long runs do.
fn c_knob(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The trace of a scenario and the expectations that failed.
fn run(text: &str) -> (String, Vec<String>) {
    let scenario =
        bigfleet_sim::scenario::read(text.as_bytes()).unwrap_or_else(|refused| panic!("{refused}: {text}"));
    let mut trace = Vec::new();
    let failures = scenario.run(&mut trace).unwrap();
    (String::from_utf8(trace).unwrap(), failures.iter().map(ToString::to_string).collect())
}

/// The trace of a scenario that comes out as it expects.
fn played(text: &str) -> String {
    let (trace, failures) = run(text);
    assert_eq!(failures, Vec::<String>::new(), "{trace}");
    trace
}

fn lines(trace: &str) -> Vec<serde_json::Value> {
    trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
