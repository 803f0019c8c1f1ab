//! How much a decision looks at: no more than what may have changed, and every look counts.

use bigfleet_engine::{Effort, Engine, Policy};
use bigfleet_types::{CapacityType, MachineState};

use crate::dsl::{M, demand, engine, gpu, gpu_need, gpus, machine, need, reclaim_after, secs};

fn effort(engine: &mut Engine, at: i64) -> (u64, u64) {
    engine.decide(secs(at));
    let Effort { needs, machines } = engine.effort();
    (needs, machines)
}

/// A row that its own machines serve rests while its neighbours come and go.
#[test]
fn a_served_need_has_no_turn_when_a_neighbour_comes() {
    let rests = gpu_need(5, 3);
    let fleet = gpus(3, "c", |m| m.configured("a").of(&rests.build()));
    let mut engine = engine(Policy::default(), &fleet, &[("a", &[rests.clone()])]);
    assert_eq!(effort(&mut engine, 0), (1, 3));
    assert_eq!(effort(&mut engine, 1), (0, 0), "nothing happened");
    engine.apply(demand("a", &[rests.clone(), gpu_need(5, 1).group("new")]));
    assert_eq!(effort(&mut engine, 2), (1, 0));
    engine.apply(gpu("far").configured("b").event());
    // The new one is short of a machine, and so looks again every time.
    assert_eq!(effort(&mut engine, 3), (1, 0));
}

#[test]
fn what_waits_to_go_is_looked_at_when_the_time_comes() {
    let mut fleet = gpus(3, "c", |m| m.configured("a"));
    fleet.extend(gpus(2, "i", |m| m.paid(CapacityType::Spot).idle_since(secs(0))));
    let mut engine = engine(reclaim_after(60), &fleet, &[("a", &[])]);
    // Three that nobody claims are found, and three wait; of the holds the first one tells that none is over.
    assert_eq!(effort(&mut engine, 0), (0, 3 + 3 + 1));
    assert_eq!(effort(&mut engine, 59), (0, 0));
    assert_eq!(effort(&mut engine, 60), (0, 3 + 2));
    assert_eq!(effort(&mut engine, 61), (0, 0));
}

#[test]
fn victims_that_were_looked_at_count() {
    let batch = need(0, "cpu=40 memory=12Gi");
    let held = |id: String, size| machine(&id).has(size).configured("batch").of(&batch.build());
    let fleet: Vec<M> = (0..10)
        .map(|i| held(format!("c{i}"), "cpu=4"))
        .chain((0..3).map(|i| held(format!("m{i}"), "memory=4Gi")))
        .collect();
    let want = need(9, "cpu=8 memory=4Gi");
    let mut engine = engine(Policy::default(), &fleet, &[("batch", &[batch]), ("x", &[want])]);
    let phase2 = 8;
    assert_eq!(effort(&mut engine, 0), (2, 13 + phase2));
    engine.apply(gpu("other").state(MachineState::Idle).event());
    assert_eq!(effort(&mut engine, 1), (1, 3 + phase2));
}
