//! The two examples of the format, byte for byte.

use crate::{oracle, read};

pub(crate) const PREEMPTION: &str = include_str!("../fixtures/preemption.json");
pub(crate) const FOLD: &str = include_str!("../fixtures/fold.json");

/// The engine and the oracle both print this.
fn both(text: &str, printed: &str) {
    let input = read(text);
    assert_eq!(bigfleet_decide::decide(&input).to_json().unwrap(), printed);
    assert_eq!(oracle::decide(&input).to_json().unwrap(), printed);
}

#[test]
fn a_preemption_and_an_idle_release() {
    both(PREEMPTION, include_str!("../fixtures/preemption.decision.json"));
}

#[test]
fn a_fold_a_gang_that_cannot_be_completed_and_the_cap() {
    both(FOLD, include_str!("../fixtures/fold.decision.json"));
}

#[test]
fn plain_needs_are_decided_alike_by_both_engines() {
    let machine = |id: &str, rest: &str| {
        format!(
            r#"{{"machine": {{"id": "{id}", "capacityType": "CAPACITY_TYPE_ON_DEMAND",
            "resources": {{"resources": {{"cpu": "4", "memory": "16Gi"}}}}, {rest}}}}}"#
        )
    };
    let bound = |id: &str, price: u8| {
        let state = r#""state": "MACHINE_STATE_CONFIGURED", "cluster": "a""#;
        machine(id, &format!(r#"{state}, "pricePerHour": {price}"#))
    };
    let fleet = [
        bound("c0", 1),
        bound("c1", 9),
        bound("c2", 5),
        bound("c3", 7),
        machine("i0", r#""state": "MACHINE_STATE_IDLE""#),
        machine("s0", r#""state": "MACHINE_STATE_SPECULATIVE", "pricePerHour": 0.5"#),
        machine("s1", r#""state": "MACHINE_STATE_SPECULATIVE", "pricePerHour": 0.25"#),
    ];
    let demand = r#"[
        {"rollup": {"clusterId": "a", "needs": [{"aggregateResources": {"cpu": "2500m"}, "priority": 5}]}},
        {"rollup": {"clusterId": "b", "needs": [
            {"aggregateResources": {"cpu": "10"}, "minUnit": {"cpu": "1500m", "memory": "1Gi"}, "priority": -5},
            {"aggregateResources": {"example.com/foo": "1"}, "priority": 7}]}}
    ]"#;
    let text = format!(
        r#"{{"format": "bigfleet.decide/v1", "fleet": [{}], "demand": {demand}, "policy": {{"reclaimCapFraction": 0.5}}}}"#,
        fleet.join(",")
    );
    let input = read(&text);
    let ours = bigfleet_decide::decide(&input);
    assert_eq!(ours.to_json().unwrap(), oracle::decide(&input).to_json().unwrap());

    let shown = |actions: &[bigfleet_decide::Action]| -> Vec<String> {
        let one = |a: &bigfleet_decide::Action| format!("{} {} {}", a.seq, a.kind, a.machine);
        actions.iter().map(one).collect()
    };
    // Four machines, half of which may go; the dearest go first.
    assert_eq!(
        shown(&ours.actions),
        ["0 Bootstrap i0", "2 Provision s0", "1 Provision s1", "3 Reclaim c1", "4 Reclaim c3"]
    );
    assert_eq!(shown(&ours.deferred), ["5 Reclaim c2"]);
    assert_eq!(ours.needs.iter().map(|need| need.satisfied).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(ours.shortfalls.len(), 1);
    assert_eq!(
        ours.claimed_machine_ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["c0", "i0", "s0", "s1"]
    );
}
