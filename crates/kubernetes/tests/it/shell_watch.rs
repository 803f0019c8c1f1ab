//! Watches of the operator's shell against the API server in this process. Time is tokio's paused clock.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_kubernetes::shell::{KubernetesShell, Options};
use bigfleet_net::admin::Readiness;
use bigfleet_net::clock::SystemClock;
use bigfleet_operator::io::Input;
use bigfleet_operator::service::ClusterShell as _;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use crate::fake_api::{Fake, status};

pub(crate) struct Shell {
    pub(crate) shell: KubernetesShell,
    pub(crate) registry: Registry,
    pub(crate) readiness: Readiness,
    pub(crate) halt: CancellationToken,
}

pub(crate) fn shell(fake: &Fake) -> Shell {
    shell_with(fake, false)
}

/// The same, with DaemonSets or without.
pub(crate) fn shell_with(fake: &Fake, daemon_sets: bool) -> Shell {
    let options = Options { own_pod: Some(("sys".to_owned(), "operator".to_owned())), daemon_sets };
    let mut registry = Registry::default();
    let readiness = Readiness::settable("starting");
    let halt = CancellationToken::new();
    let clock = Arc::new(SystemClock::start());
    let shell =
        KubernetesShell::new(fake.client(), options, clock, &mut registry, readiness.clone(), halt.clone());
    Shell { shell, registry, readiness, halt }
}

pub(crate) fn metrics(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

pub(crate) fn request(name: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
        "metadata": { "namespace": "a", "uid": format!("uid-{name}") },
        "spec": { "resources": { "cpu": "1" }, "priority": 10 },
    });
    (format!("namespaces/a/capacityrequests/{name}"), object)
}

pub(crate) fn put_request(fake: &Fake, name: &str, tell: bool) {
    let (path, object) = request(name);
    fake.put(&path, object, tell);
}

pub(crate) fn put_node(fake: &Fake, name: &str, tell: bool) {
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "uid": format!("uid-{name}") } });
    fake.put(&format!("nodes/{name}"), object, tell);
}

/// An input in a word, so that sequences compare.
fn word(input: &Input) -> String {
    match input {
        Input::Request(request) => format!("request {}", request.name),
        Input::RequestUnreadable(uid) => format!("unreadable {uid}"),
        Input::RequestGone(uid) => format!("request gone {uid}"),
        Input::Listing => "listing".to_owned(),
        Input::Synced => "synced".to_owned(),
        Input::Unsynced => "unsynced".to_owned(),
        Input::Node(node) => format!("node {}", node.name),
        Input::NodeGone(name) => format!("node gone {name}"),
        Input::UpcomingNode(node) => format!("upcoming {}", node.machine.as_ref().unwrap()),
        Input::UpcomingNodeGone(machine) => format!("upcoming gone {machine}"),
        Input::AvailableCapacity(hint) => format!("hint {}", hint.key),
        Input::AvailableCapacityGone(key) => format!("hint gone {key}"),
        Input::ServerVersion(version) => format!("version {version}"),
        Input::Pod(pod) => format!("pod {}", pod.name),
        Input::PodGone(uid) => format!("pod gone {uid}"),
        Input::PodsListed(node) => format!("pods listed {node}"),
        other => format!("{other:?}"),
    }
}

async fn next(inputs: &mut Receiver<Input>) -> String {
    let input = tokio::time::timeout(Duration::from_secs(300), inputs.recv()).await;
    word(&input.expect("nothing came").expect("the shell ended"))
}

async fn take(inputs: &mut Receiver<Input>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(next(inputs).await);
    }
    all
}

/// A shell whose first inputs have come: these.
async fn began(fake: &Fake, expected: &[&str]) -> (Shell, Receiver<Input>) {
    let shell = shell(fake);
    shell.shell.prime().await;
    let mut inputs = shell.shell.inputs();
    assert_eq!(take(&mut inputs, expected.len()).await, expected);
    (shell, inputs)
}

/// Waits until the watch of a resource is up, so that what is told to it is not lost.
async fn watching(fake: &Fake, resource: &str, times: usize) {
    while fake.calls("watch", resource).len() < times {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn everything_comes_once_and_then_changes() {
    let fake = Fake::default();
    put_node(&fake, "n1", false);
    put_request(&fake, "x", false);
    put_request(&fake, "y", false);
    let shell = shell(&fake);
    shell.shell.prime().await;
    let first: Vec<String> = shell.shell.first_inputs().iter().map(word).collect();
    assert_eq!(first, ["version v1.33.1", "node n1"]);
    assert_eq!(shell.readiness.reason().as_deref(), Some("not read yet: CapacityRequest"));
    let mut inputs = shell.shell.inputs();
    assert_eq!(take(&mut inputs, 4).await, ["listing", "request x", "request y", "synced"]);
    assert!(shell.readiness.is_ready());
    watching(&fake, "capacityrequests", 1).await;
    put_request(&fake, "z", true);
    fake.remove("namespaces/a/capacityrequests/x", true);
    assert_eq!(take(&mut inputs, 2).await, ["request z", "request gone uid-x"]);
    watching(&fake, "nodes", 1).await;
    put_node(&fake, "n2", true);
    fake.remove("nodes/n1", true);
    assert_eq!(take(&mut inputs, 2).await, ["node n2", "node gone n1"]);
}

#[tokio::test(start_paused = true)]
async fn drill18_a_watch_gap_is_listed_and_withdraws_nothing_in_between() {
    let fake = Fake::default();
    for name in ["x", "y"] {
        put_request(&fake, name, false);
        put_node(&fake, name, false);
    }
    let shell = shell(&fake);
    shell.shell.prime().await;
    let mut inputs = shell.shell.inputs();
    assert_eq!(take(&mut inputs, 4).await.last().unwrap(), "synced");
    watching(&fake, "capacityrequests", 1).await;
    watching(&fake, "nodes", 1).await;
    // What happens in the gap is not told.
    fake.remove("namespaces/a/capacityrequests/x", false);
    put_request(&fake, "z", false);
    fake.expire("capacityrequests");
    assert_eq!(take(&mut inputs, 4).await, ["listing", "request y", "request z", "synced"]);
    fake.remove("nodes/x", false);
    fake.expire("nodes");
    assert_eq!(take(&mut inputs, 2).await, ["node y", "node gone x"]);
}

/// The same said before the watch has begun at all: trying again from the same version would never end.
#[tokio::test(start_paused = true)]
async fn drill18_a_watch_that_may_not_begin_is_begun_with_a_list() {
    let fake = Fake::default();
    put_request(&fake, "x", false);
    let shell = shell(&fake);
    shell.shell.prime().await;
    fake.answer("watch", "capacityrequests", 410, status(410, "Expired", "too old resource version"), 3);
    let mut inputs = shell.shell.inputs();
    assert_eq!(take(&mut inputs, 3).await, ["listing", "request x", "synced"]);
    put_request(&fake, "y", false);
    assert_eq!(take(&mut inputs, 4).await, ["listing", "request x", "request y", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let fake = Fake::default();
    put_request(&fake, "x", false);
    let (_shell, mut inputs) = began(&fake, &["listing", "request x", "synced"]).await;
    watching(&fake, "capacityrequests", 1).await;
    fake.end_watches("capacityrequests");
    watching(&fake, "capacityrequests", 2).await;
    put_request(&fake, "y", true);
    assert_eq!(next(&mut inputs).await, "request y");
    assert_eq!(fake.calls("list", "capacityrequests").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn drill05_a_kind_that_is_gone_is_not_an_empty_one() {
    refused(status(404, "NotFound", "the server could not find the requested resource")).await;
}

#[tokio::test(start_paused = true)]
async fn drill06_a_kind_that_is_forbidden_is_not_an_empty_one() {
    refused(status(403, "Forbidden", "capacityrequests is forbidden")).await;
}

/// The requests could be read, are refused with `answer` for a while, and can be read again.
async fn refused(answer: Value) {
    let fake = Fake::default();
    put_request(&fake, "x", false);
    let (shell, mut inputs) = began(&fake, &["listing", "request x", "synced"]).await;
    watching(&fake, "capacityrequests", 1).await;
    // The watch ends and cannot be had again, nor can a list.
    let code = u16::try_from(answer["code"].as_u64().unwrap()).unwrap();
    fake.answer("watch", "capacityrequests", code, answer.clone(), usize::MAX);
    fake.answer("list", "capacityrequests", code, answer, usize::MAX);
    fake.end_watches("capacityrequests");
    assert_eq!(next(&mut inputs).await, "unsynced");
    assert_eq!(shell.readiness.reason().as_deref(), Some("not read yet: CapacityRequest"));
    assert!(metrics(&shell.registry).contains("cache_synced{kind=\"CapacityRequest\"} 0"));
    // However often it is refused, a list that began is never completed.
    while fake.calls("list", "capacityrequests").len() < 6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    while let Ok(input) = inputs.try_recv() {
        assert_eq!(word(&input), "listing");
    }
    fake.forget_answers();
    loop {
        match next(&mut inputs).await.as_str() {
            "listing" => {}
            "request x" => break,
            other => panic!("{other}"),
        }
    }
    assert_eq!(next(&mut inputs).await, "synced");
    assert!(shell.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_for_a_while_changes_nothing() {
    let fake = Fake::default();
    put_request(&fake, "x", false);
    let (shell, mut inputs) = began(&fake, &["listing", "request x", "synced"]).await;
    watching(&fake, "capacityrequests", 1).await;
    fake.answer("watch", "capacityrequests", 500, status(500, "InternalError", "no"), 3);
    fake.end_watches("capacityrequests");
    watching(&fake, "capacityrequests", 5).await;
    put_request(&fake, "y", true);
    assert_eq!(next(&mut inputs).await, "request y");
    assert!(shell.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn drill15_an_unreadable_request_is_told_once_and_others_count() {
    let fake = Fake::default();
    put_request(&fake, "good", false);
    let (path, mut bad) = request("bad");
    bad["spec"]["priority"] = json!("high");
    fake.put(&path, bad.clone(), false);
    let shell = shell(&fake);
    shell.shell.prime().await;
    let mut inputs = shell.shell.inputs();
    let all = take(&mut inputs, 4).await;
    assert_eq!(all, ["listing", "unreadable uid-bad", "request good", "synced"]);
    watching(&fake, "capacityrequests", 1).await;
    for _ in 0..3 {
        fake.put(&path, bad.clone(), true);
        assert_eq!(next(&mut inputs).await, "unreadable uid-bad");
    }
    put_request(&fake, "other", true);
    assert_eq!(next(&mut inputs).await, "request other");
    while fake.calls("POST", "events").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events = fake.calls("POST", "events");
    assert_eq!((events.len(), fake.calls("PATCH", "events").len()), (1, 0), "{events:?}");
    let event = &events[0].body;
    assert_eq!(event["reason"], "InvalidCapacityRequest");
    assert_eq!(
        (&event["regarding"]["namespace"], &event["regarding"]["uid"]),
        (&json!("a"), &json!("uid-bad"))
    );
    assert!(event["note"].as_str().unwrap().contains("high"), "{event}");
    let counted = "bigfleet_operator_invalid_objects_total{kind=\"CapacityRequest\"} 1\n";
    assert!(metrics(&shell.registry).contains(counted), "{}", metrics(&shell.registry));
}

#[tokio::test(start_paused = true)]
async fn read_backs_that_are_not_ours_to_read_are_left_alone() {
    let fake = Fake::default();
    let upcoming = |machine: &str| {
        json!({
            "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "UpcomingNode",
            "metadata": { "labels": { "app.kubernetes.io/managed-by": "bigfleet-operator" } },
            "spec": { "resources": {}, "machineID": machine },
        })
    };
    fake.put("upcomingnodes/un-m1", upcoming("m1"), false);
    // A second object that claims the same machine must not speak for it.
    fake.put("upcomingnodes/un-copy", upcoming("m1"), false);
    let shell = shell(&fake);
    shell.shell.prime().await;
    let first: Vec<String> = shell.shell.first_inputs().iter().map(word).collect();
    assert_eq!(first, ["version v1.33.1", "upcoming m1"]);
    let mut inputs = shell.shell.inputs();
    assert_eq!(take(&mut inputs, 2).await, ["listing", "synced"]);
    watching(&fake, "upcomingnodes", 1).await;
    fake.remove("upcomingnodes/un-copy", true);
    fake.remove("upcomingnodes/un-m1", true);
    assert_eq!(next(&mut inputs).await, "upcoming gone m1");
    let counted = "bigfleet_operator_invalid_objects_total{kind=\"UpcomingNode\"} 1\n";
    assert!(metrics(&shell.registry).contains(counted));
}

fn pod(name: &str, node: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "a", "uid": format!("uid-{name}") },
        "spec": { "nodeName": node, "containers": [] },
    });
    (format!("namespaces/a/pods/{name}"), object)
}

/// A watch that has gone silent must not hold a drain up.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_draining_node_are_listed_again_every_ten_seconds() {
    let fake = Fake::default();
    let (path, object) = pod("p1", "n1");
    fake.put(&path, object, false);
    let (shell, mut inputs) = began(&fake, &["listing", "synced"]).await;
    shell.shell.watch_pods("n1");
    assert_eq!(take(&mut inputs, 2).await, ["pod p1", "pods listed n1"]);
    fake.remove(&path, false);
    let began = tokio::time::Instant::now();
    assert_eq!(take(&mut inputs, 2).await, ["pod gone uid-p1", "pods listed n1"]);
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_are_listed_and_followed() {
    let fake = Fake::default();
    let put = |name: &str, node: &str, tell| {
        let (path, object) = pod(name, node);
        fake.put(&path, object, tell);
    };
    put("p1", "n1", false);
    put("elsewhere", "n2", false);
    // Unreadable as a whole, but there: its metadata are enough to evict it.
    let (path, mut bad) = pod("p2", "n1");
    bad["spec"]["containers"] = json!("none");
    fake.put(&path, bad, false);
    let (shell, mut inputs) = began(&fake, &["listing", "synced"]).await;
    shell.shell.watch_pods("n1");
    assert_eq!(take(&mut inputs, 3).await, ["pod p1", "pod p2", "pods listed n1"]);
    watching(&fake, "pods", 1).await;
    put("p3", "n1", true);
    assert_eq!(next(&mut inputs).await, "pod p3");
    fake.remove("namespaces/a/pods/p1", false);
    fake.expire("pods");
    let all = take(&mut inputs, 4).await;
    assert_eq!(all, ["pod p2", "pod p3", "pod gone uid-p1", "pods listed n1"]);
    // Asked again, everything comes again.
    shell.shell.watch_pods("n1");
    assert_eq!(take(&mut inputs, 3).await, ["pod p2", "pod p3", "pods listed n1"]);
    shell.shell.unwatch_pods("n1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    put("p4", "n1", true);
    put_node(&fake, "n9", true);
    assert_eq!(next(&mut inputs).await, "node n9");
}
