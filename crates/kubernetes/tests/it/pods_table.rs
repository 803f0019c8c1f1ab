//! Whose turn it is: gates, lists that replace, retries, one job a pod at a time, orphans.

use std::time::Duration;

use bigfleet_kubernetes::pods::core::{Action, Current, Outcome, Rules};
use bigfleet_kubernetes::pods::table::{Ended, Event, Held, Job, Key, Kind, Seen, Table, key};
use bigfleet_types::UnixNanos;
use serde_json::{Value, json};

use crate::pods_kit::{NOW, applied, arc, held};

fn named(name: &str, patch: Value) -> Event {
    let mut patch = patch;
    patch["metadata"]["name"] = json!(name);
    if patch["metadata"]["uid"].is_null() {
        patch["metadata"]["uid"] = json!(format!("uid-{name}"));
    }
    Event::Pod(key("training", name), Seen::Readable(arc(patch)))
}

/// A table that knows everything there is: nothing.
fn empty() -> Table {
    let mut table = Table::new(Rules::default(), true);
    for kind in [Kind::Pod, Kind::CapacityRequest, Kind::Node] {
        table.on(Event::Listing(kind));
        table.on(Event::Listed(kind));
    }
    table
}

fn jobs(table: &mut Table, now: UnixNanos) -> Vec<Job> {
    std::iter::from_fn(|| table.next(now)).collect()
}

/// Does what the job says, the way an API server would, and lets the watch say so.
fn carry_out(table: &mut Table, job: &Job, now: UnixNanos) {
    let (answer, event) = match &job.decision.action {
        Action::Nothing => (None, None),
        Action::Apply(object) => {
            let current = held(object, &format!("cr-{}", job.key.1));
            let at = key(&job.key.0, object.metadata.name.as_deref().unwrap());
            let held = Held { current: current.clone(), pod_name: Some(job.key.1.clone()) };
            (Some(current), Some(Event::Request(at, held)))
        }
        Action::Delete { name, .. } => (None, Some(Event::RequestGone(key(&job.key.0, name)))),
    };
    table.done(job, Ended::Done(answer), now, 0);
    if let Some(event) = event {
        table.on(event);
    }
}

fn settle(table: &mut Table, now: UnixNanos) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(job) = table.next(now) {
        outcomes.push(job.decision.outcome);
        carry_out(table, &job, now);
    }
    outcomes
}

#[test]
fn nothing_is_decided_before_everything_is_listed() {
    let mut table = Table::new(Rules::default(), true);
    assert_eq!(table.missing(), [Kind::Pod, Kind::CapacityRequest, Kind::Node]);
    table.on(Event::Listing(Kind::Pod));
    table.on(named("a", json!({})));
    table.on(Event::Listed(Kind::Pod));
    assert_eq!(table.next(NOW), None);
    table.on(Event::Listing(Kind::CapacityRequest));
    table.on(Event::Listed(Kind::CapacityRequest));
    assert_eq!(table.next(NOW), None, "nodes decide which pods count");
    table.on(Event::Listing(Kind::Node));
    table.on(Event::Listed(Kind::Node));
    assert_eq!(settle(&mut table, NOW), [Outcome::Created]);
    let mut without_nodes = Table::new(Rules::default(), false);
    for kind in [Kind::Pod, Kind::CapacityRequest] {
        without_nodes.on(Event::Listing(kind));
        without_nodes.on(Event::Listed(kind));
    }
    assert!(without_nodes.missing().is_empty());
}

/// The watch lags: the pod changes again before the CapacityRequest has been seen.
#[test]
fn ex40_a_lagging_watch_makes_no_second_request() {
    let mut table = empty();
    table.on(named("a", json!({})));
    let job = table.next(NOW).unwrap();
    let object = applied(&job.decision).clone();
    table.on(named("a", json!({ "spec": { "nodeName": "n1" } })));
    assert_eq!(table.next(NOW), None, "one job a pod at a time");
    table.done(&job, Ended::Done(Some(held(&object, "cr-a"))), NOW, 0);
    let again = table.next(NOW).unwrap();
    assert_eq!((&again.decision.action, again.decision.outcome), (&Action::Nothing, Outcome::Exists));
    table.done(&again, Ended::Done(None), NOW, 0);
    table.on(named("a", json!({ "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } })));
    assert!(settle(&mut table, NOW).is_empty(), "nothing that matters has changed");
}

/// Somebody deleted it before the watch could show it: the answer is not believed for ever.
#[test]
fn an_answer_that_no_watch_confirms_expires() {
    let mut table = empty();
    table.on(named("a", json!({})));
    let job = table.next(NOW).unwrap();
    let current = held(applied(&job.decision), "cr-a");
    table.done(&job, Ended::Done(Some(current)), NOW, 0);
    assert_eq!(table.next(NOW.after(Duration::from_secs(59))), None);
    let later = NOW.after(Duration::from_secs(61));
    assert_eq!(table.next(later).unwrap().decision.outcome, Outcome::Created);
}

#[test]
fn a_request_that_somebody_deletes_comes_back() {
    let mut table = empty();
    table.on(named("a", json!({})));
    settle(&mut table, NOW);
    let name = "a";
    let request = bigfleet_kubernetes::crd::names::capacity_request(name, "uid-a");
    table.on(Event::RequestGone(key("training", &request)));
    assert_eq!(settle(&mut table, NOW), [Outcome::Created]);
}

#[test]
fn drill18_a_list_replaces_at_its_end() {
    let mut table = empty();
    for name in ["a", "b"] {
        table.on(named(name, json!({})));
    }
    settle(&mut table, NOW);
    table.on(Event::Listing(Kind::Pod));
    assert_eq!(table.sizes().0, 2, "what was known stays");
    assert!(table.on(named("b", json!({}))).is_empty());
    assert_eq!(table.next(NOW), None);
    assert_eq!(table.on(Event::Listed(Kind::Pod)), ["uid-a"]);
    assert_eq!(table.sizes().0, 1);
    assert_eq!(settle(&mut table, NOW), [Outcome::PodGone], "only what changed is looked at");
    // A list of CapacityRequests that misses one makes it again.
    table.on(Event::Listing(Kind::CapacityRequest));
    table.on(Event::Listed(Kind::CapacityRequest));
    assert_eq!(settle(&mut table, NOW), [Outcome::PodGone, Outcome::Created]);
}

#[test]
fn failures_come_back_later_and_later_and_changes_at_once() {
    let mut table = empty();
    table.on(named("a", json!({})));
    let mut now = NOW;
    let mut delays = Vec::new();
    for _ in 0..8 {
        let job = table.next(now).unwrap();
        table.done(&job, Ended::Retry(None), now, u64::MAX);
        let wake = table.wakes().unwrap();
        delays.push(wake.since(now));
        assert_eq!(table.next(now), None);
        now = wake;
    }
    let millis: Vec<u128> = delays.iter().map(|delay| delay.as_millis().div_ceil(10) * 10).collect();
    assert_eq!(millis, [250, 500, 1000, 2000, 4000, 8000, 10000, 10000]);
    let job = table.next(now).unwrap();
    table.done(&job, Ended::Retry(Some(Duration::from_secs(60))), now, 0);
    assert_eq!(table.wakes().unwrap().since(now), Duration::from_secs(60), "the server's word is heard");
    table.on(named("a", json!({ "spec": { "nodeName": "n1" } })));
    assert!(table.next(now).is_some(), "a change does not wait");
}

#[test]
fn what_is_refused_waits_long_unless_the_pod_changes() {
    let mut table = empty();
    table.on(named("a", json!({})));
    let job = table.next(NOW).unwrap();
    table.done(&job, Ended::Refused, NOW, 0);
    assert_eq!(table.wakes().unwrap().since(NOW), Duration::from_secs(300));
    table.on(named("a", json!({ "spec": { "nodeSelector": { "zone": "a" } } })));
    assert!(table.next(NOW).is_some());
}

/// A pod that cannot be read changes nothing: neither is its CapacityRequest touched nor taken for an orphan.
#[test]
fn drill15_a_poison_pod_changes_nothing() {
    let mut table = empty();
    table.on(named("a", json!({})));
    table.on(named("b", json!({})));
    settle(&mut table, NOW);
    table.on(Event::Pod(key("training", "a"), Seen::Unreadable("uid-a".to_owned())));
    assert_eq!(table.next(NOW), None);
    table.sweep();
    assert!(!table.has_orphans());
    table.on(named("b", json!({ "status": { "phase": "Failed" } })));
    assert_eq!(settle(&mut table, NOW)[0], Outcome::PodTerminal, "others go on");
}

/// A CapacityRequest of ours that cannot be read is written again.
#[test]
fn drill15_a_poison_request_is_put_right() {
    let mut table = empty();
    table.on(named("a", json!({})));
    settle(&mut table, NOW);
    let at = key("training", &bigfleet_kubernetes::crd::names::capacity_request("a", "uid-a"));
    let current = Current {
        uid: "cr-a".into(),
        pod: Some("uid-a".into()),
        hash: None,
        acknowledged: false,
        deleting: false,
    };
    table.on(Event::Request(at, Held { current, pod_name: Some("a".to_owned()) }));
    assert_eq!(settle(&mut table, NOW)[0], Outcome::Updated);
}

#[test]
fn nodes_that_are_not_the_fleets_take_their_pods_along() {
    let mut table = empty();
    table.on(named("a", json!({ "spec": { "nodeName": "n1" } })));
    assert_eq!(settle(&mut table, NOW)[0], Outcome::Created);
    table.on(Event::Node("n1".to_owned()));
    assert_eq!(settle(&mut table, NOW)[0], Outcome::PodExcluded);
    table.on(Event::NodeGone("n1".to_owned()));
    assert_eq!(settle(&mut table, NOW)[0], Outcome::Created);
}

#[test]
fn new_rules_look_at_every_pod_again() {
    let mut table = empty();
    table.on(named("a", json!({ "spec": { "priorityClassName": "gold" } })));
    settle(&mut table, NOW);
    let defaults =
        bigfleet_kubernetes::pods::penalties::Defaults::parse("gold: { interruptionPenalty: 5 }").unwrap();
    table.set_rules(Rules { defaults, ..Rules::default() });
    assert_eq!(settle(&mut table, NOW), [Outcome::Updated]);
}

fn orphans(table: &mut Table) -> Vec<Key> {
    table.sweep();
    std::iter::from_fn(|| table.next_orphan()).map(|one| one.key).collect()
}

#[test]
fn requests_without_a_pod_are_orphans_and_second_ones_too() {
    let mut table = empty();
    table.on(named("a", json!({})));
    settle(&mut table, NOW);
    assert!(orphans(&mut table).is_empty());
    let of_pod = |pod: Option<&str>| Held {
        current: Current {
            uid: "x".into(),
            pod: pod.map(str::to_owned),
            hash: None,
            acknowledged: false,
            deleting: false,
        },
        pod_name: None,
    };
    table.on(Event::Request(key("training", "cr-gone"), of_pod(Some("uid-gone"))));
    table.on(Event::Request(key("training", "cr-pod-a-x7k2p"), of_pod(Some("uid-a"))));
    table.on(Event::Request(key("training", "by-hand"), of_pod(None)));
    assert_eq!(orphans(&mut table), [key("training", "cr-gone"), key("training", "cr-pod-a-x7k2p")]);
}

/// Drill 16, without the API server: one request a pod, and the queue is drained in one pass.
#[test]
fn drill16_many_pods_at_once_get_one_request_each() {
    let mut table = empty();
    for i in 0..5_000 {
        table.on(named(&format!("p-{i}"), json!({})));
        if i % 3 == 0 {
            table.on(named(&format!("p-{i}"), json!({ "spec": { "nodeName": "n1" } })));
        }
    }
    let first = jobs(&mut table, NOW);
    assert_eq!(first.len(), 5_000);
    assert!(first.iter().all(|job| job.decision.outcome == Outcome::Created));
    for job in &first {
        carry_out(&mut table, job, NOW);
    }
    assert!(settle(&mut table, NOW).iter().all(|outcome| *outcome == Outcome::Exists));
    assert_eq!(table.sizes(), (5_000, 5_000));
}

/// A pod of the same name with another uid is another pod: it gets its own request.
#[test]
fn a_recreated_pod_gets_its_own_request() {
    let mut table = empty();
    table.on(named("a", json!({})));
    settle(&mut table, NOW);
    assert_eq!(table.on(named("a", json!({ "metadata": { "uid": "uid-second" } }))), ["uid-a"]);
    let job = table.next(NOW).unwrap();
    let name = applied(&job.decision).metadata.name.clone().unwrap();
    assert_eq!(name, bigfleet_kubernetes::crd::names::capacity_request("a", "uid-second"));
    carry_out(&mut table, &job, NOW);
    assert_eq!(orphans(&mut table).len(), 1, "the first one's, should the garbage collector be slow");
}

/// 403 "being terminated": nothing can be made there any more, however often its pods change.
#[test]
fn a_namespace_that_ends_is_left_alone() {
    let mut table = empty();
    for name in ["a", "b", "c"] {
        table.on(named(name, json!({})));
    }
    let job = table.next(NOW).unwrap();
    table.done(&job, Ended::Moot, NOW, 0);
    for round in 0..20 {
        table.on(named("a", json!({ "metadata": { "labels": { "round": format!("{round}") } } })));
        table.on(named("b", json!({ "spec": { "nodeName": format!("n-{round}") } })));
        for job in jobs(&mut table, NOW) {
            assert_eq!((&job.decision.action, job.decision.outcome), (&Action::Nothing, Outcome::PodGone));
            table.done(&job, Ended::Done(None), NOW, 0);
        }
    }
    let other = json!({ "metadata": { "namespace": "research", "name": "d", "uid": "uid-d" } });
    table.on(Event::Pod(key("research", "d"), Seen::Readable(arc(other))));
    let asked: Vec<Job> = jobs(&mut table, NOW);
    assert!(matches!(&asked[..], [job] if matches!(job.decision.action, Action::Apply(_))), "{asked:?}");
    // A namespace of the same name that comes back is noticed.
    let later = table.wakes().unwrap();
    assert!(later.since(NOW) <= Duration::from_secs(30));
    let asked = jobs(&mut table, later);
    assert!(!asked.is_empty() && asked.iter().all(|job| matches!(job.decision.action, Action::Apply(_))));
}
