//! The worked examples of the pod controller, and every row of its tables.

use bigfleet_kubernetes::pods::core::{Action, Outcome, Rules};
use bigfleet_kubernetes::pods::facts::parse_requests;
use bigfleet_kubernetes::pods::penalties::Defaults;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::pods_kit::{applied, decided, facts, requirements, resources, spec};

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

pub(crate) fn affinity(terms: Value) -> Value {
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

pub(crate) fn gang(labels: Value, terms: Value) -> Value {
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

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn ex34_an_annotation_goes_before_the_class() {
    assert_eq!(penalties(Some("ml-research"), Some("1"), None), (some("1"), some("65536"), 0));
}

#[test]
fn ex35_without_an_annotation_the_class_counts() {
    assert_eq!(penalties(Some("batch-best-effort"), None, None), (some("16"), None, 0));
}

#[test]
fn ex36_an_unknown_class_has_no_penalties() {
    assert_eq!(penalties(Some("unheard-of"), None, None), (None, None, 0));
}

#[test]
fn ex37_an_annotation_that_cannot_be_used_is_told_and_counts_as_absent() {
    assert_eq!(penalties(Some("batch-best-effort"), Some("abc"), None), (some("16"), None, 1));
    assert_eq!(penalties(None, Some("-5"), Some("500m")), (None, some("500m"), 1), "a negative one");
    let long = "1".repeat(65);
    assert_eq!(penalties(None, Some(&long), None), (None, None, 1), "longer than the schema admits");
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
