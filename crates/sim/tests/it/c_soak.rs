//! The soak: thousands of cycles of churn on three thousand machines.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bigfleet_sim::closed_loop::fleet::{Pool, gang};
use bigfleet_sim::closed_loop::history::churn;
use bigfleet_sim::closed_loop::{ClosedLoop, Cluster, Knobs, Through, Workload};
use bigfleet_types::chance::{Chance, Seeded};

/// Counts what a thread allocated and has not freed.
struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(by: i64) {
    // Threads that are about to end allocate, too; nobody asks them any more.
    let _gone = LIVE.try_with(|live| live.set(live.get() + by));
}

// SAFETY: every call goes to the system's allocator as it came; the count beside it allocates nothing.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1);
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Units of one machine each, for a cluster's only workload of the moment.
fn units(priority: i32, pods: usize) -> Workload {
    let unit = gang("units", 0);
    let request: Vec<(&str, &str)> =
        unit.request.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Workload::new(&format!("units-{priority}"), &unit.types[0], &request, priority, pods)
        .penalties("64", "64")
}

/// Runs the soak and gives the actions and the units that were asked for.
fn soak(cycles: u32, clusters: usize, knobs: Knobs) -> (usize, usize) {
    let mut pool = Pool::holding(&units(0, 1), 1);
    pool.idle(1000);
    pool.speculative(2000);
    let names: Vec<String> = (0..clusters).map(|number| format!("cluster-{number:02}")).collect();
    let empty = names.iter().map(|name| Cluster::new(name, []).unwrap());
    let knobs = Knobs { through: Through::Multiplied, seed: 0xCAFE_BABE, ..knobs };
    let quiet_after = 20 + 4 * (2 + knobs.slowest());
    let mut chance = Seeded::new(knobs.seed);
    let mut world = ClosedLoop::new(knobs, pool.machines(), empty);
    let (mut actions, mut asked, mut live) = (0, 0, Vec::new());
    for begun in (0..cycles).step_by(100) {
        world
            .run(100.min(cycles - begun), |world, cycle| {
                if cycle + quiet_after > cycles {
                    return;
                }
                let number = usize::try_from(chance.below(u64::try_from(clusters).unwrap())).unwrap();
                let cluster = world.cluster_mut(&names[number]).unwrap();
                let old: Vec<String> = cluster.workloads().map(|workload| workload.name.clone()).collect();
                if cycle.is_multiple_of(35) {
                    old.iter().for_each(|name| cluster.resize(name, 0));
                } else if cycle.is_multiple_of(5) {
                    let pods = 1 + usize::try_from(chance.below(50)).unwrap();
                    let priority = i32::try_from(chance.below(8)).unwrap() * 1000;
                    old.iter().for_each(|name| cluster.resize(name, 0));
                    cluster.scale(units(priority, pods)).unwrap();
                    asked += pods;
                }
            })
            .unwrap();
        actions += churn(&world.history().0);
        world.forget(0);
        live.push(LIVE.with(Cell::get));
    }
    world.idle(1).unwrap();
    let last = &world.history().0[0];
    assert_eq!((last.actions.len(), last.fleet.total, world.shard().machines().count()), (0, 3000, 3000));
    for state in ["Creating", "Configuring", "Draining", "Deleting", "Failed"] {
        assert_eq!(last.fleet.by_state.get(state), None, "{state}");
    }
    assert_eq!(last.bound, last.pods);
    // What lives after the first third is what lives at the end, but for what demand happens to be.
    if let [.., then, _, _] = live[..] {
        let settled = live[live.len() / 3].max(then);
        let end = live[live.len() - 1];
        assert!(end <= settled + settled / 10, "{settled} allocations lived after a third, {end} at the end");
    }
    (actions, asked)
}

#[test]
fn c_soak() {
    let cycles = u32::try_from(crate::c_knob("BIGFLEET_SIM_SOAK", 500)).unwrap();
    let clusters = if cycles > 10_000 { 50 } else { 30 };
    let hard = Knobs { drawn_out: 2, list_lag: 2, lost_rollups: 10, doubled_rollups: 10, ..Knobs::default() };
    let audited = Knobs { audit_every: 100, drawn_arrivals: true, ..Knobs::default() };
    for knobs in [audited.clone(), Knobs { audit_every: 100, drawn_arrivals: true, ..hard.dwelling(2) }] {
        let (actions, asked) = soak(cycles, clusters, knobs);
        println!("{cycles} cycles, {clusters} clusters: {actions} actions for {asked} units");
        // Each unit comes and goes: at most Provision, Bootstrap, Reclaim, and a Preempt and its replacement.
        assert!(actions <= 4 * asked + 100, "{actions} actions for {asked} units");
    }
}
