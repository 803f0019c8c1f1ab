//! Audits of decisions, without threads and files. Every test of the core audits every decision: see `core_world`.

use std::time::Duration;

use bigfleet_shard::control::Config;
use bigfleet_shard::io::{Input, Output};
use bigfleet_types::MachineState;

use crate::core_model::{Model, gpu, need};
use crate::core_world::{World, config};

fn idle(machines: usize) -> Model {
    Model::with((0..machines).map(|n| gpu(&format!("m{n}"), MachineState::Idle)))
}

fn counted(world: &World, name: &str) -> f64 {
    world.metric(&format!("decision_{name}_total"))
}

/// A roll-up that the engine overlooks is decided on once an audit has noticed, and not before.
#[test]
fn what_was_overlooked_is_noticed_and_everything_looked_at_anew() {
    let mut world = World::new(Config { overlook: true, decision_audit_cycles: 4, ..config() }, idle(2));
    world.faulty = true;
    world.connect("a");
    world.run(Duration::from_secs(1));
    assert_eq!(world.core.cycle(), 1);
    world.rollup("a", vec![need(1000, 1)]);
    world.run(Duration::from_secs(11));
    assert_eq!((world.count(MachineState::Idle), counted(&world, "divergences")), (2, 0.0), "nothing seen");

    world.run(Duration::from_secs(40));
    assert_eq!(world.count(MachineState::Configured), 1);
    let [divergence] = &world.divergences[..] else { panic!("{:#?}", world.divergences) };
    let told = divergence.first.join("\n");
    for part in ["machine m0: not claimed, full pass claimed", "action on m0: nothing, full pass Bootstrap a"]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(told.contains("verdict of a "), "{told}");
    assert_eq!((divergence.rows, &divergence.kept), (3, &None), "{told}");
    assert_eq!(counted(&world, "divergences"), 1.0);
    let audits = counted(&world, "audits");
    assert!(audits >= 2.0, "{audits}: they go on");
}

/// An audit that dies is told and counted, and the next one comes.
#[test]
fn an_audit_without_an_answer_is_no_end() {
    let mut world = World::new(config(), idle(1));
    world.connect("a");
    world.run(Duration::from_secs(1));
    let before = counted(&world, "audits");
    world.handle(Input::DecisionAudited { cycle: 1, result: Err("it panicked".to_owned()) });
    assert_eq!((counted(&world, "audits"), counted(&world, "audits_failed")), (before, 1.0));
    world.rollup("a", vec![need(1000, 1)]);
    world.run(Duration::from_secs(30));
    assert!(counted(&world, "audits") > before);
}

/// Nothing asks for a second audit while one is under way.
#[test]
fn one_audit_at_a_time() {
    let mut world = World::new(config(), idle(1));
    world.connect("a");
    let mut asked = 0;
    for round in 0..5 {
        world.core.poll(world.now);
        let outputs: Vec<Output> = world.core.drain_outputs().collect();
        for output in outputs {
            match output {
                Output::AuditDecision(_) => asked += 1,
                Output::List { call, known } => {
                    let result = Ok(world.model.records());
                    world.handle(Input::listed(call, known, result));
                }
                _ => {}
            }
        }
        let session = world.sessions.values().next().copied().unwrap();
        let rows = Ok(vec![need(1000 + round, 1)].into());
        world.handle(Input::Rollup { session, timestamp_unix_nanos: 0, rows });
        world.now = world.now.after(Duration::from_secs(61));
    }
    assert!(world.core.cycle() > 3);
    assert_eq!(asked, 1);
}
