//! A cycle in which nothing changed allocates nothing but its answer. A binary of its own, as it counts allocations.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

#[allow(dead_code, reason = "shared with the other tests, which need all of it")]
#[path = "it/dsl.rs"]
mod dsl;

use std::alloc::System;
use std::collections::BTreeMap;

use bigfleet_engine::{Decisions, Engine, Event, Phase, Policy};
use bigfleet_types::{MachineState, Operator, WhenUnsatisfiable, keys};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use dsl::{N, cluster, demand, machine, need, secs};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn plain() -> N {
    need(100, "cpu=40 memory=80Gi").floor("cpu=1 memory=2Gi").buckets(5, 6)
}

/// Plain Needs, gangs that fold, gangs that do not, spread and rows that stay unmet.
fn rows() -> Vec<N> {
    let spread = need(1000, "cpu=24")
        .floor("cpu=2")
        .buckets(9, 9)
        .group("spread")
        .spread(keys::ZONE, WhenUnsatisfiable::DoNotSchedule);
    let small = |n: usize| {
        need(1000, "cpu=2 memory=4Gi").floor("cpu=1").group(&format!("small-{n}")).requires(
            "rack",
            Operator::Same,
            &[],
        )
    };
    let large = |n: usize| {
        need(5000, "nvidia.com/gpu=24").floor("nvidia.com/gpu=8").group(&format!("large-{n}")).requires(
            "rack",
            Operator::Same,
            &[],
        )
    };
    let mut rows = vec![plain(), spread];
    rows.extend((0..20).map(small));
    rows.extend((0..3).map(large));
    rows.push(need(7, "example.com/none=3").group("never"));
    rows
}

/// Clusters that want all of it, over all tiers.
fn engine() -> Engine {
    let mut engine = Engine::new(Policy::default());
    for c in 0..6 {
        let name = format!("c{c}");
        for n in 0..6 {
            let bound = machine(&format!("{name}-{n}")).has("cpu=8 memory=16Gi").zone(&format!("z{}", n % 3));
            engine.apply(
                bound
                    .label("rack", &format!("r{n}"))
                    .price(1.0)
                    .configured(&name)
                    .of(&plain().build())
                    .event(),
            );
        }
        engine.apply(demand(&name, &rows()));
        engine.apply(Event::Heard(cluster(&name)));
    }
    for n in 0..60 {
        let state = if n % 2 == 0 { MachineState::Idle } else { MachineState::Speculative };
        let shape = if n % 3 == 0 { "cpu=64 nvidia.com/gpu=8" } else { "cpu=8 memory=16Gi" };
        let free = machine(&format!("free-{n}"))
            .has(shape)
            .zone(&format!("z{}", n % 3))
            .label("rack", &format!("r{}", n % 9));
        engine.apply(free.price(f64::from(n % 5)).state(state).event());
    }
    engine
}

/// What a decision allocates by phase, but for writing down the answer.
fn allocated(engine: &mut Engine, at: i64) -> (Decisions, BTreeMap<&'static str, usize>) {
    let mut counts = [0usize; Phase::ALL.len()];
    let mut region = Region::new(ALLOCATOR);
    let decisions = engine.decide_observed(secs(at), &mut |phase| {
        let change = region.change_and_reset();
        counts[Phase::ALL.iter().position(|known| *known == phase).unwrap()] +=
            change.allocations + change.reallocations;
    });
    let phases = Phase::ALL.iter().zip(counts).filter(|(phase, _)| **phase != Phase::Verdicts);
    (decisions, phases.map(|(phase, count)| (phase.name(), count)).collect())
}

/// One test, because the counter counts what other threads allocate too.
#[test]
fn a_steady_cycle_allocates_nothing_but_its_answer() {
    let mut engine = engine();
    engine.decide(secs(0));
    // The counter counts.
    engine.forget();
    let (_, allocations) = allocated(&mut engine, 0);
    assert!(allocations["phase1"] > 100, "{allocations:?}");

    for cycle in 1..3 {
        engine.decide(secs(cycle));
    }
    // What a shard hears all the time: the same again.
    engine.apply(demand("c0", &rows()));
    engine.apply(Event::Heard(cluster("c0")));
    let (decisions, allocations) = allocated(&mut engine, 10);
    assert!(decisions.actions.len() > 10 && !decisions.shortfalls.is_empty(), "the cycle has work to do");
    assert!(allocations.values().all(|count| *count == 0), "{allocations:?}");
    assert_eq!(engine.decide_afresh(secs(10)), decisions);
    let (_, allocations) = allocated(&mut engine, 11);
    assert!(allocations.values().all(|count| *count == 0), "{allocations:?}");
}
