//! What a served gang is told of what is free. It is told anew only when that changed, and must not miss it.

use bigfleet_engine::{Engine, Event, Policy};
use bigfleet_types::{MachineId, MachineState, Operator};

use crate::dsl::{M, N, cluster, demand, machine, need, secs};

/// A gang of so many machines.
fn gang(size: i64) -> N {
    let one = need(100, "cpu=8").floor("cpu=8").group("g").requires("rack", Operator::Same, &[]);
    let one = one.requires("odd", Operator::DoesNotExist, &[]);
    one.aggregate(crate::dsl::vector("cpu=8").scale(size))
}

fn rack(id: &str, rack: &str) -> M {
    machine(id).has("cpu=8").label("rack", rack)
}

fn free(id: &str, at: &str) -> Event {
    rack(id, at).state(MachineState::Idle).event()
}

fn gone(id: &str) -> Event {
    Event::Removed(MachineId::trusted(id))
}

/// Cluster `a` with a gang of `size` that its machines in rack `r1` serve.
fn served(size: i64) -> Vec<Event> {
    let own = |n| rack(&format!("own-{n}"), "r1").configured("a").of(&gang(size).build()).event();
    (0..size).map(own).chain([demand("a", &[gang(size)]), Event::Heard(cluster("a"))]).collect()
}

/// What the gang is told after each step, which is what a fresh look at everything tells, too.
fn told(steps: Vec<Vec<Event>>) -> Vec<String> {
    let (mut engine, mut all) = (Engine::new(Policy::default()), Vec::new());
    let mut step = |events: Vec<Event>| {
        all.extend(events.iter().cloned());
        events.into_iter().for_each(|event| engine.apply(event));
        let decisions = engine.decide(secs(1));
        let mut afresh = Engine::new(Policy::default());
        all.iter().cloned().for_each(|event| afresh.apply(event));
        assert_eq!(decisions, afresh.decide(secs(1)));
        let verdict = decisions.verdicts.iter().find(|v| v.key.group.as_str() == "g").unwrap();
        let candidates = verdict.same.as_ref().unwrap().candidates.iter();
        candidates.map(|c| format!("{} {}", c.domain, c.per_mille)).collect::<Vec<_>>().join(", ")
    };
    steps.into_iter().map(&mut step).collect()
}

/// A served gang keeps its machines whatever is free; what it is told of that follows the machines, and those in front
/// of it who take them.
#[test]
fn a_served_gang_is_told_what_becomes_free() {
    let ahead = need(1000, "cpu=8").floor("cpu=8");
    let behind = need(0, "cpu=8").floor("cpu=8");
    let steps = vec![
        served(2),
        vec![free("m3", "r2")],
        vec![free("m4", "r3"), free("m5", "r3")],
        vec![demand("b", &[ahead])],
        vec![demand("b", &[behind])],
        vec![gone("m4")],
    ];
    assert_eq!(
        told(steps),
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

/// A new domain has the terrain surveyed anew. What was told of the old one is older than that, however much happened
/// there.
#[test]
fn a_served_gang_is_told_of_a_new_domain_after_much_coming_and_going() {
    // Something is free where the gang is, too, so that its own domain tells nothing.
    let mut steps = vec![served(2), vec![free("m1", "r1")]];
    for _ in 0..5 {
        steps.extend([vec![free("m3", "r2")], vec![gone("m3")]]);
    }
    steps.push(vec![free("m4", "r3")]);
    assert_eq!(told(steps).last().unwrap(), "r1 1000, r3 500");
}

#[test]
fn a_served_gang_that_has_something_in_many_domains_is_told() {
    let elsewhere = |n: usize| rack(&format!("else-{n}"), &format!("r{n}")).configured("a").event();
    let first = served(2).into_iter().chain((2..=9).map(elsewhere)).collect();
    let told = told(vec![first, vec![free("m", "r9")], vec![gone("m")]]);
    let without = "r1 1000, r2 500, r3 500, r4 500, r5 500, r6 500";
    assert_eq!(told, [without, "r1 1000, r9 1000, r2 500, r3 500, r4 500, r5 500", without]);
}

/// The first domains by what is free stay the same, and yet one is better with what the gang has there.
#[test]
fn a_served_gang_is_told_when_something_is_free_where_it_has_some() {
    let elsewhere = (0..3).map(|n| rack(&format!("else-{n}"), "r2").configured("a").event());
    let others = (3..=12).flat_map(|n| [0, 1].map(|i| free(&format!("m{n}-{i}"), &format!("s{n:02}"))));
    let first = served(4).into_iter().chain(elsewhere).chain(others).collect();
    let told = told(vec![first, vec![free("new-1", "r1"), free("new-2", "r2")]]);
    assert_eq!(
        told,
        [
            "r1 1000, r2 750, s03 500, s04 500, s05 500, s06 500",
            "r1 1000, r2 1000, s03 500, s04 500, s05 500, s06 500",
        ]
    );
}

/// What a Need acquired before and leaves for something that is nothing to the gang is free for the gang.
#[test]
fn a_served_gang_is_told_what_another_need_leaves() {
    let slot = rack("m-a", "r2").speculative().event();
    let odd = machine("m-b").has("cpu=8").label("odd", "yes").event();
    let ahead = demand("b", &[need(1000, "cpu=8").floor("cpu=8")]);
    let first = served(2).into_iter().chain([slot, ahead]).collect();
    assert_eq!(told(vec![first, vec![odd]]), ["r1 1000", "r1 1000, r2 500"]);
}
