//! Input at the edges costs in proportion to its size, not to the square of it. Work is counted, so that no clock decides.

use bigfleet_engine::{Engine, Event, Policy};
use bigfleet_types::{Operator, keys};

use crate::dsl::{M, N, cluster, demand, engine, machine, need, secs};

/// What one decision looks at.
fn effort(machines: &[M], demands: &[(&str, &[N])]) -> u64 {
    let mut engine = engine(Policy::default(), machines, demands);
    engine.decide(secs(0));
    engine.effort().machines
}

/// Idle machines, each alone in its rack.
fn racks(number: usize) -> Vec<M> {
    let rack = |i: usize| machine(&format!("m{i:06}")).has("cpu=4").label("rack", &format!("r{i:06}"));
    (0..number).map(rack).collect()
}

/// Gangs of two machines that no rack can hold.
fn gangs(number: usize) -> Vec<N> {
    let gang = |i: usize| {
        need(0, "cpu=8").floor("cpu=4").group(&format!("g{i}")).requires("rack", Operator::Same, &[])
    };
    (0..number).map(gang).collect()
}

#[test]
fn a_hundred_thousand_racks_of_one() {
    let wants = gangs(8);
    let half = effort(&racks(50_000), &[("a", &wants)]);
    let whole = effort(&racks(100_000), &[("a", &wants)]);
    assert!(whole <= 2 * half + 1000, "{half}, then {whole}");
    // Every gang may look at every rack, but no more than a few times.
    assert!(whole <= 100_000 * 4 * 9, "{whole}");
}

#[test]
fn gangs_of_one_class_cost_no_more_each_when_there_are_more() {
    let fleet = racks(500);
    let (few, many) = (gangs(200), gangs(400));
    let (half, whole) = (effort(&fleet, &[("a", &few)]), effort(&fleet, &[("a", &many)]));
    assert!(whole <= 2 * half + 1000, "{half}, then {whole}");
}

/// One cluster names a thousand labels that nobody named before, and other ones with its next roll-up: machines are
/// classed anew each time, and nothing of the past adds to the work.
#[test]
fn a_thousand_new_label_keys_from_one_cluster() {
    let fleet: Vec<M> = (0..300)
        .map(|i| machine(&format!("m{i:03}")).has("cpu=4").label(&format!("key-{i}"), "x").zone("z"))
        .collect();
    let wants = |round: usize| -> Vec<N> {
        let key =
            |i: usize| format!("{}key-{i}", if round == 0 { String::new() } else { format!("{round}-") });
        (0..1000).map(|i| need(0, "cpu=1").requires(&key(i), Operator::Exists, &[])).collect()
    };
    let mut engine = Engine::new(Policy::default());
    fleet.iter().for_each(|machine| engine.apply(machine.event()));
    engine.apply(Event::Heard(cluster("a")));
    let mut efforts = Vec::new();
    for round in 0..4 {
        engine.apply(demand("a", &wants(round)));
        let decisions = engine.decide(secs(0));
        assert_eq!(decisions.actions.len(), if round == 0 { 300 } else { 0 });
        efforts.push(engine.effort().machines);
    }
    assert!(efforts[0] <= 20 * (300 + 1000), "{efforts:?}");
    assert!(efforts[1..].iter().all(|effort| *effort == efforts[1]), "{efforts:?}");
    // Back at the beginning: as if nothing had been.
    engine.apply(demand("a", &wants(0)));
    assert_eq!(engine.decide(secs(0)).actions.len(), 300);
    assert_eq!(engine.effort().machines, efforts[0]);
}

/// Nothing wanted, nothing needed of a machine, nothing offered, and numbers at their ends.
#[test]
fn zeros_and_extremes() {
    let huge = "cpu=9223372036854775 memory=9223372036854775807";
    let fleet = [
        machine("nothing"),
        machine("huge").has(huge).price(9e9).interrupted(1.0),
        machine("safe").has("cpu=1").price(9e9),
        machine("bound").has(huge).configured("b").of(&need(i32::MIN, huge).build()),
    ];
    let rows = [
        need(i32::MAX, "").floor("cpu=1"),
        need(i32::MAX, huge).floor(huge).buckets(27, 27).group("g"),
        need(i32::MIN, "cpu=1").buckets(27, 27),
        need(0, huge).requires(keys::HOSTNAME, Operator::Same, &[]),
    ];
    let mut engine = engine(Policy::default(), &fleet, &[("a", &rows), ("b", &[])]);
    let decisions = engine.decide(secs(0));
    assert_eq!(decisions.verdicts.len(), 4);
    // PINNED with no probability of an interruption costs the price alone.
    assert!(decisions.actions.iter().any(|action| action.machine.as_str() == "safe"));
}

/// Machines of a cluster that matters less, each alone in its rack.
fn prey(number: usize) -> (N, Vec<M>) {
    let low = need(0, &format!("cpu={}", 4 * number)).floor("cpu=4");
    let bound = |machine: M| machine.configured("low").of(&low.build());
    let fleet = racks(number).into_iter().map(bound).collect();
    (low, fleet)
}

/// Of many rows that may preempt the first get all victims, and the others find out without a look at each of them.
#[test]
fn unmet_rows_do_not_each_look_at_every_victim() {
    let (low, fleet) = prey(500);
    let rows = |number: usize| -> Vec<N> {
        (0..number).map(|i| need(1000, "cpu=8").floor("cpu=4").group(&format!("g{i:05}"))).collect()
    };
    let efforts =
        [1000, 2000, 4000].map(|number| effort(&fleet, &[("low", &[low.clone()]), ("top", &rows(number))]));
    assert!(efforts[2] - efforts[1] <= 2 * (efforts[1] - efforts[0]) + 1000, "{efforts:?}");
    assert!(efforts[2] <= 50 * 4500, "{efforts:?}");
}

/// The same for gangs that no rack can hold, even if everything in it is preempted.
#[test]
fn unmet_gangs_do_not_each_look_at_every_rack() {
    let (low, fleet) = prey(500);
    let wants =
        |number: usize| -> Vec<N> { gangs(number).into_iter().map(|gang| gang.priority(1000)).collect() };
    let efforts =
        [500, 1000, 2000].map(|number| effort(&fleet, &[("low", &[low.clone()]), ("top", &wants(number))]));
    assert!(efforts[2] - efforts[1] <= 2 * (efforts[1] - efforts[0]) + 1000, "{efforts:?}");
    assert!(efforts[2] <= 50 * 2500, "{efforts:?}");
}
