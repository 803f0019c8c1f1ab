//! A decision that builds on the one before is the one that a fresh pass takes.

use bigfleet_engine::{Engine, Event, Policy};
use bigfleet_types::{MachineId, MachineState, Operator};
use proptest::prelude::*;

use crate::dsl::{cluster, demand, machine, need, secs};

#[path = "../../../decide/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../../decide/tests/fuzz/sequence.rs"]
mod sequence;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// P8: after every event of a random sequence.
    #[test]
    fn p08_remembering_is_deciding_afresh(bytes in prop::collection::vec(any::<u8>(), 200..1600)) {
        sequence::run(&bytes);
    }
}

/// What a gang acquires before it moves to another domain is in its hands when the gangs behind it look, and free when
/// it moves no more: they are told so, though no acquisition of the decision before shows it.
#[test]
fn what_a_moving_gang_gave_up_is_told_when_it_stays() {
    sequence::run(include_bytes!("../../../decide/tests/corpus/sequence/moving"));
}

/// A served gang keeps its machines whatever is free; what it is told of that follows the machines, and those in front
/// of it who take them.
#[test]
fn a_served_gang_is_told_what_becomes_free() {
    let gang = need(100, "cpu=16").floor("cpu=8").group("g").requires("rack", Operator::Same, &[]);
    let ahead = need(1000, "cpu=8").floor("cpu=8");
    let behind = need(0, "cpu=8").floor("cpu=8");
    let rack = |id: &str, rack: &str| machine(id).has("cpu=8").label("rack", rack);
    let free = |id: &str, at: &str| rack(id, at).state(MachineState::Idle);
    let own = |id: &str| rack(id, "r1").configured("a").of(&gang.build());
    let steps: Vec<Vec<Event>> = vec![
        vec![own("m1").event(), own("m2").event(), demand("a", &[gang.clone()]), Event::Heard(cluster("a"))],
        vec![free("m3", "r2").event()],
        vec![free("m4", "r3").event(), free("m5", "r3").event()],
        vec![demand("b", &[ahead.clone()])],
        vec![demand("b", &[behind])],
        vec![Event::Removed(MachineId::trusted("m4"))],
    ];
    let mut engine = Engine::new(Policy::default());
    let mut told = Vec::new();
    let mut all: Vec<Event> = Vec::new();
    for events in steps {
        all.extend(events.iter().cloned());
        events.into_iter().for_each(|event| engine.apply(event));
        let decisions = engine.decide(secs(1));
        let mut afresh = Engine::new(Policy::default());
        all.iter().cloned().for_each(|event| afresh.apply(event));
        assert_eq!(decisions, afresh.decide(secs(1)));
        let verdict = decisions.verdicts.iter().find(|v| v.key.group.as_str() == "g").unwrap();
        let candidates = &verdict.same.as_ref().unwrap().candidates;
        told.push(
            candidates.iter().map(|c| format!("{} {}", c.domain, c.per_mille)).collect::<Vec<_>>().join(", "),
        );
    }
    assert_eq!(
        told,
        [
            "r1 1000",
            "r1 1000, r2 500",
            "r1 1000, r3 1000, r2 500",
            "r1 1000, r3 1000",
            "r1 1000, r3 1000, r2 500",
            "r1 1000, r2 500, r3 500",
        ]
    );
}
