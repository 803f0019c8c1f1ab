//! C1-C7 on the base fleet: two clusters with small pods, services and gangs.

use bigfleet_sim::closed_loop::fleet::{Base, Pool, gang};
use bigfleet_sim::closed_loop::history::{churn, count, lacks_the_same};
use bigfleet_sim::closed_loop::{ClosedLoop, Cluster, Knobs, Requests, Through, Workload};
use bigfleet_types::MachineState;

use crate::c_golden::golden;

/// Runs a fleet without events.
fn run(base: &Base, knobs: Knobs, cycles: u32) -> ClosedLoop {
    let (machines, clusters) = base.build().unwrap();
    let mut world = ClosedLoop::new(knobs, machines, clusters);
    world.idle(cycles).unwrap();
    world
}

fn configured(world: &ClosedLoop) -> usize {
    world.machines().filter(|machine| machine.state == MachineState::Configured).count()
}

/// Whether the last cycles did nothing and missed nothing, with nearly all pods in their places.
pub(crate) fn rests(world: &ClosedLoop, window: usize) {
    let window = world.history().last(window);
    assert_eq!(churn(window), 0, "{:?}", window.iter().find(|cycle| !cycle.actions.is_empty()));
    assert!(window.iter().all(|cycle| cycle.shortfalls.is_empty()), "{:?}", window[0].shortfalls);
    assert!(window.iter().all(|cycle| cycle.bound * 100 >= cycle.pods * 99), "{:?}", window[0]);
}

#[test]
fn c01_steady() {
    let hard = Knobs { drawn_out: 2, list_lag: 2, lost_rollups: 20, doubled_rollups: 20, ..Knobs::default() };
    let knobs = [
        Knobs::default(),
        Knobs { drawn_arrivals: true, seed: 1, ..Knobs::default() },
        Knobs { list_lag: 3, ..Knobs::default() }.dwelling(3),
        hard.clone().dwelling(2),
        Knobs { through: Through::Multiplied, order: 9, ..hard }.dwelling(5),
    ];
    for (n, knobs) in knobs.into_iter().enumerate() {
        for stamped in [true, false] {
            let world = run(&Base { serving: [22, 4], stamped, ..Base::default() }, knobs.clone(), 300);
            rests(&world, 100);
            assert_eq!(configured(&world), 74);
            // Two machines too many and one too few in each cluster: no more than that ever moves.
            let all = &world.history().0;
            assert_eq!((count(all, "Reclaim"), count(all, "Bootstrap")), (4, 2), "knobs {n}");
            assert_eq!(churn(all), 6);
            if n == 0 && stamped {
                golden("c01-steady", &world);
            }
        }
    }
}

#[test]
fn c02_bare_pods_churn_detector() {
    let base = Base { gangs: Vec::new(), serving: [23, 5], ..Base::default() };
    let bare = run(&base, Knobs { managed: false, ..Knobs::default() }, 80);
    let last = bare.history().0.last().unwrap();
    assert!(last.destroyed >= 120, "only {} pods were destroyed", last.destroyed);
    let all = &bare.history().0;
    assert!(count(all, "Reclaim") > 12);
    assert!(all.iter().filter(|cycle| count(std::slice::from_ref(*cycle), "Reclaim") > 0).count() >= 5);
    golden("c02-bare-pods", &bare);

    let managed = run(&base, Knobs::default(), 80);
    rests(&managed, 40);
    let last = managed.history().0.last().unwrap();
    assert_eq!((last.destroyed, last.bound, last.pods), (0, 500, 500));
    assert_eq!(configured(&managed), 50);
}

#[test]
fn c03_pending_only_churn_detector() {
    let pending = run(&Base::default(), Knobs { requests: Requests::PendingOnly, ..Knobs::default() }, 120);
    let window = pending.history().last(60);
    assert!(count(window, "Reclaim") >= 100 && count(window, "Bootstrap") >= 100, "{}", churn(window));

    let per_pod = run(&Base::default(), Knobs::default(), 120);
    rests(&per_pod, 60);
    assert_eq!(churn(&per_pod.history().0), 0, "machines and demand matched from the beginning");
}

#[test]
fn c04_scattered_racks() {
    for stamped in [true, false] {
        for dwell in [0, 3] {
            let base = Base { block: 0, scattered: 12, stamped, ..Base::default() };
            let world = run(&base, Knobs::default().dwelling(dwell), 300);
            let window = world.history().last(100);
            assert_eq!(churn(window), 0);
            assert!(lacks_the_same(window));
            assert!(window[0].shortfalls.len() >= 2, "gangs of both clusters lack machines");
            let foolish: usize = world.history().0.iter().map(|cycle| cycle.foolish_reclaims).sum();
            assert_eq!((world.history().last(100).iter().map(|c| c.foolish_reclaims).sum::<usize>()), 0);
            assert!(foolish <= 24, "{foolish} reclaims of machines that a shortfall wanted");
        }
    }
}

#[test]
fn c05_a_gang_larger_than_any_rack() {
    for dwell in [0, 2, 5] {
        let gangs = vec![gang("big", 8), gang("one", 4), gang("two", 4)];
        let world = run(&Base { gangs, ..Base::default() }, Knobs::default().dwelling(dwell), 300);
        let window = world.history().last(100);
        assert_eq!(churn(window), 0);
        assert!(lacks_the_same(window));
        assert_eq!(window[0].shortfalls.len(), 2, "the big gang of each cluster");
        for cluster in world.clusters() {
            assert_eq!(cluster.pods_of("big"), (4, 8));
            for (name, pods) in [("one", 4), ("two", 4), ("tiny", 200), ("service", 50)] {
                assert_eq!(cluster.pods_of(name), (pods, pods), "{name}");
            }
        }
        if dwell == 0 {
            golden("c05-big-gang", &world);
        }
    }
}

#[test]
fn c06_gangs_smaller_than_a_machine() {
    let request = [("cpu", "2"), ("memory", "16Gi")];
    let small = |n: usize| {
        Workload::new(&format!("small-{n:02}"), "r6i.2xlarge", &request, 5000, 4)
            .penalties("8192", "65536")
            .gang()
    };
    for (dwell, stamped) in [(0, true), (0, false), (3, true), (3, false)] {
        let mut pool = Pool::holding(&small(0), 10).racks_of(2);
        let mut clusters = Vec::new();
        for name in ["cluster-00", "cluster-01"] {
            for n in 0..6 {
                let stamps =
                    if stamped { small(2 * n).row_of_one().unwrap() } else { small(0).row_of_one().unwrap() };
                pool.configured(name, 1, &bigfleet_types::Attribution::of(&stamps));
            }
            clusters.push(Cluster::new(name, (0..12).map(small)).unwrap());
        }
        pool.idle(2);
        pool.speculative(2);
        let mut world = ClosedLoop::new(Knobs::default().dwelling(dwell), pool.machines(), clusters);
        world.idle(300).unwrap();
        rests(&world, 100);
        assert_eq!(configured(&world), 12);
    }
}

#[test]
fn c07_supply_exhaustion() {
    for dwell in [0, 4] {
        let base = Base::default();
        let (machines, clusters) = base.build().unwrap();
        let mut world = ClosedLoop::new(Knobs::default().dwelling(dwell), machines, clusters);
        world
            .run(200, |world, cycle| {
                if cycle == 20 {
                    // 5 machines of each kind are to spare, 30 are wanted.
                    for name in ["cluster-00", "cluster-01"] {
                        world.cluster_mut(name).unwrap().resize("tiny", 350);
                    }
                }
            })
            .unwrap();
        let window = world.history().last(100);
        assert_eq!(churn(window), 0);
        assert!(lacks_the_same(window));
        assert_eq!(configured(&world), 74 + 5, "all that there is serves");
        let from = world.history().from(20);
        assert_eq!((count(from, "Reclaim"), count(from, "Preempt")), (0, 0));
        assert_eq!(bigfleet_sim::closed_loop::history::acquired(from).len(), 5);
    }
}
