//! The worked examples of the pod controller, and every row of its tables.

use std::time::Duration;

use bigfleet_kubernetes::pods::core::{Action, Outcome, Rules, decide};
use bigfleet_kubernetes::pods::facts::parse_requests;
use bigfleet_kubernetes::pods::penalties::Defaults;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::pods_kit::{NOW, applied, decided, facts, held, requirements, resources, spec};

fn containers(main: Value, init: Value) -> Value {
    json!({ "spec": { "containers": [{ "name": "main", "resources": main }], "initContainers": init } })
}

#[test]
fn ex24_init_containers_are_a_peak_not_a_sum() {
    let main = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
    let init = json!([{ "name": "init", "resources": { "requests": { "cpu": "4" } } }]);
    assert_eq!(resources(containers(main, init)), json!({ "cpu": "4", "memory": "1Gi" }));
}

fn with_sidecar(extra: Value) -> Value {
    let mut pod = containers(
        json!({ "requests": { "cpu": "1" } }),
        json!([
            { "name": "sidecar", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } },
            { "name": "init", "resources": { "requests": { "cpu": "2500m" } } },
        ]),
    );
    if let (Some(spec), Value::Object(extra)) = (pod["spec"].as_object_mut(), extra) {
        spec.extend(extra);
    }
    pod
}

#[test]
fn ex25_a_stage_stands_on_the_sidecars_before_it() {
    assert_eq!(resources(with_sidecar(json!({}))), json!({ "cpu": "4500m" }));
}

#[test]
fn ex26_overhead_comes_on_top() {
    assert_eq!(resources(with_sidecar(json!({ "overhead": { "cpu": "250m" } }))), json!({ "cpu": "4750m" }));
}

#[test]
fn ex27_a_limit_alone_is_the_request() {
    let pod = containers(json!({ "limits": { "nvidia.com/gpu": "8" } }), json!([]));
    assert_eq!(resources(pod), json!({ "nvidia.com/gpu": "8" }));
}

#[test]
fn more_rows_of_the_arithmetic() {
    for (what, pod, expected) in [
        (
            "sidecars run beside the containers",
            containers(
                json!({ "requests": { "cpu": "3" } }),
                json!([{ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } }]),
            ),
            json!({ "cpu": "5" }),
        ),
        (
            "an init container before a sidecar does not stand on it",
            containers(
                json!({ "requests": { "cpu": "1" } }),
                json!([
                    { "name": "i", "resources": { "requests": { "cpu": "4" } } },
                    { "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "2" } } },
                ]),
            ),
            json!({ "cpu": "4" }),
        ),
        (
            "pod-level requests replace what they name, before overhead",
            json!({ "spec": {
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1" } } }],
                "resources": { "requests": { "cpu": "8", "nvidia.com/gpu": "7" } },
                "overhead": { "cpu": "500m" },
            } }),
            json!({ "cpu": "8500m", "memory": "1Gi", "nvidia.com/gpu": "1" }),
        ),
        (
            "while a pod shrinks, what is promised still counts",
            json!({
                "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] },
                "status": { "containerStatuses": [{
                    "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": { "cpu": "2" }, "resources": { "requests": { "cpu": "3" } },
                }] },
            }),
            json!({ "cpu": "3" }),
        ),
        (
            "a resize that can never come is not counted",
            json!({
                "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "64" } } }] },
                "status": {
                    "conditions": [{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }],
                    "containerStatuses": [{
                        "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                        "allocatedResources": { "cpu": "2" }, "resources": { "requests": { "cpu": "2" } },
                    }],
                },
            }),
            json!({ "cpu": "2" }),
        ),
        (
            "zero is left out",
            containers(json!({ "requests": { "cpu": "0", "memory": "1Mi" } }), json!([])),
            json!({ "memory": "1Mi" }),
        ),
        ("nothing at all is no demand", containers(json!({}), json!([])), json!({})),
    ] {
        assert_eq!(resources(pod), expected, "{what}");
    }
}

#[test]
fn pods_without_requests_take_the_default_if_there_is_one() {
    let rules =
        Rules { default_requests: parse_requests("cpu=0.1, memory=200Mi").unwrap(), ..Rules::default() };
    let empty = decided(containers(json!({}), json!([])), &rules);
    let resources = serde_json::to_value(&applied(&empty).spec.resources).unwrap();
    assert_eq!(resources, json!({ "cpu": "100m", "memory": "200Mi" }));
    let full = decided(json!({}), &rules);
    assert_eq!(serde_json::to_value(&applied(&full).spec.resources).unwrap(), json!({ "cpu": "1" }));
    for (text, problem) in [
        ("cpu", "not name=quantity"),
        ("cpu=x", "not a number"),
        ("cpu=-1", "negative"),
        ("cpu=1,cpu=2", "twice"),
    ] {
        let error = parse_requests(text).unwrap_err();
        assert!(error.contains(problem), "{text}: {error}");
    }
}

fn affinity(terms: Value) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } } })
}

fn term(conditions: &[(&str, &str, &[&str])]) -> Value {
    let all: Vec<Value> = conditions
        .iter()
        .map(|(key, operator, values)| json!({ "key": key, "operator": operator, "values": values }))
        .collect();
    json!({ "matchExpressions": all })
}

#[test]
fn ex28_a_node_selector_is_sorted_by_key() {
    let pod = json!({ "spec": { "nodeSelector": { "topology.kubernetes.io/zone": "eu-west-1b", "disktype": "ssd" } } });
    assert_eq!(requirements(pod), ["disktype In ssd", "topology.kubernetes.io/zone In eu-west-1b"]);
}

#[test]
fn ex29_a_pod_without_conditions_fits_any_machine() {
    assert_eq!(requirements(json!({})), ["node.kubernetes.io/instance-type Exists"]);
}

#[test]
fn ex30_alternatives_of_one_label_are_joined() {
    let pod = affinity(json!([term(&[("zone", "In", &["a"])]), term(&[("zone", "In", &["b"])])]));
    assert!(facts(pod.clone()).approximated.is_empty());
    assert_eq!(requirements(pod), ["zone In a,b"]);
    let beside = affinity(json!([
        term(&[("disk", "In", &["ssd"]), ("zone", "In", &["b"])]),
        term(&[("zone", "In", &["a", "b"]), ("disk", "In", &["ssd"])]),
    ]));
    assert_eq!(requirements(beside), ["disk In ssd", "zone In a,b"]);
}

#[test]
fn ex31_of_other_alternatives_the_first_is_taken() {
    let pod = affinity(json!([
        term(&[("zone", "In", &["a"]), ("disk", "In", &["ssd"])]),
        term(&[("zone", "In", &["b"]), ("disk", "In", &["hdd"])]),
    ]));
    assert_eq!(facts(pod.clone()).approximated, ["or_terms"]);
    assert_eq!(requirements(pod), ["disk In ssd", "zone In a"]);
}

#[test]
fn ex32_a_comparison_has_no_form() {
    let decision = decided(affinity(json!([term(&[("cpu-generation", "Gt", &["4"])])])), &Rules::default());
    assert_eq!((&decision.action, decision.outcome), (&Action::Nothing, Outcome::PodExcluded));
    assert_eq!(decision.notices.len(), 1);
    assert!(decision.notices[0].warning);
    assert_eq!(decision.notices[0].reason, "UnsupportedNodeAffinity");
}

#[test]
fn more_rows_of_node_affinity() {
    let gt = term(&[("generation", "Gt", &["4"])]);
    let zone = term(&[("zone", "In", &["a"])]);
    // Left-out alternatives make it narrower, never wider; empty ones match nothing and are no alternative.
    let mixed = affinity(json!([gt, zone]));
    assert_eq!(facts(mixed.clone()).approximated, ["or_terms"]);
    assert_eq!(requirements(mixed), ["zone In a"]);
    let empty = affinity(json!([{}, term(&[("zone", "In", &["a"])])]));
    assert!(facts(empty.clone()).approximated.is_empty());
    assert_eq!(requirements(empty), ["zone In a"]);
    let twice = affinity(json!([term(&[("zone", "In", &["b", "a"])]), term(&[("zone", "In", &["a", "b"])])]));
    assert!(facts(twice.clone()).approximated.is_empty());
    assert_eq!(requirements(twice), ["zone In a,b"]);
    let nothing = decided(affinity(json!([{}])), &Rules::default());
    assert_eq!(nothing.notices[0].reason, "UnsupportedNodeAffinity");
    let both = {
        let mut pod = affinity(json!([term(&[("gpu", "Exists", &[])])]));
        pod["spec"]["nodeSelector"] = json!({ "zone": "a" });
        pod
    };
    assert_eq!(requirements(both), ["gpu Exists", "zone In a"]);
    let preferred = json!({ "spec": { "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 1, "preference": term(&[("zone", "In", &["a"])]) },
    ] } } } });
    assert_eq!(requirements(preferred), ["node.kubernetes.io/instance-type Exists"]);
}

fn gang(labels: Value, terms: Value) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } },
    })
}

#[test]
fn ex33_affinity_to_its_own_kind_is_a_gang() {
    let rack = json!([{ "labelSelector": { "matchLabels": { "job": "t7" } }, "topologyKey": "rack" }]);
    let own = spec(gang(json!({ "job": "t7" }), rack.clone())).co_location.unwrap();
    assert_eq!(own.topology_key, "rack");
    assert_eq!(own.label_selector.unwrap().match_labels.unwrap()["job"], "t7");
    let other = gang(json!({ "app": "web" }), rack);
    assert_eq!(facts(other.clone()).approximated, ["cross_workload_affinity"]);
    assert_eq!(spec(other).co_location, None);
}

#[test]
fn more_rows_of_pod_affinity() {
    let labels = json!({ "job": "t7" });
    let own = json!({ "labelSelector": { "matchLabels": { "job": "t7" } }, "topologyKey": "rack" });
    let with = |extra: Value| {
        let mut term = own.clone();
        if let (Some(term), Value::Object(extra)) = (term.as_object_mut(), extra) {
            term.extend(extra);
        }
        spec(gang(labels.clone(), json!([term]))).co_location.is_some()
    };
    for (what, extra, is_gang) in [
        ("its own namespace by default", json!({}), true),
        ("named", json!({ "namespaces": ["training"] }), true),
        ("another one", json!({ "namespaces": ["research"] }), false),
        ("all", json!({ "namespaceSelector": {} }), true),
        (
            "by name",
            json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "training" } } }),
            true,
        ),
        (
            "by labels that are not known",
            json!({ "namespaceSelector": { "matchLabels": { "team": "ml" } } }),
            false,
        ),
        ("no selector selects nothing", json!({ "labelSelector": null }), false),
        ("an empty one everything", json!({ "labelSelector": {} }), true),
        (
            "an expression that holds",
            json!({ "labelSelector": { "matchExpressions": [{ "key": "job", "operator": "In", "values": ["t7", "t8"] }] } }),
            true,
        ),
        (
            "one that does not",
            json!({ "labelSelector": { "matchExpressions": [{ "key": "job", "operator": "NotIn", "values": ["t7"] }] } }),
            false,
        ),
        (
            "absence",
            json!({ "labelSelector": { "matchExpressions": [{ "key": "x", "operator": "DoesNotExist" }] } }),
            true,
        ),
    ] {
        assert_eq!(with(extra), is_gang, "{what}");
    }
    let first_is_other = gang(
        labels.clone(),
        json!([{ "labelSelector": { "matchLabels": { "app": "cache" } }, "topologyKey": "zone" }, own]),
    );
    assert_eq!(spec(first_is_other).co_location.unwrap().topology_key, "rack");
    let anti = json!({ "metadata": { "labels": labels }, "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [own] } } } });
    assert_eq!(spec(anti).co_location, None);
}

fn classes() -> Rules {
    let yaml = r#"
ml-research: { interruptionPenalty: "8192", reclamationPenalty: "65536" }
batch-best-effort: { interruptionPenalty: 16 }
"#;
    Rules { defaults: Defaults::parse(yaml).unwrap(), ..Rules::default() }
}

/// The penalties of a pod of this class with these annotations, and the warnings.
fn penalties(
    class: Option<&str>,
    interruption: Option<&str>,
    reclamation: Option<&str>,
) -> (Option<String>, Option<String>, usize) {
    let mut annotations = json!({});
    for (key, value) in [("interruption-penalty", interruption), ("reclamation-penalty", reclamation)] {
        if let Some(value) = value {
            annotations[format!("bigfleet.lucy.sh/{key}")] = json!(value);
        }
    }
    let pod = json!({ "metadata": { "annotations": annotations }, "spec": { "priorityClassName": class } });
    let decision = decided(pod, &classes());
    let spec = &applied(&decision).spec;
    let text = |penalty: &Option<Quantity>| penalty.as_ref().map(|one| one.0.clone());
    let warned = decision.notices.iter().filter(|one| one.warning && one.reason == "InvalidPenalty").count();
    (text(&spec.interruption_penalty), text(&spec.reclamation_penalty), warned)
}

#[test]
fn ex34_37_penalties_come_from_annotation_then_class_then_nowhere() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(penalties(Some("ml-research"), Some("1"), None), (some("1"), some("65536"), 0), "34");
    assert_eq!(penalties(Some("batch-best-effort"), None, None), (some("16"), None, 0), "35");
    assert_eq!(penalties(Some("unheard-of"), None, None), (None, None, 0), "36");
    assert_eq!(penalties(Some("batch-best-effort"), Some("abc"), None), (some("16"), None, 1), "37");
    assert_eq!(
        penalties(None, Some("-5"), Some("500m")),
        (None, some("500m"), 1),
        "a negative one counts as absent"
    );
    assert_eq!(
        penalties(None, Some(&"1".repeat(65)), None),
        (None, None, 1),
        "longer than the schema admits"
    );
}

/// Each penalty on its own: annotated, by class, or neither.
#[test]
fn penalties_resolve_independently() {
    for (interruption, expected_interruption) in [(Some("1"), Some("1")), (None, Some("8192"))] {
        for (reclamation, expected_reclamation) in [(Some("2"), Some("2")), (None, Some("65536"))] {
            let got = penalties(Some("ml-research"), interruption, reclamation);
            let expected =
                (expected_interruption.map(str::to_owned), expected_reclamation.map(str::to_owned), 0);
            assert_eq!(got, expected);
        }
    }
    for (interruption, reclamation) in
        [(Some("1"), None), (None, Some("2")), (Some("1"), Some("2")), (None, None)]
    {
        let got = penalties(None, interruption, reclamation);
        assert_eq!(got, (interruption.map(str::to_owned), reclamation.map(str::to_owned), 0));
    }
}

#[test]
fn a_file_of_defaults_that_cannot_be_used_names_class_and_field() {
    for (yaml, problem) in [
        ("a: { interruptionPenalty: \"-1\" }", "class \"a\", field \"interruptionPenalty\": is negative"),
        ("a: { interruptionPenalty: lots }", "class \"a\", field \"interruptionPenalty\": is not a number"),
        ("b: { evictionPenalty: 1 }", "class \"b\", field \"evictionPenalty\": is not known"),
        ("b: { reclamationPenalty: [1] }", "class \"b\", field \"reclamationPenalty\": is neither"),
        ("- a", "no mapping of class names"),
    ] {
        let error = Defaults::parse(yaml).unwrap_err().to_string();
        assert!(error.contains(problem), "{yaml}: {error}");
    }
    for yaml in ["", "# nothing\n", "{}", "a:\n"] {
        assert!(Defaults::parse(yaml).is_ok(), "{yaml:?}");
    }
}

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
