//! Writes of the operator's shell against the API server in this process, and the answers that the core gets.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_operator::io::{AvailableCapacity, Phase, UpcomingNode, Write, WriteError};
use bigfleet_operator::service::{ClusterShell as _, Note};
use bigfleet_types::MachineId;
use serde_json::{Value, json};

use crate::fake_api::{Fake, status};
use crate::shell_watch::{metrics, put_node, put_request, shell};

fn put_pod(fake: &Fake) {
    let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "a", "uid": "u1" },
        "spec": { "nodeName": "n", "containers": [] } });
    fake.put("namespaces/a/pods/p", object, false);
}

fn evict(uid: &str) -> Write {
    Write::Evict {
        pod: uid.into(),
        namespace: "a".to_owned(),
        name: "p".to_owned(),
        grace: Duration::from_secs(7),
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_names_uid_and_grace_and_its_answers_are_told_apart() {
    let fake = Fake::default();
    put_pod(&fake);
    let shell = shell(&fake).shell;
    let mut refused =
        status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.");
    refused["details"] = json!({ "retryAfterSeconds": 10, "causes": [
        { "reason": "DisruptionBudget", "message": "The disruption budget bud needs 1 healthy pods and has 1 currently" } ] });
    fake.answer("POST", "eviction", 429, refused, 1);
    match shell.write(evict("u1")).await {
        Err(WriteError::TooMany { retry_after, message }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(10)));
            assert!(message.contains("budget bud needs 1"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // One call, no retry behind our back.
    let calls = fake.calls("POST", "pods/p/eviction");
    assert_eq!(calls.len(), 1);
    assert_eq!(
        calls[0].body["deleteOptions"],
        json!({ "gracePeriodSeconds": 7, "preconditions": { "uid": "u1" } })
    );
    fake.answer("POST", "eviction", 429, status(429, "TooManyRequests", "slow down"), 1);
    let throttled = WriteError::TooMany { retry_after: None, message: "slow down".to_owned() };
    assert_eq!(shell.write(evict("u1")).await, Err(throttled));
    fake.answer("POST", "eviction", 500, status(500, "InternalError", "two budgets"), 1);
    assert_eq!(shell.write(evict("u1")).await, Err(WriteError::Other("500: two budgets".to_owned())));
    // Another pod of the same name (drill 17), the right one, and none.
    assert_eq!(shell.write(evict("u0")).await, Err(WriteError::Conflict));
    assert_eq!(shell.write(evict("u1")).await, Ok(()));
    assert_eq!(shell.write(evict("u1")).await, Err(WriteError::Gone));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_patched_and_only_what_is_named() {
    let fake = Fake::default();
    put_node(&fake, "n", false);
    let shell = shell(&fake).shell;
    let annotations = BTreeMap::from([("bigfleet.lucy.sh/x".to_owned(), "1".to_owned())]);
    let node = || "n".to_owned();
    let uid = || "uid-n".into();
    assert_eq!(shell.write(Write::Cordon { node: node(), uid: uid(), annotations }).await, Ok(()));
    let stored = fake.get("nodes/n").unwrap();
    assert_eq!(
        (&stored["spec"]["unschedulable"], &stored["metadata"]["annotations"]["bigfleet.lucy.sh/x"]),
        (&json!(true), &json!("1"))
    );
    let labels = BTreeMap::from([("l".to_owned(), "v".to_owned())]);
    assert_eq!(shell.write(Write::LabelNode { node: node(), uid: uid(), labels }).await, Ok(()));
    let annotations = vec!["bigfleet.lucy.sh/x".to_owned()];
    assert_eq!(shell.write(Write::Uncordon { node: node(), uid: uid(), annotations }).await, Ok(()));
    let stored = fake.get("nodes/n").unwrap();
    assert_eq!(stored["spec"].get("unschedulable"), None);
    assert_eq!(stored["metadata"]["annotations"], json!({}));
    assert_eq!(stored["metadata"]["labels"], json!({ "l": "v" }));
    // A node of the same name that is another one stays as it is.
    let cordon = Write::Cordon { node: node(), uid: "other".into(), annotations: BTreeMap::new() };
    assert_eq!(shell.write(cordon).await, Err(WriteError::Gone));
    assert_eq!(fake.get("nodes/n").unwrap()["spec"].get("unschedulable"), None);
    let wrong = Write::DeleteNode { node: node(), uid: "other".into() };
    assert_eq!(shell.write(wrong).await, Err(WriteError::Gone));
    assert!(fake.get("nodes/n").is_some());
    assert_eq!(shell.write(Write::DeleteNode { node: node(), uid: "uid-n".into() }).await, Ok(()));
    let annotations = BTreeMap::new();
    assert_eq!(
        shell.write(Write::Cordon { node: node(), uid: uid(), annotations }).await,
        Err(WriteError::Gone)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_is_acknowledged_in_its_status_alone() {
    let fake = Fake::default();
    put_request(&fake, "x", false);
    let shell = shell(&fake).shell;
    let write = |name: &str| Write::AcknowledgeRequest {
        uid: "uid-x".into(),
        namespace: "a".to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(shell.write(write("x")).await, Ok(()));
    let call = &fake.calls("PATCH", "capacityrequests/x/status")[0];
    assert_eq!(call.body["status"]["phase"], "Acknowledged");
    let at = call.body["status"]["acknowledgedAt"].as_str().unwrap();
    assert!(at.len() == 20 && at.ends_with('Z'), "{at}");
    assert_eq!(call.body.as_object().unwrap().len(), 1, "{}", call.body);
    assert_eq!(shell.write(write("gone")).await, Err(WriteError::Gone));
}

fn upcoming(phase: Phase, cpu: &str) -> UpcomingNode {
    UpcomingNode {
        machine: Some(MachineId::parse("m1").unwrap()),
        resources: BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]),
        phase,
        last_error: if phase == Phase::Failed { "boom".to_owned() } else { String::new() },
        ..UpcomingNode::default()
    }
}

fn put(node: UpcomingNode) -> Write {
    Write::PutUpcomingNode(Box::new(node))
}

#[tokio::test(start_paused = true)]
async fn an_upcoming_node_costs_its_spec_once_and_its_status_each_time() {
    let fake = Fake::default();
    let fixture = shell(&fake);
    let shell = &fixture.shell;
    let counts = || (fake.calls("PATCH", "un-m1").len(), fake.calls("PATCH", "un-m1/status").len());
    let phase = || fake.get("upcomingnodes/un-m1").unwrap()["status"]["phase"].clone();
    assert_eq!(shell.write(put(upcoming(Phase::Registered, "4"))).await, Ok(()));
    assert_eq!((counts(), phase()), ((2, 1), json!("Registered")));
    let applied = &fake.calls("PATCH", "upcomingnodes/un-m1")[0].body;
    assert_eq!(
        (&applied["apiVersion"], &applied["kind"]),
        (&json!("bigfleet.lucy.sh/v1alpha1"), &json!("UpcomingNode"))
    );
    assert_eq!(applied["metadata"]["labels"]["bigfleet.lucy.sh/machine-id"], "m1");
    assert_eq!(applied.get("status"), None);
    assert_eq!(shell.write(put(upcoming(Phase::Failed, "4"))).await, Ok(()));
    assert_eq!((counts(), phase()), ((3, 2), json!("Failed")));
    assert_eq!(shell.write(put(upcoming(Phase::Ready, "8"))).await, Ok(()));
    assert_eq!((counts(), phase()), ((5, 3), json!("Ready")));
    let stored = fake.get("upcomingnodes/un-m1").unwrap();
    assert_eq!((stored["status"].get("lastError"), &stored["spec"]["resources"]["cpu"]), (None, &json!("8")));
    // Somebody deletes it: the next write makes it anew.
    fake.remove("upcomingnodes/un-m1", false);
    assert_eq!(shell.write(put(upcoming(Phase::Draining, "8"))).await, Ok(()));
    assert_eq!(phase(), json!("Draining"));
    let text = metrics(&fixture.registry);
    for line in ["op=\"create\",outcome=\"success\"} 2", "op=\"spec_update\",outcome=\"success\"} 1"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upcoming_node_is_deleted_by_uid() {
    let fake = Fake::default();
    let shell = shell(&fake).shell;
    let delete = || Write::DeleteUpcomingNode { machine: MachineId::parse("m1").unwrap() };
    assert_eq!(shell.write(put(upcoming(Phase::Ready, "4"))).await, Ok(()));
    fake.remove("upcomingnodes/un-m1", false);
    fake.put(
        "upcomingnodes/un-m1",
        json!({ "metadata": { "uid": "another" }, "spec": { "resources": {} } }),
        false,
    );
    assert_eq!(shell.write(delete()).await, Err(WriteError::Conflict));
    fake.remove("upcomingnodes/un-m1", false);
    assert_eq!(shell.write(delete()).await, Err(WriteError::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_no_missing_object() {
    let fake = Fake::default();
    let shell = shell(&fake).shell;
    let gone = status(404, "NotFound", "the server could not find the requested resource");
    fake.answer("PATCH", "", 404, gone, usize::MAX);
    let hint = AvailableCapacity {
        key: "k".to_owned(),
        cost_per_hour: "1".to_owned(),
        ..AvailableCapacity::default()
    };
    for write in [put(upcoming(Phase::Ready, "4")), Write::PutAvailableCapacity(Box::new(hint))] {
        match shell.write(write).await {
            Err(WriteError::Other(message)) => assert!(message.contains("install the CRDs"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hints_come_and_go_by_their_key() {
    let fake = Fake::default();
    let shell = shell(&fake).shell;
    let hint = AvailableCapacity {
        key: "k".to_owned(),
        confidence: "High",
        count: 3,
        cost_per_hour: "31.22".to_owned(),
        ..AvailableCapacity::default()
    };
    assert_eq!(shell.write(Write::PutAvailableCapacity(Box::new(hint))).await, Ok(()));
    let path = fake.calls("PATCH", "availablecapacities")[0].path.clone();
    let stored = fake.get(&path).unwrap();
    assert_eq!((&stored["spec"]["availableCount"], &stored["spec"]["cost"]), (&json!(3), &json!("31.22")));
    let delete = || Write::DeleteAvailableCapacity { key: "k".to_owned() };
    assert_eq!(shell.write(delete()).await, Ok(()));
    assert_eq!(shell.write(delete()).await, Err(WriteError::Gone));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_halt() {
    let fake = Fake::default();
    put_pod(&fake);
    let fixture = shell(&fake);
    fixture.halt.cancel();
    assert!(matches!(fixture.shell.write(evict("u1")).await, Err(WriteError::Other(_))));
    assert!(fake.calls("POST", "").is_empty());
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_up_and_dropped_beyond_the_budget() {
    let fake = Fake::default();
    put_node(&fake, "n", false);
    let shell = shell(&fake).shell;
    shell.prime().await;
    let note = |about: &str, message: &str| Note {
        about: ("Node".to_owned(), about.to_owned()),
        warning: true,
        reason: "BigFleetDrainTimeout",
        message: message.to_owned(),
    };
    shell.note(note("n", "first"));
    shell.note(note("n", "second"));
    while fake.calls("PATCH", "events").is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let first = &fake.calls("POST", "events")[0];
    assert_eq!(first.path, "namespaces/default/events");
    let regarding = &first.body["regarding"];
    assert_eq!((&regarding["kind"], &regarding["uid"]), (&json!("Node"), &json!("uid-n")));
    assert_eq!(
        (&first.body["type"], &first.body["reportingController"]),
        (&json!("Warning"), &json!("bigfleet-operator"))
    );
    assert_eq!(fake.calls("PATCH", "events")[0].body["series"]["count"], json!(2));
    for number in 0..1000 {
        shell.note(note(&format!("n{number}"), &"x".repeat(3000)));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sent = fake.calls("POST", "events");
    assert!((50..=110).contains(&sent.len()), "{}", sent.len());
    let longest = sent.iter().filter_map(|call| call.body["note"].as_str()).map(str::len).max();
    assert_eq!(longest, Some(1024));
    assert!(sent.iter().all(|call| call.body["regarding"] != Value::Null));
}
