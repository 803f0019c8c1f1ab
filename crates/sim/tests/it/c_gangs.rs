//! C9-C13: gangs whose machines take their time, get lost, or have neighbours.

use std::collections::BTreeSet;

use bigfleet_sim::closed_loop::fleet::{Pool, gang};
use bigfleet_sim::closed_loop::history::{acquired, churn, count};
use bigfleet_sim::closed_loop::{ClosedLoop, Cluster, Knobs, Workload, rack_of};
use bigfleet_types::{MachineId, MachineState};

use crate::c_golden::golden;

fn whole(n: usize) -> Workload {
    let request = [("cpu", "64"), ("memory", "256Gi"), ("nvidia.com/gpu", "8")];
    Workload::new(&format!("gang-{n}"), "p5.48xlarge", &request, 5000, 3).penalties("8192", "65536").gang()
}

#[test]
fn c09_gang_dwell() {
    let clusters = || {
        let cluster = |name| Cluster::new(name, (0..4).map(whole)).unwrap();
        [cluster("cluster-00"), cluster("cluster-01")]
    };
    for creating in [0, 3] {
        let mut pool = Pool::holding(&whole(0), 1).racks_of(3);
        for name in ["cluster-00", "cluster-01"] {
            (0..4).for_each(|n| pool.serving(name, &whole(n), 3));
        }
        pool.idle(18);
        pool.speculative(36);
        let knobs = Knobs { configuring: 2, creating, ..Knobs::default() };
        let mut world = ClosedLoop::new(knobs, pool.machines(), clusters());
        world.idle(120).unwrap();
        assert_eq!(churn(world.history().last(60)), 0);
        assert_eq!(churn(&world.history().0), 0, "every gang had what it wanted from the beginning");
    }
    for (dwell, at_once) in [(0, true), (2, false)] {
        let mut pool = Pool::holding(&whole(0), 1).racks_of(3);
        pool.idle(24);
        pool.speculative(24);
        let mut world =
            ClosedLoop::new(Knobs { configuring: dwell, ..Knobs::default() }, pool.machines(), clusters());
        world.idle(1).unwrap();
        let now = world.history().0[0].fleet.by_state.get("Configured").copied().unwrap_or(0);
        assert_eq!(now > 0, at_once, "{now} machines are Configured after one cycle");
        world.idle(119).unwrap();
        assert_eq!(world.history().0.last().unwrap().fleet.by_state["Configured"], 24);
        assert_eq!(acquired(&world.history().0).len(), 24);
        assert_eq!(churn(world.history().last(60)), 0);
        if dwell == 2 {
            golden("c09-gang-dwell", &world);
        }
    }
}

/// One gang of seven in the first of its racks, with nothing Idle.
fn runway(knobs: Knobs, speculative: usize, rack: usize) -> ClosedLoop {
    let gang = gang("gang", 7);
    let mut pool = Pool::holding(&gang, 1).racks_of(rack);
    pool.serving("cluster-00", &gang, 7);
    pool.speculative(speculative);
    ClosedLoop::new(knobs, pool.machines(), [Cluster::new("cluster-00", [gang]).unwrap()])
}

/// Loses the Configured machine with the smallest id, if there is one.
fn lose_one(world: &mut ClosedLoop) -> bool {
    let found: Option<MachineId> = world
        .machines()
        .find(|machine| machine.state == MachineState::Configured)
        .map(|machine| machine.id.clone());
    if let Some(id) = &found {
        world.provider().lose(id);
    }
    found.is_some()
}

#[test]
fn c10_one_loss_one_replacement_for_every_dwell() {
    for dwell in [0, 1, 2, 3, 5] {
        for (configuring, list_lag) in [(0, 0), (dwell, 0), (2, 2)] {
            let knobs = Knobs { creating: dwell, configuring, list_lag, ..Knobs::default() };
            let mut world = runway(knobs, 200, 47);
            world
                .run(120, |world, cycle| {
                    if cycle == 30 {
                        assert!(lose_one(world));
                    }
                })
                .unwrap();
            let after = world.history().from(30);
            assert_eq!(acquired(after).len(), 1, "dwell {dwell}");
            assert_eq!(count(after, "Provision"), 1, "dwell {dwell}");
            assert_eq!(count(&world.history().0, "Reclaim"), 0);
            assert!(world.history().0.last().unwrap().shortfalls.is_empty());
            assert_eq!(world.clusters().next().unwrap().pods(), (7, 7));
        }
    }
}

#[test]
fn c11_repeated_losses_one_replacement_each() {
    for (dwell, period) in [(0, 1), (2, 1), (4, 1), (4, 2), (4, 3)] {
        let mut world = runway(Knobs { creating: dwell, ..Knobs::default() }, 400, 407);
        let mut losses = 0;
        world
            .run(220, |world, cycle| {
                if (30..=190).contains(&cycle) && cycle % period == 0 {
                    losses += usize::from(lose_one(world));
                }
            })
            .unwrap();
        let all = &world.history().0;
        assert!(losses > 50, "{losses}");
        assert_eq!(acquired(all).len(), losses, "dwell {dwell}, period {period}");
        assert_eq!(count(all, "Provision"), losses, "dwell {dwell}, period {period}");
        assert_eq!(count(all, "Reclaim"), 0, "dwell {dwell}, period {period}");
        assert_eq!(world.clusters().next().unwrap().pods(), (7, 7));
    }
}

#[test]
fn c12_a_burst_of_losses() {
    for dwell in [0, 2, 4, 6] {
        let mut world = runway(Knobs { creating: dwell, ..Knobs::default() }, 400, 407);
        world
            .run(120, |world, cycle| {
                if cycle == 30 {
                    assert!((0..4).all(|_| lose_one(world)));
                }
            })
            .unwrap();
        assert_eq!(acquired(world.history().from(30)).len(), 4, "dwell {dwell}");
        assert_eq!(count(&world.history().0, "Provision"), 4, "dwell {dwell}");
        assert_eq!(count(&world.history().0, "Reclaim"), 0);
        assert_eq!(world.clusters().next().unwrap().pods(), (7, 7));
    }
}

#[test]
fn c13_a_gang_stays_beside_its_siblings() {
    for (dwell, drawn_arrivals, order) in [(0, false, 0), (0, true, 1), (3, true, 2), (3, false, 3)] {
        for seed in 0..4 {
            let gangs = [gang("a", 3), gang("b", 3), gang("c", 3)];
            let mut pool = Pool::holding(&gangs[0], 1).racks_of(6);
            // In the first rack a and b, in the second c and what is to spare.
            gangs.iter().for_each(|gang| pool.serving("cluster-00", gang, 3));
            pool.idle(3);
            let knobs = Knobs { drawn_arrivals, order, seed, ..Knobs::default() }.dwelling(dwell);
            let cluster = Cluster::new("cluster-00", gangs.clone()).unwrap();
            let mut world = ClosedLoop::new(knobs, pool.machines(), [cluster]);
            let racks = |world: &ClosedLoop, key: &str| -> BTreeSet<String> {
                let key = world.clusters().next().unwrap().key_of(key).unwrap();
                let group = Some(key.group.as_str().to_owned());
                let stamped =
                    |m: &&bigfleet_types::Machine| m.attribution.group.as_deref().map(str::to_owned) == group;
                world.machines().filter(stamped).map(|m| rack_of(m).unwrap().to_string()).collect()
            };
            let before: Vec<_> = ["a", "b", "c"].map(|name| racks(&world, name)).into();
            // A machine to spare comes and goes.
            let spare = world.machines().find(|m| m.state == MachineState::Idle).unwrap().id.clone();
            world
                .run(60, |world, cycle| {
                    if cycle == 20 {
                        world.provider().lose(&spare);
                    }
                })
                .unwrap();
            assert_eq!(churn(&world.history().0), 0);
            assert_eq!(before, ["a", "b", "c"].map(|name| racks(&world, name)));
        }
    }
}
