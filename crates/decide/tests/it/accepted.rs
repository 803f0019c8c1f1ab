//! What is accepted, and what it means.

use std::time::Duration;

use bigfleet_decide::Input;
use bigfleet_engine::{Eligibility, Policy, Purpose, VictimPolicy};
use bigfleet_types::{
    CapacityType, ClusterId, Group, MachineState, Need, Operator, PenaltyBucket, Resources, Rounding,
    StampedPenalty, UnixNanos, WhenUnsatisfiable,
};

use crate::{file, read, with_entry, with_machine, with_need};

fn only_need(text: &str) -> Need {
    let input = read(text);
    input.demand.into_iter().flat_map(|(_, needs)| needs).next().unwrap()
}

fn amounts(pairs: &[(&str, &str)]) -> Resources {
    Resources::parse(pairs.iter().copied(), Rounding::Up).unwrap()
}

#[test]
fn a_file_of_nothing_has_the_defaults() {
    let nothing = Input::default();
    assert_eq!(read(r#"{"format": "bigfleet.decide/v1"}"#), nothing);
    let nulls = r#" { "now_unix_nanos" : null , "fleet":null,"demand":null,"readyClusters":null,
        "policy":null, "format":"bigfleet.decide\/v1" } "#;
    assert_eq!(read(nulls), nothing);
    let inner = r#"{"format": "bigfleet.decide/v1", "policy": {"idleHoldSeconds": null, "victimWeights": {"drain": null}}}"#;
    assert_eq!(read(inner), nothing);
    assert_eq!(nothing.policy, Policy::default());
    assert_eq!(nothing.reclaim_cap, None);
}

#[test]
fn names_in_both_spellings_enums_and_numbers_in_all_forms() {
    let camel = file(
        r#"[{"machine": {"id": "m", "state": "MACHINE_STATE_DRAINING", "cluster": "c", "instanceType": "t",
            "zone": "z", "capacityType": "CAPACITY_TYPE_SPOT", "pricePerHour": 0.05,
            "interruptionProbability": 0.1, "resources": {"resources": {"cpu": "1"}},
            "allocatable": {"resources": {"cpu": "900m"}}, "labels": {"a": "b"}, "lastError": "none",
            "host": {"provider": "p", "ref": "r"},
            "shardMetadata": {"bigfleet.lucy.sh/assigned-priority": "7"}},
            "preemptedFor": {"cluster": "d", "fingerprint": "7f965d2f2f2f500fe8c7f4137395a9fa", "group": "g", "priority": 9}}]"#,
        r#"[{"rollup": {"clusterId": "c", "timestampUnixNanos": 5, "needs": [{
            "requirements": [{"key": "k", "operator": "OPERATOR_IN", "values": ["v"]}],
            "aggregateResources": {"cpu": "2"}, "minUnit": {"cpu": "1"}, "priority": -3, "group": "h",
            "spread": [{"topologyKey": "k", "maxSkew": 2, "whenUnsatisfiable": "WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE"}],
            "interruptionPenaltyBucket": "PENALTY_BUCKET_PINNED",
            "reclamationPenaltyBucket": "PENALTY_BUCKET_HALF_DOLLAR"}]}, "arrivalUnixNanos": [1700000000000000001]}]"#,
    );
    let snake = file(
        r#"[{"machine": {"id": "m", "state": 6, "cluster": "c", "instance_type": "t",
            "zone": "z", "capacity_type": 4.0, "price_per_hour": "5e-2",
            "interruption_probability": "0.1", "resources": {"resources": {"cpu": "1"}},
            "allocatable": {"resources": {"cpu": "0.9"}}, "labels": {"a": "b"}, "last_error": null,
            "shard_metadata": {"bigfleet.lucy.sh/assigned-priority": "7"}},
            "preempted_for": {"cluster": "d", "fingerprint": "7f965d2f2f2f500fe8c7f4137395a9fa", "group": "g", "priority": "9"}}]"#,
        r#"[{"rollup": {"cluster_id": "c", "timestamp_unix_nanos": "6", "needs": [{
            "requirements": [{"key": "k", "operator": 1, "values": ["v"]}],
            "aggregate_resources": {"cpu": "2000m"}, "min_unit": {"cpu": "1"}, "priority": "-3.0", "group": "h",
            "spread": [{"topology_key": "k", "max_skew": 2e0, "when_unsatisfiable": 1}],
            "interruption_penalty_bucket": 27,
            "reclamation_penalty_bucket": 2}]}, "arrival_unix_nanos": ["1.700000000000000001E18"]}]"#,
    );
    let input = read(&camel);
    assert_eq!(input, read(&snake));

    let (machine, facts) = &input.fleet[0];
    assert_eq!(machine.state, MachineState::Draining);
    assert_eq!((machine.capacity_type, machine.price.nano()), (CapacityType::Spot, 50_000_000));
    assert_eq!(machine.interruption_probability.nano(), 100_000_000);
    assert_eq!(machine.capacity(), &amounts(&[("cpu", "900m")]));
    assert_eq!(machine.attribution.priority, Some(7));
    let Purpose::Preemption(by) = &facts.preempted_for else { panic!("{facts:?}") };
    assert_eq!((by.need.cluster.as_str(), by.need.group.as_str(), by.priority), ("d", "g", 9));
    assert_eq!(by.need.fingerprint.to_string(), "7f965d2f2f2f500fe8c7f4137395a9fa");

    let need = &input.demand[0].1[0];
    assert_eq!((need.profile.priority(), need.group.clone()), (-3, Group::new("h")));
    assert_eq!(need.profile.interruption(), PenaltyBucket::PINNED);
    assert_eq!(need.profile.reclamation(), PenaltyBucket::from_wire(2).unwrap());
    assert_eq!(need.profile.requirements()[0].operator, Operator::In);
    assert_eq!(need.profile.spread()[0].when_unsatisfiable, WhenUnsatisfiable::DoNotSchedule);
    assert_eq!(need.arrival, Some(UnixNanos(1_700_000_000_000_000_001)));
    assert_eq!(input.ready.iter().map(ClusterId::as_str).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn side_facts_reach_the_engine() {
    let facts = |state: &str, rest: &str| {
        let text = with_entry(&format!(r#"{{"machine": {{"id": "m", "state": {state}}}, {rest}}}"#));
        read(&text).fleet.remove(0).1
    };
    assert_eq!(facts("3", r#""idleSinceUnixNanos": 0"#).idle_since, Some(UnixNanos(0)));
    assert_eq!(facts("3", r#""idleSinceUnixNanos": null"#).idle_since, None);
    assert_eq!(facts("3", r#""withheld": true"#).eligibility, Eligibility::WITHHELD);
    assert_eq!(facts("3", r#""withheld": false"#).eligibility, Eligibility::ALL);
    let draining = r#"6, "cluster": "c""#;
    assert_eq!(facts(draining, r#""preemptedForUnknown": true"#).preempted_for, Purpose::Unknown);
    assert_eq!(facts(draining, r#""preemptedForUnknown": false"#).preempted_for, Purpose::None);
    let configured = r#"5, "cluster": "c""#;
    assert_eq!(facts(configured, r#""excessSinceUnixNanos": "-7""#).excess_since, Some(UnixNanos(-7)));
    let created = facts("2", r#""createdFor": {"cluster": "c", "fingerprint": "of somebody else"}"#);
    let created = created.created_for.unwrap();
    assert_eq!((created.cluster.as_str(), created.group.as_str()), ("c", ""));
}

/// Looser than the boundary of a session.
#[test]
fn what_only_the_session_refuses() {
    let requirement = |operator: u8, values: &str| {
        let members =
            format!(r#""requirements": [{{"key": "k", "operator": {operator}, "values": {values}}}]"#);
        only_need(&with_need(&members)).profile.requirements()[0].values.len()
    };
    assert_eq!(requirement(1, "[]"), 0);
    assert_eq!(requirement(2, "null"), 0);
    assert_eq!(requirement(3, r#"["v"]"#), 1);
    assert_eq!(requirement(4, r#"["v", "w"]"#), 2);
    assert_eq!(requirement(5, r#"["v", "v"]"#), 1);

    // The skew enters the fingerprint as it was given.
    let spread = only_need(&with_need(r#""spread": [{"topologyKey": "k", "maxSkew": -2}]"#));
    let term = &spread.profile.spread()[0];
    assert_eq!((term.max_skew, term.when_unsatisfiable), (-2, WhenUnsatisfiable::Unspecified));

    let group =
        only_need(&with_need(r#""group": "g", "minUnit": {"cpu": "9"}, "aggregateResources": {"cpu": "1"}"#));
    assert_eq!((group.group.as_str(), group.min_unit), ("g", amounts(&[("cpu", "9")])));
    let zero = only_need(&with_need(r#""interruptionPenaltyBucket": 0"#));
    assert_eq!(zero.profile.interruption(), PenaltyBucket::ZERO);

    let long = "x".repeat(5000);
    let names = with_need(&format!(
        r#""group": "{long}", "requirements": [{{"key": "{long}", "operator": 3}}], "aggregateResources": {{"": "1E", "{long}": "9E"}}"#
    ));
    assert_eq!(only_need(&names).aggregate.len(), 2);
    let id = with_machine("\"id\": \"\u{e4} \\u0001\", \"state\": 3");
    assert_eq!(read(&id).fleet[0].0.id.as_str(), "\u{e4} \u{1}");
}

/// Rows with equal keys are merged: amounts add up, the earliest known arrival counts.
#[test]
fn rows_with_equal_keys_are_one_need() {
    let rollup = r#"{"clusterId": "c", "needs": [
        {"aggregateResources": {"cpu": "0.1m"}}, {"aggregateResources": {"cpu": "0.1m"}, "minUnit": {"cpu": "1"}}]}"#;
    let text = file("[]", &format!(r#"[{{"rollup": {rollup}, "arrivalUnixNanos": [0, 7]}}]"#));
    let report = bigfleet_decide::decide(&read(&text));
    assert_eq!(report.needs.len(), 1);
    // Each string is rounded up by itself, before the sum; then the floor counts.
    assert_eq!(report.needs[0].residual, amounts(&[("cpu", "1")]));
}

#[test]
fn stamps_stand_for_themselves_and_only_bound_machines_have_any() {
    let stamps = r#""shardMetadata": {
        "bigfleet.lucy.sh/assigned-priority": "high",
        "bigfleet.lucy.sh/assigned-interruption-penalty-dollars": "+Inf",
        "bigfleet.lucy.sh/assigned-reclamation-penalty-dollars": "0.5",
        "bigfleet.lucy.sh/assigned-group": "g", "of others": "x"}"#;
    let attribution = |state: &str| {
        let text = with_machine(&format!(r#""id": "m", "state": {state}, {stamps}"#));
        read(&text).fleet.remove(0).0.attribution
    };
    let bound = attribution(r#"5, "cluster": "c""#);
    assert_eq!((bound.priority, bound.fingerprint), (None, None));
    assert_eq!(bound.interruption, Some(StampedPenalty::Infinite));
    assert_eq!(bound.reclamation, Some(PenaltyBucket::from_wire(2).unwrap().into()));
    assert_eq!(bound.group.as_deref(), Some("g"));
    assert!(attribution("3").is_empty());
    assert!(attribution("1").is_empty());
}

#[test]
fn failed_machines_may_have_a_cluster_and_none() {
    assert!(read(&with_machine(r#""id": "m", "state": 8"#)).fleet[0].0.cluster.is_none());
    assert!(read(&with_machine(r#""id": "m", "state": 8, "cluster": "c""#)).fleet[0].0.cluster.is_some());
}

#[test]
fn demand_rounds_up_and_capacity_down_each_string_by_itself() {
    let need = only_need(&with_need(r#""aggregateResources": {"cpu": "0.1m", "memory": "1500m"}"#));
    assert_eq!(need.aggregate, amounts(&[("cpu", "1m"), ("memory", "2")]));
    let machine = with_machine(
        r#""id": "m", "state": 3, "resources": {"resources": {"cpu": "1.9m", "memory": "1500m", "pods": "0.9"}}"#,
    );
    let capacity = read(&machine).fleet.remove(0).0.resources;
    assert_eq!(capacity, amounts(&[("cpu", "1m"), ("memory", "1")]));
}

#[test]
fn ready_clusters_are_those_of_the_demand_unless_listed() {
    let ready = |text: &str| -> Vec<String> { read(text).ready.iter().map(ToString::to_string).collect() };
    let demand = r#"[{"rollup": {"clusterId": "b", "needs": []}}, {"rollup": {"clusterId": "a"}}]"#;
    assert_eq!(ready(&file("[]", demand)), ["a", "b"]);
    let listed = |clusters: &str| {
        format!(r#"{{"format": "bigfleet.decide/v1", "demand": {demand}, "readyClusters": {clusters}}}"#)
    };
    assert!(ready(&listed("[]")).is_empty());
    assert_eq!(ready(&listed(r#"["z"]"#)), ["z"]);
    assert_eq!(ready(&listed("null")), ["a", "b"]);
}

#[test]
fn a_policy_replaces_what_it_names() {
    let policy =
        |members: &str| read(&format!(r#"{{"format": "bigfleet.decide/v1", "policy": {{{members}}}}}"#));
    let some = policy(
        r#""idleHoldSeconds": {"on_demand": "0"}, "reclaimGraceSeconds": 5, "reclaimAfterSeconds": 6,
        "drainEstimateSeconds": 7, "victimWeights": {"priority": "0.25", "interruption": 0}"#,
    );
    let seconds = Duration::from_secs;
    let defaults = Policy::default();
    assert_eq!(some.policy.on_demand_idle_hold, Duration::ZERO);
    assert_eq!(some.policy.spot_idle_hold, defaults.spot_idle_hold);
    assert_eq!((some.policy.reclaim_grace, some.policy.reclaim_after), (seconds(5), seconds(6)));
    let weights = VictimPolicy {
        priority_weight: 250_000_000,
        interruption_weight: 0,
        drain_estimate: seconds(7),
        ..VictimPolicy::default()
    };
    assert_eq!(some.policy.victims, weights);
    assert_eq!(policy(r#""reclaimCapFraction": 0"#).reclaim_cap, None);
    assert_eq!(policy(r#""reclaimCapFraction": "5e-2""#).reclaim_cap.map(|cap| cap.allows(100)), Some(5));
}
