//! Faults that were there once, each by what it did.

use std::time::Duration;

use bigfleet_shard::control::{Config, StuckAfter};
use bigfleet_types::{CapacityType, Machine, MachineState};

use crate::core_model::{Fault, Model, Op, cluster, gpu, id, need, priced};
use crate::core_world::{Blobs, World, config};

use MachineState::{Configured, Configuring, Creating, Idle, Speculative};

fn slots(n: usize) -> Vec<Machine> {
    let slot = |n| priced(gpu(&format!("s{n}"), Speculative), CapacityType::OnDemand, 1.0, 0.0);
    (0..n).map(slot).collect()
}

fn slow(machines: Vec<Machine>, seconds: u64) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(seconds));
    model
}

/// A provider whose reads lag behind its writes does not know a machine for a moment: it was removed at once, and another
/// one bought.
#[test]
fn one_get_that_knows_nothing_of_a_machine_removes_nothing() {
    for (machines, state, serves) in [
        (slots(3), Creating, "s0"),
        ((0..3).map(|n| gpu(&format!("s{n}"), Idle)).collect(), Configuring, "s0"),
    ] {
        let mut world = World::new(config(), slow(machines, 20));
        world.gets_unknown = 1;
        world.rollup("a", vec![need(10, 1)]);
        world.run(Duration::from_millis(400));
        assert_eq!((world.gets_unknown, world.state(serves)), (0, state));
        world.seconds(120);
        assert_eq!(world.state(serves), Configured);
        assert_eq!((world.calls(Op::Create).max(1), world.calls(Op::Configure)), (1, 1), "no second machine");
    }
}

/// A machine that is gone is gone at the second look, which comes soon.
#[test]
fn two_gets_that_know_nothing_of_a_machine_remove_it() {
    let mut world = World::new(config(), slow(slots(2), 20));
    world.rollup("a", vec![need(10, 1)]);
    assert_eq!(world.state("s0"), Creating);
    world.model.machines.remove(&id("s0"));
    world.seconds(2);
    assert!(world.core.machine(&id("s0")).is_none());
    assert_eq!(world.update_states("s0").last(), Some(&1), "its cluster hears of it");
    assert_eq!(world.state("s1"), Creating, "and has another one");
}

/// A look in between that finds it begins the count anew.
#[test]
fn gets_that_know_nothing_now_and_then_remove_nothing() {
    let mut world = World::new(config(), slow(slots(2), 60));
    world.rollup("a", vec![need(10, 1)]);
    for _ in 0..6 {
        world.gets_unknown = 1;
        // The slowest rhythm of Gets: at least one that knows, after the one that does not.
        world.seconds(20);
    }
    world.seconds(60);
    assert_eq!((world.state("s0"), world.calls(Op::Create)), (Configured, 1));
}

/// A List contradicts what has just settled, and the Get that is to decide knows nothing of the machine that the List
/// shows: the machine was removed at once. The next List decides.
#[test]
fn a_recheck_that_knows_nothing_of_a_listed_machine_removes_nothing() {
    let mut world = World::new(config(), slow(vec![gpu("m0", Idle)], 5));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(12);
    assert_eq!(world.state("m0"), Configured);
    world.lists = crate::core_world::Lists::Fixed(vec![crate::core_model::reported(gpu("m0", Idle))]);
    world.gets_unknown = 1;
    world.seconds(11);
    assert_eq!(world.gets_unknown, 0, "it was asked");
    world.lists = crate::core_world::Lists::Truth;
    assert_eq!(world.state("m0"), Configured);
    world.model.machines.remove(&id("m0"));
    world.seconds(11);
    assert!(world.core.machine(&id("m0")).is_none());
}

/// A Configure that hangs is sent again with a fresh blob; when that blob does not come, its request was kept for ever.
#[test]
fn a_request_of_a_reissued_configure_that_nobody_answers_is_forgotten() {
    let stuck = StuckAfter { configure: Duration::from_secs(60), ..StuckAfter::default() };
    for lost in ["time-out", "closed", "paused"] {
        let mut world = World::new(Config { stuck, ..config() }, slow(vec![gpu("m0", Idle)], 5));
        world.model.fault("m0", Op::Configure, Fault::Hang);
        world.rollup("a", vec![need(10, 1)]);
        world.seconds(10);
        assert_eq!((world.state("m0"), world.core.questions()), (Configuring, 0));
        world.blobs.insert(cluster("a"), Blobs::Silent);
        world.seconds(52);
        assert_eq!(world.core.questions(), 1, "{lost}: it is asked for a fresh blob");
        match lost {
            "closed" => world.disconnect("a"),
            "paused" => world.handle(bigfleet_shard::io::Input::Paused(true)),
            _ => world.seconds(31),
        }
        assert_eq!(world.core.questions(), 0, "{lost}");
        assert_eq!((world.state("m0"), world.core.in_flight().count()), (Configuring, 1), "{lost}");
        world.model.arrive(&id("m0"), Configured);
        world.seconds(11);
        assert_eq!((world.state("m0"), world.core.questions()), (Configured, 0), "{lost}");
    }
}
