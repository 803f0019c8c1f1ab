//! How much a decision looks at: no more than what may have changed, and every look counts.

use bigfleet_engine::{Effort, Engine, Policy};
use bigfleet_types::{CapacityType, MachineState, Operator, WhenUnsatisfiable, keys};

use crate::dsl::{M, demand, engine, gpu, gpu_need, gpus, machine, need, reclaim_after, secs};

fn effort(engine: &mut Engine, at: i64) -> (u64, u64) {
    engine.decide(secs(at));
    let Effort { needs, machines } = engine.effort();
    (needs, machines)
}

/// A row that its own machines serve, or that wants nothing, rests while its neighbours come and go.
#[test]
fn a_served_need_has_no_turn_when_a_neighbour_comes() {
    let (rests, nothing) = (gpu_need(5, 3), need(5, "").group("nothing"));
    let fleet = gpus(3, "c", |m| m.configured("a").of(&rests.build()));
    let mut engine = engine(Policy::default(), &fleet, &[("a", &[rests.clone(), nothing.clone()])]);
    assert_eq!(effort(&mut engine, 0), (2, 3));
    assert_eq!(effort(&mut engine, 1), (0, 0), "nothing happened");
    engine.apply(demand("a", &[rests, nothing, gpu_need(5, 1).group("new")]));
    assert_eq!(effort(&mut engine, 2), (1, 0));
    engine.apply(gpu("far").configured("b").event());
    // The new one is short of a machine, and so looks again every time.
    assert_eq!(effort(&mut engine, 3), (1, 0));
}

/// A row that wants something else, and keeps what it has, has no turn, nor has a neighbour that leans on its machines;
/// what it wants now is said all the same.
#[test]
fn a_need_that_changes_within_its_machines_has_no_turn() {
    let (changes, leans) = (need(5, "nvidia.com/gpu=20"), gpu_need(5, 1).group("leans"));
    let fleet = gpus(4, "c", |m| m.configured("a").of(&changes.build()));
    let mut engine = engine(Policy::default(), &fleet, &[("a", &[changes, leans.clone()])]);
    engine.decide(secs(0));
    assert_eq!(engine.effort().needs, 2);
    for (amount, turns) in [(18, 0), (24, 0), (17, 0), (16, 2), (15, 0), (17, 2), (8, 2), (0, 2), (1, 2)] {
        let wants = need(5, &format!("nvidia.com/gpu={amount}"));
        engine.apply(demand("a", &[wants.clone(), leans.clone()]));
        let decisions = engine.decide(secs(0));
        assert_eq!(engine.effort().needs, turns, "{amount}");
        let verdict =
            decisions.verdicts.iter().find(|verdict| verdict.need.group == wants.build().group).unwrap();
        assert_eq!(verdict.need.aggregate, wants.build().aggregate);
        assert_eq!((verdict.satisfied, verdict.claimed), (true, u32::div_ceil(amount, 8)), "{amount}");
        assert_eq!(decisions, engine.decide_afresh(secs(0)));
    }
}

#[test]
fn what_waits_to_go_is_looked_at_when_the_time_comes() {
    let mut fleet = gpus(3, "c", |m| m.configured("a"));
    fleet.extend(gpus(2, "i", |m| m.paid(CapacityType::Spot).idle_since(secs(0))));
    let mut engine = engine(reclaim_after(60), &fleet, &[("a", &[])]);
    // Three that nobody claims are found, and the first of them tells that none is due; so does the first of the holds.
    assert_eq!(effort(&mut engine, 0), (0, 3 + 1));
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

/// Needs of one profile go on where the one before stopped, however many pools there are.
#[test]
fn needs_of_one_profile_do_not_each_look_at_every_pool() {
    for spread in [false, true] {
        let free = |i: usize| gpu(&format!("m{i:03}")).zone("z").label("shelf", &format!("{i:03}"));
        let fleet: Vec<M> = (0..100).map(free).collect();
        let want = |i: usize| {
            let want = gpu_need(0, 1).group(&format!("{i}"));
            if spread { want.spread(keys::ZONE, WhenUnsatisfiable::DoNotSchedule) } else { want }
        };
        let shelves = need(0, "").requires("shelf", Operator::Exists, &[]);
        let rows: Vec<_> = (0..100).map(want).chain([shelves]).collect();
        let mut engine = engine(Policy::default(), &fleet, &[("a", &rows)]);
        let (needs, machines) = effort(&mut engine, 0);
        assert_eq!(needs, 101);
        assert!(machines < 700, "{machines} looks at 100 machines");
    }
}
