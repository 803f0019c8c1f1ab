//! Random interleavings: answers late, lost, refused or failing; Lists that lag; operators that come and go; kills.
//! `World` checks the invariants after every event; here is what must hold in the end.

use std::time::Duration;

use bigfleet_shard::io::{CallError, Input};
use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{CapacityType, MachineState};

use crate::core_model::{Fault, Model, Op, ambiguous, cluster, gpu, need, priced};
use crate::core_world::{Blobs, Lists, World, config};

pub(crate) const CLUSTERS: [&str; 3] = ["a", "b", "c"];

pub(crate) fn fleet() -> Model {
    let mut machines: Vec<_> = (0..12).map(|n| gpu(&format!("m{n:02}"), MachineState::Idle)).collect();
    let slot =
        |n| priced(gpu(&format!("s{n:02}"), MachineState::Speculative), CapacityType::OnDemand, 1.0, 0.0);
    machines.extend((0..12).map(slot));
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(7));
    model
}

fn fault(chance: &mut Seeded) -> Fault {
    match chance.below(7) {
        0 => Fault::Refuse(CallError::Rejected("no".to_owned())),
        1 => Fault::Refuse(ambiguous(true)),
        2 => Fault::Refuse(CallError::Exhausted("none left".to_owned())),
        3 => Fault::Refuse(CallError::Fenced("stale".to_owned())),
        4 => Fault::Fail,
        _ => Fault::LoseAck,
    }
}

pub(crate) fn disturb(world: &mut World, chance: &mut Seeded) {
    let name = CLUSTERS[usize::try_from(chance.below(3)).unwrap()];
    match chance.below(12) {
        0..=3 => {
            let units = i64::try_from(chance.below(9)).unwrap();
            let rows = if units == 0 { Vec::new() } else { vec![need(1000, units)] };
            world.rollup(name, rows);
        }
        4 if world.sessions.contains_key(&cluster(name)) => world.disconnect(name),
        5 => {
            world.connect(name);
        }
        6 => {
            let blobs = [Blobs::Give, Blobs::Silent, Blobs::Refuse, Blobs::GiveFor(Duration::from_secs(1))];
            let blobs = blobs[usize::try_from(chance.below(4)).unwrap()];
            world.blobs.insert(cluster(name), blobs);
        }
        7 => {
            world.lists = match chance.below(3) {
                0 => Lists::Truth,
                1 => Lists::Lag(Duration::from_secs(chance.below(30))),
                _ => Lists::Fail,
            };
        }
        8 => world.gets_fail = chance.below(3) == 0,
        9 => world.handle(Input::Paused(chance.below(4) == 0)),
        _ => {
            let n = chance.below(12);
            let machine = if chance.below(2) == 0 { format!("m{n:02}") } else { format!("s{n:02}") };
            let op = [Op::Create, Op::Configure, Op::Drain, Op::Delete];
            let op = op[usize::try_from(chance.below(4)).unwrap()];
            world.model.fault(&machine, op, fault(chance));
        }
    }
    world.run(Duration::from_millis(chance.below(15_000)));
}

pub(crate) fn calm(world: &mut World) {
    world.chaos = None;
    world.lists = Lists::Truth;
    world.gets_fail = false;
    world.model.faults.clear();
    world.blobs.clear();
    world.handle(Input::Paused(false));
}

fn scenario(seed: u64) {
    let mut chance = Seeded::new(seed);
    let mut world = World::new(config(), fleet());
    world.chaos = Some(Seeded::new(seed + 1));
    for _ in 0..60 {
        disturb(&mut world, &mut chance);
        if chance.below(25) == 0 {
            world = world.restart(config());
            let before = world.calls(Op::Drain);
            world.chaos = Some(Seeded::new(chance.next_u64()));
            world.seconds(30);
            assert_eq!(world.calls(Op::Drain), before, "seed {seed}: a Reclaim before the first roll-up");
        }
    }
    // A last kill lifts a latch that the faults may have closed, as in life.
    calm(&mut world);
    world = world.restart(config());
    for name in CLUSTERS {
        world.rollup(name, vec![need(1000, 3)]);
    }
    world.seconds(3600);
    for machine in world.core.machines() {
        assert!(!machine.state.is_transitional(), "seed {seed}: {} is {}", machine.id, machine.state);
        assert_eq!(Some(machine), world.model.machines.get(&machine.id), "seed {seed}");
    }
    assert_eq!(world.core.in_flight().count(), 0, "seed {seed}");
    let usable = world.core.machines().filter(|m| m.state != MachineState::Failed).count();
    let wanted = 9.min(usable);
    assert_eq!(world.count(MachineState::Configured), wanted, "seed {seed}: demand is met, no more");
}

#[test]
fn random_faults_break_no_invariant_and_everything_converges() {
    for seed in 0..12 {
        scenario(seed * 1000);
    }
}

/// Equal inputs, equal outputs: the core reads no clock, no chance of its own and no random order.
#[test]
fn equal_runs_are_equal() {
    let run = || {
        let mut chance = Seeded::new(99);
        let mut world = World::new(config(), fleet());
        world.chaos = Some(Seeded::new(5));
        for _ in 0..40 {
            disturb(&mut world, &mut chance);
        }
        let frames = format!("{:?}", world.frames);
        (frames, world.model.calls, world.audit)
    };
    assert!(run() == run());
}
