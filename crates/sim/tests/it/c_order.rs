//! The same seed gives the same story, whatever the order in which things of one moment arrive and however requests
//! become rows.

use bigfleet_sim::closed_loop::fleet::Base;
use bigfleet_sim::closed_loop::{ClosedLoop, History, Knobs, Through};
use bigfleet_types::MachineState;

/// A story in which much happens: machines get lost and break, workloads grow and shrink.
fn story(knobs: Knobs) -> History {
    let (machines, clusters) = Base { serving: [22, 4], ..Base::default() }.build().unwrap();
    let mut world = ClosedLoop::new(knobs, machines, clusters);
    world
        .run(120, |world, cycle| {
            let nth = |world: &ClosedLoop, n: usize| {
                let configured = |m: &&bigfleet_types::Machine| m.state == MachineState::Configured;
                world.machines().filter(configured).nth(n).map(|machine| machine.id.clone())
            };
            let step = usize::try_from(cycle).unwrap();
            if cycle.is_multiple_of(7)
                && let Some(id) = nth(world, step % 60)
            {
                world.provider().lose(&id);
            }
            if cycle.is_multiple_of(11)
                && let Some(id) = nth(world, (step * 5) % 60)
            {
                world.provider().fail(&id);
            }
            if cycle.is_multiple_of(13) {
                world.cluster_mut("cluster-00").unwrap().resize("tiny", (step * 37) % 260);
                world.cluster_mut("cluster-01").unwrap().resize("gang-1", step % 6);
            }
        })
        .unwrap();
    world.history().clone()
}

fn hard() -> Knobs {
    Knobs { drawn_out: 3, list_lag: 2, lost_rollups: 25, doubled_rollups: 25, ..Knobs::default() }.dwelling(2)
}

#[test]
fn c_two_runs_are_equal() {
    let first = story(hard());
    assert!(first.0.iter().filter(|cycle| !cycle.actions.is_empty()).count() > 30, "much happens");
    assert_eq!(first, story(hard()));
    assert_ne!(first, story(Knobs { seed: 1, ..hard() }), "the seed matters");
}

#[test]
fn c_order_of_arrival_changes_nothing() {
    let first = story(hard());
    for order in 1..6 {
        assert_eq!(first, story(Knobs { order, ..hard() }), "order {order}");
    }
}

#[test]
fn c_rows_are_the_operators_whichever_way() {
    assert_eq!(story(hard()), story(Knobs { through: Through::Multiplied, ..hard() }));
}

#[test]
fn c_an_engine_that_was_told_everything_anew_decides_the_same() {
    story(Knobs { audit_every: 1, drawn_arrivals: true, ..hard() });
    story(Knobs { audit_every: 1, drawn_arrivals: true, ..Knobs::default() });
}
