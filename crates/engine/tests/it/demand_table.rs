//! The demand table as its effects show it.

use bigfleet_engine::{Engine, Event, Policy};

use crate::dsl::{N, cluster, decide, demand, need, secs, vector};

#[test]
fn ex06_rows_of_one_key_are_merged() {
    let a100 = |cpu: &str| need(100, &format!("cpu={cpu}")).floor(&format!("cpu={cpu}"));
    let a: &[N] = &[a100("1"), a100("1"), a100("3"), need(200, "cpu=4")];
    let decisions = decide(&[], &[("a", a), ("b", &[need(100, "cpu=2")])]);
    let rows: Vec<_> = decisions
        .verdicts
        .iter()
        .map(|v| {
            (
                v.key.cluster.as_str(),
                v.need.profile.priority(),
                v.need.aggregate.clone(),
                v.need.min_unit.clone(),
            )
        })
        .collect();
    let none = vector("");
    assert_eq!(
        rows,
        [
            ("a", 200, vector("cpu=4"), none.clone()),
            ("a", 100, vector("cpu=5"), vector("cpu=3")),
            ("b", 100, vector("cpu=2"), none),
        ]
    );
    let groups = decide(&[], &[("a", &[need(1, "cpu=1").group("g1"), need(1, "cpu=1").group("g2")])]);
    assert_eq!(groups.verdicts.len(), 2);
}

#[test]
fn ex07_precedence_order_goes_by_priority_then_arrival() {
    let row = |priority, at| need(priority, "cpu=1").arrival(secs(at));
    let decisions = decide(
        &[],
        &[("a", &[row(0, 30), row(1_000_000, 20)]), ("b", &[row(500_000, 10), row(1_000_000, 5)])],
    );
    let order: Vec<_> =
        decisions.verdicts.iter().map(|v| (v.key.cluster.as_str(), v.need.profile.priority())).collect();
    assert_eq!(order, [("b", 1_000_000), ("a", 1_000_000), ("b", 500_000), ("a", 0)]);
}

#[test]
fn penalties_come_before_arrival_and_cluster_before_group() {
    let rows = [
        need(0, "cpu=1").group("z").arrival(secs(1)),
        need(0, "cpu=1").group("y").arrival(secs(1)),
        need(0, "cpu=1").buckets(1, 5).arrival(secs(9)),
        need(0, "cpu=1").buckets(5, 1).arrival(secs(9)),
    ];
    let decisions = decide(&[], &[("b", &rows), ("a", &[need(0, "cpu=1").arrival(secs(1))])]);
    let order: Vec<_> = decisions.verdicts.iter().map(|v| &v.key).collect();
    let expected =
        [rows[3].key("b"), rows[2].key("b"), need(0, "cpu=1").key("a"), rows[1].key("b"), rows[0].key("b")];
    assert_eq!(order, expected.iter().collect::<Vec<_>>());
}

#[test]
fn ex08_a_roll_up_replaces_all_rows_of_its_cluster() {
    let mut engine = Engine::new(Policy::default());
    let rows = |n: usize| (0..n).map(|i| need(0, "cpu=1").group(&i.to_string())).collect::<Vec<_>>();
    engine.apply(demand("b", &rows(1)));
    for (n, expected) in [(5, 6), (2, 3), (0, 1)] {
        engine.apply(demand("a", &rows(n)));
        assert_eq!(engine.demand_rows(), expected);
        assert_eq!(engine.decide(secs(0)).verdicts.len(), expected);
    }
}

#[test]
fn a_key_keeps_its_arrival_until_it_disappears() {
    let mut engine = Engine::new(Policy::default());
    let mut arrival = |at: i64, rows: &[N]| {
        let rows = rows.iter().map(N::build).collect();
        engine.apply(Event::Demand { cluster: cluster("a"), rows, at: secs(at) });
        engine.decide(secs(at)).verdicts.first().map(|verdict| verdict.arrival)
    };
    assert_eq!(arrival(10, &[need(0, "cpu=1")]), Some(secs(10)));
    assert_eq!(arrival(20, &[need(0, "cpu=2")]), Some(secs(10)), "grown, but still the same key");
    assert_eq!(arrival(30, &[need(0, "cpu=2").arrival(secs(7))]), Some(secs(7)), "a row may bring its own");
    assert_eq!(arrival(40, &[]), None);
    assert_eq!(arrival(50, &[need(0, "cpu=2")]), Some(secs(50)), "a key that returns is new");
}

#[test]
fn a_new_arrival_moves_a_row() {
    let mut engine = Engine::new(Policy::default());
    let row = |at| need(0, "cpu=1").arrival(secs(at));
    engine.apply(demand("a", &[row(5)]));
    for (at, expected) in [(1, ["b", "a"]), (9, ["a", "b"])] {
        engine.apply(demand("b", &[row(at)]));
        let decisions = engine.decide(secs(0));
        let order: Vec<_> = decisions.verdicts.iter().map(|v| v.key.cluster.as_str()).collect();
        assert_eq!(order, expected);
    }
}
