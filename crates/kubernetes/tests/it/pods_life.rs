//! The life of a pod's request: who gets one, when it goes, and what people hear.

use std::time::Duration;

use bigfleet_kubernetes::pods::core::{Action, Outcome, Rules, decide};
use serde_json::json;

use crate::pods_examples::{affinity, gang};
use crate::pods_kit::{NOW, applied, decided, facts, held, spec};

#[test]
fn ex38_a_running_pod_is_demand_too() {
    let running = json!({ "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } });
    let decision = decided(running, &Rules::default());
    assert_eq!(decision.outcome, Outcome::Created);
    let object = applied(&decision);
    assert_eq!(object.metadata.namespace.as_deref(), Some("training"));
    assert_eq!(object.metadata.labels.as_ref().unwrap()["bigfleet.lucy.sh/owned-by-pod"], "uid-0");
    assert_eq!(object.metadata.annotations.as_ref().unwrap()["bigfleet.lucy.sh/spec-hash"].len(), 16);
    let owners = serde_json::to_value(&object.metadata.owner_references).unwrap();
    assert_eq!(
        owners,
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "worker-0", "uid": "uid-0", "controller": true }])
    );
    assert!(object.metadata.finalizers.is_none());
}

#[test]
fn ex39_a_finished_pod_withdraws_and_stays_withdrawn() {
    let rules = Rules::default();
    let object = applied(&decided(json!({}), &rules)).clone();
    let current = held(&object, "cr-uid");
    for phase in ["Succeeded", "Failed"] {
        let finished = facts(json!({ "status": { "phase": phase } }));
        let first = decide(&finished, Some(&current), &rules, &|_| false, NOW);
        let name = object.metadata.name.clone().unwrap();
        assert_eq!(first.action, Action::Delete { name, uid: "cr-uid".to_owned() });
        assert_eq!(first.outcome, Outcome::PodTerminal);
        let again = decide(&finished, None, &rules, &|_| false, NOW);
        assert_eq!((again.action, again.outcome), (Action::Nothing, Outcome::PodTerminal));
    }
}

#[test]
fn ex40_asked_again_nothing_more_is_done() {
    let pods = [
        json!({}),
        gang(
            json!({ "job": "t7" }),
            json!([{ "labelSelector": { "matchLabels": { "job": "t7" } }, "topologyKey": "rack" }]),
        ),
        json!({ "metadata": { "annotations": { "bigfleet.lucy.sh/interruption-penalty": "0.5" } }, "spec": { "topologySpreadConstraints": [
            { "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule" },
        ] } }),
    ];
    for patch in pods {
        let first = decided(patch.clone(), &Rules::default());
        let current = held(applied(&first), "cr-uid");
        for _ in 0..2 {
            let again = decide(&facts(patch.clone()), Some(&current), &Rules::default(), &|_| false, NOW);
            assert_eq!((again.action, again.outcome), (Action::Nothing, Outcome::Exists));
        }
    }
}

#[test]
fn ex41_pods_that_are_not_the_fleets_business() {
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] } });
    let static_pod = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n" }] } });
    let pinned = affinity(
        json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }]),
    );
    let rules = Rules { excluded_namespaces: ["kube-system".to_owned()].into(), ..Rules::default() };
    for (what, pod, outcome) in [
        ("owned by a DaemonSet", daemon, Outcome::PodExcluded),
        (
            "mirror",
            json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }),
            Outcome::PodExcluded,
        ),
        ("owned by its node", static_pod, Outcome::PodExcluded),
        ("pinned to a node", pinned, Outcome::PodExcluded),
        ("gated", json!({ "spec": { "schedulingGates": [{ "name": "kueue" }] } }), Outcome::PodExcluded),
        (
            "terminating, never scheduled",
            json!({ "metadata": { "deletionTimestamp": "2026-04-30T12:00:00Z" } }),
            Outcome::PodExcluded,
        ),
        (
            "on a node that is not the fleet's",
            json!({ "spec": { "nodeName": "static-1" } }),
            Outcome::PodExcluded,
        ),
        (
            "ignored",
            json!({ "metadata": { "annotations": { "bigfleet.lucy.sh/ignore": "true" } } }),
            Outcome::PodExcluded,
        ),
        ("excluded namespace", json!({ "metadata": { "namespace": "kube-system" } }), Outcome::PodExcluded),
        ("succeeded", json!({ "status": { "phase": "Succeeded" } }), Outcome::PodTerminal),
        ("failed", json!({ "status": { "phase": "Failed" } }), Outcome::PodTerminal),
    ] {
        let decision = decided(pod, &rules);
        assert_eq!((&decision.action, decision.outcome), (&Action::Nothing, outcome), "{what}");
        assert!(decision.notices.is_empty(), "{what}: {:?}", decision.notices);
    }
    let replica_set = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }] } });
    let stranger = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "example.com/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] } });
    for (what, pod) in [
        ("naked", json!({})),
        ("owned by a ReplicaSet", replica_set),
        ("another group's DaemonSet", stranger),
        (
            "gated but bound",
            json!({ "spec": { "nodeName": "n1", "schedulingGates": [{ "name": "kueue" }] } }),
        ),
        (
            "ignore is not true",
            json!({ "metadata": { "annotations": { "bigfleet.lucy.sh/ignore": "yes" } } }),
        ),
    ] {
        assert_eq!(decided(pod, &rules).outcome, Outcome::Created, "{what}");
    }
}

#[test]
fn ex42_without_gates_the_pod_counts() {
    let rules = Rules::default();
    let gated = decided(json!({ "spec": { "schedulingGates": [{ "name": "kueue" }] } }), &rules);
    assert_eq!(gated.action, Action::Nothing);
    assert_eq!(decided(json!({ "spec": { "schedulingGates": [] } }), &rules).outcome, Outcome::Created);
}

#[test]
fn a_pod_that_will_not_end_counts_until_its_grace_and_ours() {
    let rules = Rules { terminating_grace: Duration::from_secs(300), ..Rules::default() };
    let pod = facts(
        json!({ "metadata": { "deletionTimestamp": "2026-04-30T12:00:00Z" }, "spec": { "nodeName": "n1" } }),
    );
    let end = NOW.after(Duration::from_secs(300));
    let before = decide(&pod, None, &rules, &|_| false, NOW);
    assert_eq!((before.outcome, before.again), (Outcome::Created, Some(end)));
    let current = held(applied(&before), "cr-uid");
    let after = decide(&pod, Some(&current), &rules, &|_| false, end);
    assert!(matches!(after.action, Action::Delete { .. }), "{after:?}");
    assert_eq!(after.outcome, Outcome::PodExcluded);
}

#[test]
fn changes_of_the_pod_or_of_the_request_are_put_right() {
    let rules = Rules::default();
    let first = decided(json!({}), &rules);
    let current = held(applied(&first), "cr-uid");
    let resized = facts(
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "2" } } }] } }),
    );
    let decision = decide(&resized, Some(&current), &rules, &|_| false, NOW);
    assert_eq!(decision.outcome, Outcome::Updated);
    assert_eq!(applied(&decision).metadata.name, applied(&first).metadata.name);
    // Somebody edited the spec, or the object cannot be read: the same object is wanted again.
    for hash in [Some("0123456789abcdef".to_owned()), None] {
        let edited = bigfleet_kubernetes::pods::core::Current { hash, ..current.clone() };
        let decision = decide(&facts(json!({})), Some(&edited), &rules, &|_| false, NOW);
        assert_eq!(decision.outcome, Outcome::Updated);
        assert_eq!(applied(&decision), applied(&first));
    }
    // On its way out: its end is waited for.
    let leaving = bigfleet_kubernetes::pods::core::Current { deleting: true, hash: None, ..current.clone() };
    assert_eq!(decide(&facts(json!({})), Some(&leaving), &rules, &|_| false, NOW).action, Action::Nothing);
    // Of another pod: neither changed nor deleted.
    let foreign = bigfleet_kubernetes::pods::core::Current { pod: Some("uid-9".to_owned()), ..current };
    let decision = decide(&facts(json!({})), Some(&foreign), &rules, &|_| false, NOW);
    assert_eq!((decision.action, decision.outcome), (Action::Nothing, Outcome::Error));
    let finished = facts(json!({ "status": { "phase": "Failed" } }));
    assert_eq!(decide(&finished, Some(&foreign), &rules, &|_| false, NOW).action, Action::Nothing);
}

#[test]
fn people_hear_of_pods_that_wait() {
    let rules = Rules::default();
    let waiting = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } });
    let first = decided(waiting.clone(), &rules);
    assert_eq!(
        first.notices.iter().map(|one| (one.reason, one.warning)).collect::<Vec<_>>(),
        [("CapacityRequested", false)]
    );
    assert!(decided(json!({}), &rules).notices.is_empty(), "the others are not spoken of");
    let mut current = held(applied(&first), "cr-uid");
    assert!(decide(&facts(waiting.clone()), Some(&current), &rules, &|_| false, NOW).notices.is_empty());
    current.acknowledged = true;
    let told = decide(&facts(waiting), Some(&current), &rules, &|_| false, NOW);
    assert_eq!(told.notices[0].reason, "CapacityAcknowledged");
    assert_eq!(told.action, Action::Nothing);
}

#[test]
fn priority_and_spread_are_taken_over() {
    let pod = json!({ "spec": { "priority": 1_000_000, "topologySpreadConstraints": [
        { "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {} },
        { "topologyKey": "kubernetes.io/hostname", "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway" },
    ] } });
    let spec = spec(pod);
    assert_eq!(spec.priority, 1_000_000);
    assert_eq!(
        serde_json::to_value(&spec.topology_spread).unwrap(),
        json!([{ "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule" }])
    );
    assert!(!spec.resources.contains_key("pods"), "no machine would cover it");
}
