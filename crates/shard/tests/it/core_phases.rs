//! The time of cycles: every moment belongs to a phase.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigfleet_shard::control::Control;
use bigfleet_shard::io::{Input, Output};
use bigfleet_shard::metrics::Metrics;
use bigfleet_types::MachineState;
use bigfleet_types::chance::Seeded;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::core_model::{gpu, reported};
use crate::core_world::{config, start};

/// Control: measure the whole decision as phase1: the other phases of the engine are 0.
#[test]
fn the_phases_of_a_cycle_sum_to_the_cycle() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    // Each look at the clock finds it a millisecond later.
    let looks = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&looks);
    let stopwatch = Box::new(move || Duration::from_millis(clock.fetch_add(1, Ordering::Relaxed)));
    let mut core = Control::new(config(), Box::new(Seeded::new(1)), metrics).measured_by(stopwatch);
    let mut now = start();
    core.poll(now);
    let outputs: Vec<Output> = core.drain_outputs().collect();
    let Some(Output::List { call, known }) = outputs.into_iter().next() else {
        panic!("no List is asked for")
    };
    let machines = (0..3).map(|n| reported(gpu(&format!("m{n}"), MachineState::Idle))).collect();
    core.handle(now, Input::listed(call, known, Ok(machines)));
    for _ in 0..4 {
        core.poll(now);
        now = now.after(Duration::from_secs(10));
    }
    assert_eq!(core.cycle(), 4);

    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let value = |line: &str| -> f64 { line.rsplit_once(' ').unwrap().1.parse().unwrap() };
    let cycles = text.lines().find(|line| line.starts_with("bigfleet_shard_cycle_duration_seconds_sum"));
    let phase = |line: &str| Some(line.split_once("_sum{phase=\"")?.1.split_once('"')?.0.to_owned());
    let phases: BTreeMap<String, f64> =
        text.lines().filter_map(|line| Some((phase(line)?, value(line)))).collect();
    let names: Vec<&str> = phases.keys().map(String::as_str).collect();
    assert_eq!(names, ["emit", "execute", "other", "phase1", "phase2", "phase3", "reconcile", "snapread"]);
    let all: f64 = phases.values().sum();
    assert!((all - value(cycles.unwrap())).abs() < 1e-9, "{all} of {cycles:?}");
    assert!(phases.values().all(|took| *took > 0.0), "{phases:?}");
    let counted = text.lines().filter(|line| line.contains("_phase_duration_seconds_count{"));
    assert!(counted.map(value).all(|count| (count - 4.0).abs() < 1e-9), "once a cycle each");
}
