//! The cluster in memory as a plain value: its controllers, binder, budgets and watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_operator::core::Order;
use bigfleet_operator::io::{Input, Uid, UpcomingNode, Write, WriteError};
use bigfleet_operator::memory::{
    ApplyError, Budget, Config, Deployment, DisruptionReason, PodPhase, PodSpec, Store,
};
use bigfleet_types::{MachineId, UnixNanos};

const SECOND: Duration = Duration::from_secs(1);
const T0: UnixNanos = UnixNanos(1_000_000_000_000);

fn at(seconds: u64) -> UnixNanos {
    T0.after(SECOND * u32::try_from(seconds).unwrap())
}

fn quick() -> Config {
    Config {
        watch_latency: Duration::ZERO,
        watch_jitter: Duration::ZERO,
        node_ready: Duration::ZERO,
        pod_start: Duration::ZERO,
        ..Config::default()
    }
}

fn amounts(cpu: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("cpu".to_owned(), cpu.to_owned())])
}

fn deployment(name: &str, replicas: u32, cpu: &str) -> Deployment {
    Deployment {
        namespace: "apps".to_owned(),
        name: name.to_owned(),
        replicas,
        pod: PodSpec { requests: amounts(cpu), ..PodSpec::default() },
        daemon_set: false,
    }
}

fn typed(machine: &str) -> BTreeMap<String, String> {
    [("node.kubernetes.io/instance-type", "m"), ("host", machine)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

fn join(store: &mut Store, now: UnixNanos, machine: &str, cpu: &str) -> String {
    store.join_node(now, &MachineId::trusted(machine), typed(machine), &amounts(cpu)).unwrap()
}

/// Steps until nothing is due at `now`.
fn settle(store: &mut Store, now: UnixNanos) -> Vec<Input> {
    let mut inputs = store.step(now);
    while store.next_wake(now).is_some_and(|wake| wake <= now) {
        inputs.extend(store.step(now));
    }
    inputs
}

fn node_uid(store: &Store, name: &str) -> Uid {
    store.view(T0).nodes.into_iter().find(|node| node.name == name).unwrap().uid
}

fn on(store: &Store, now: UnixNanos, node: &str) -> usize {
    store.view(now).nodes.iter().find(|n| n.name == node).map_or(0, |n| n.pods)
}

fn evict(store: &mut Store, now: UnixNanos, node: &str) -> Result<(), WriteError> {
    let view = store.view(now);
    let pod =
        view.pods.iter().find(|p| p.node.as_deref() == Some(node) && p.phase == PodPhase::Running).unwrap();
    let (pod, namespace, name) = (pod.uid.clone(), pod.namespace.clone(), pod.name.clone());
    store.write(now, &Write::Evict { pod, namespace, name, grace: SECOND * 30 })
}

#[test]
fn pods_go_to_the_fullest_node_that_takes_them() {
    let mut store = Store::new(quick());
    for machine in ["a", "b", "c"] {
        join(&mut store, T0, machine, "8");
    }
    store.apply_deployment(deployment("web", 5, "2")).unwrap();
    settle(&mut store, T0);
    assert_eq!([on(&store, T0, "node-a"), on(&store, T0, "node-b"), on(&store, T0, "node-c")], [4, 1, 0]);
    assert_eq!(store.view(T0).requests, 5);
    assert!(store.view(T0).all_running());

    store.apply_deployment(deployment("big", 1, "6")).unwrap();
    settle(&mut store, T0);
    assert_eq!(on(&store, T0, "node-b"), 2, "2 + 6 fills b before c is touched");
    store.scale("web", 3).unwrap();
    settle(&mut store, T0);
    assert_eq!([on(&store, T0, "node-a"), on(&store, T0, "node-b")], [3, 1], "the youngest went");
    assert_eq!((store.view(T0).requests, store.view(T0).disruptions.scaled_down), (4, 2));
}

#[test]
fn requirements_priority_and_cordons_are_kept() {
    let mut store = Store::new(quick());
    let condition = |operator: &str, values: &[&str]| {
        vec![("host".to_owned(), operator.to_owned(), values.iter().map(|v| (*v).to_owned()).collect())]
    };
    join(&mut store, T0, "a", "2");
    join(&mut store, T0, "b", "2");
    for (name, requirements, want) in [
        ("in", condition("In", &["b"]), Some("node-b")),
        ("not-in", condition("NotIn", &["a"]), Some("node-b")),
        ("missing", condition("DoesNotExist", &[]), None),
        ("exists", condition("Exists", &[]), Some("node-a")),
    ] {
        let mut one = deployment(name, 1, "1");
        one.pod.requirements = requirements;
        store.apply_deployment(one).unwrap();
        settle(&mut store, T0);
        let view = store.view(T0);
        let pod = view.pods.iter().find(|p| p.deployment == name).unwrap();
        assert_eq!(pod.node.as_deref(), want, "{name}");
    }
    // One place is left, on a: the important pod gets it although it is younger.
    store.apply_deployment(deployment("low", 1, "1")).unwrap();
    let mut high = deployment("high", 1, "1");
    high.pod.priority = 10;
    store.apply_deployment(high).unwrap();
    settle(&mut store, T0);
    let view = store.view(T0);
    let phase = |name: &str| view.pods.iter().find(|p| p.deployment == name).unwrap().phase;
    assert_eq!((phase("high"), phase("low")), (PodPhase::Running, PodPhase::Pending));

    join(&mut store, T0, "c", "8");
    store
        .write(
            T0,
            &Write::Cordon {
                node: "node-c".to_owned(),
                uid: node_uid(&store, "node-c"),
                annotations: BTreeMap::new(),
            },
        )
        .unwrap();
    settle(&mut store, T0);
    assert_eq!(on(&store, T0, "node-c"), 0);
    store
        .write(
            T0,
            &Write::Uncordon {
                node: "node-c".to_owned(),
                uid: node_uid(&store, "node-c"),
                annotations: Vec::new(),
            },
        )
        .unwrap();
    settle(&mut store, T0);
    assert_eq!(on(&store, T0, "node-c"), 1);
}

#[test]
fn ended_pods_name_what_the_drain_of_their_node_followed() {
    const INSTRUCTION: &str = "bigfleet.lucy.sh/drain-instruction";
    for (annotation, expected) in [
        (None, Order::None),
        (Some("draining/a"), Order::Unasked),
        (Some("i-7"), Order::Instruction("i-7".to_owned())),
    ] {
        let mut store = Store::new(quick());
        join(&mut store, T0, "a", "8");
        store.apply_deployment(deployment("web", 1, "1")).unwrap();
        settle(&mut store, T0);
        let pod = store.view(T0).pods[0].clone();
        let annotations = annotation.map(|text| (INSTRUCTION.to_owned(), text.to_owned()));
        let annotations = annotations.into_iter().collect();
        store
            .write(
                T0,
                &Write::Cordon { node: "node-a".to_owned(), uid: node_uid(&store, "node-a"), annotations },
            )
            .unwrap();
        let evict = Write::Evict { pod: pod.uid, namespace: pod.namespace, name: pod.name, grace: SECOND };
        store.write(T0, &evict).unwrap();
        assert_eq!(store.evictions()[0].order, expected);
    }
}

#[test]
fn evicted_pods_come_back_under_a_new_uid() {
    let mut store = Store::new(quick());
    join(&mut store, T0, "a", "8");
    let mut web = deployment("web", 1, "1");
    web.pod.shutdown = SECOND * 20;
    store.apply_deployment(web).unwrap();
    settle(&mut store, T0);
    let first = store.view(T0).pods[0].clone();
    let evict_first = |grace| Write::Evict {
        pod: first.uid.clone(),
        namespace: first.namespace.clone(),
        name: first.name.clone(),
        grace,
    };
    store.write(T0, &evict_first(SECOND * 5)).unwrap();
    settle(&mut store, T0);
    let view = store.view(T0);
    assert_eq!((view.pods.len(), view.pods_in(PodPhase::Terminating), view.requests), (2, 1, 2));
    store.write(at(1), &evict_first(SECOND * 5)).unwrap();
    assert_eq!(
        store.view(at(1)).disruptions.evicted,
        1,
        "a second eviction of a pod that is going counts for nothing"
    );

    assert_eq!(store.next_wake(at(1)), Some(at(5)), "the grace cuts the shutdown off");
    settle(&mut store, at(5));
    let view = store.view(at(5));
    assert_eq!((view.pods.len(), view.requests), (1, 1));
    assert_ne!(view.pods[0].uid, first.uid);
    assert_eq!(store.write(at(5), &evict_first(SECOND)), Err(WriteError::Gone));
    let log = store.evictions();
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].pod.clone(), log[0].reason), (first.uid.clone(), DisruptionReason::Evicted));
}

#[test]
fn budgets_refuse_evictions_until_replacements_run() {
    let mut store = Store::new(Config { pod_start: SECOND * 10, ..quick() });
    join(&mut store, T0, "a", "2");
    join(&mut store, T0, "b", "2");
    store.apply_deployment(deployment("web", 2, "1")).unwrap();
    let budget = |name: &str| Budget {
        namespace: "apps".to_owned(),
        name: name.to_owned(),
        deployment: "web".to_owned(),
        min_available: 1,
    };
    store.apply_budget(budget("keep-one"));
    settle(&mut store, T0);
    let now = at(10);
    store
        .write(
            now,
            &Write::Cordon {
                node: "node-a".to_owned(),
                uid: node_uid(&store, "node-a"),
                annotations: BTreeMap::new(),
            },
        )
        .unwrap();
    evict(&mut store, now, "node-a").unwrap();
    settle(&mut store, now);
    let refused = evict(&mut store, now, "node-a").unwrap_err();
    assert_eq!(
        refused,
        WriteError::TooMany {
            retry_after: None,
            message: "PDB apps/keep-one needs 1 healthy pods and has 1".to_owned()
        }
    );
    let now = at(20);
    settle(&mut store, now);
    evict(&mut store, now, "node-a").unwrap();
    settle(&mut store, now);
    assert_eq!(on(&store, now, "node-a"), 0);
    assert_eq!((store.view(now).disruptions.evicted, store.view(now).disruptions.refused), (2, 1));

    store.apply_budget(budget("second"));
    let now = at(40);
    settle(&mut store, now);
    assert!(
        matches!(evict(&mut store, now, "node-b"), Err(WriteError::Other(m)) if m.contains("both cover"))
    );
    store.remove_budget("second");
    store.remove_budget("keep-one");
    evict(&mut store, now, "node-b").unwrap();
}

#[test]
fn a_machine_that_goes_takes_its_pods_along() {
    let mut store = Store::new(quick());
    join(&mut store, T0, "a", "2");
    store.apply_deployment(deployment("web", 2, "1")).unwrap();
    settle(&mut store, T0);
    assert!(store.remove_node(T0, &MachineId::trusted("a")));
    assert!(!store.remove_node(T0, &MachineId::trusted("a")));
    settle(&mut store, T0);
    let view = store.view(T0);
    assert_eq!((view.disruptions.node_lost, view.pods.len(), view.requests), (2, 2, 2));
    assert_eq!(view.pods_in(PodPhase::Pending), 2);
    join(&mut store, T0, "b", "2");
    settle(&mut store, T0);
    assert!(store.view(T0).all_running());
}

#[test]
fn daemon_pods_follow_the_nodes_and_ask_for_nothing() {
    let mut store = Store::new(quick());
    store.apply_deployment(Deployment { daemon_set: true, ..deployment("agent", 0, "1") }).unwrap();
    join(&mut store, T0, "a", "2");
    join(&mut store, T0, "b", "2");
    settle(&mut store, T0);
    let view = store.view(T0);
    assert_eq!((view.pods.len(), view.requests), (2, 0));
    store.remove_node(T0, &MachineId::trusted("a"));
    settle(&mut store, T0);
    assert_eq!((store.view(T0).pods.len(), store.view(T0).disruptions.node_lost), (1, 0));
}

#[test]
fn wrong_amounts_and_names_are_refused() {
    let mut store = Store::new(quick());
    let error = store.apply_deployment(deployment("web", 1, "lots")).unwrap_err();
    assert!(error.to_string().starts_with("deployment web: the amount of cpu is wrong: "), "{error}");
    let error = store.join_node(T0, &MachineId::trusted("m"), BTreeMap::new(), &amounts("x")).unwrap_err();
    assert!(error.to_string().starts_with("machine m: the amount of cpu is wrong: "), "{error}");
    assert_eq!(store.scale("none", 1), Err(ApplyError::NoDeployment { name: "none".to_owned() }));
    assert!(store.view(T0).nodes.is_empty());
}

#[test]
fn writes_conflict_when_told_to() {
    let mut store = Store::new(Config { conflict_every: 3, ..quick() });
    join(&mut store, T0, "a", "1");
    let label =
        Write::LabelNode { node: "node-a".to_owned(), uid: node_uid(&store, "node-a"), labels: typed("x") };
    let answers: Vec<bool> = (0..6).map(|_| store.write(T0, &label).is_ok()).collect();
    assert_eq!(answers, [true, true, false, true, true, false]);
    store.conflict_next(2);
    let answers: Vec<_> = (0..2).map(|_| store.write(T0, &label)).collect();
    assert_eq!(answers, [Err(WriteError::Conflict), Err(WriteError::Conflict)]);
    let none = Write::LabelNode { node: "node-z".to_owned(), uid: "z".into(), labels: BTreeMap::new() };
    assert_eq!(Store::new(quick()).write(T0, &none), Err(WriteError::Gone));
    // A node that took the name is another one.
    let other = Write::Cordon { node: "node-a".to_owned(), uid: "z".into(), annotations: BTreeMap::new() };
    let mut calm = Store::new(quick());
    join(&mut calm, T0, "a", "1");
    assert_eq!(calm.write(T0, &other), Err(WriteError::Gone));
}

/// What an operator believes after these inputs: requests, nodes, pods, upcoming nodes.
#[derive(Default, Debug, PartialEq)]
struct Belief {
    requests: BTreeSet<String>,
    staged: Option<BTreeSet<String>>,
    nodes: BTreeSet<String>,
    pods: BTreeSet<String>,
    upcoming: BTreeSet<String>,
    synced: bool,
}

impl Belief {
    fn take(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            match input {
                Input::Request(r) => {
                    self.staged.as_mut().unwrap_or(&mut self.requests).insert(r.uid.to_string());
                }
                Input::RequestGone(uid) => {
                    self.staged.as_mut().unwrap_or(&mut self.requests).remove(&*uid);
                }
                Input::Listing => self.staged = Some(BTreeSet::new()),
                Input::Synced => {
                    self.synced = true;
                    if let Some(staged) = self.staged.take() {
                        self.requests = staged;
                    }
                }
                Input::Node(n) => drop(self.nodes.insert(n.name.clone())),
                Input::NodeGone(name) => drop(self.nodes.remove(&name)),
                Input::Pod(p) => drop(self.pods.insert(p.uid.to_string())),
                Input::PodGone(uid) => drop(self.pods.remove(&*uid)),
                Input::UpcomingNode(u) => drop(self.upcoming.insert(u.machine.unwrap().to_string())),
                Input::UpcomingNodeGone(m) => drop(self.upcoming.remove(m.as_str())),
                _ => {}
            }
        }
    }
}

#[test]
fn the_watch_is_late_and_shuffled_but_ends_at_the_truth() {
    let rude = Config { watch_latency: SECOND, watch_jitter: SECOND * 5, ..quick() };
    let mut store = Store::new(rude);
    let mut belief = Belief::default();
    store.start_watch(T0);
    join(&mut store, T0, "a", "100");
    store.apply_deployment(deployment("web", 40, "1")).unwrap();
    assert!(
        settle(&mut store, T0).iter().all(|input| matches!(input, Input::Synced)),
        "nothing arrives at once"
    );
    let mut order = Vec::new();
    for second in 1..=6 {
        let inputs = settle(&mut store, at(second));
        for input in &inputs {
            if let Input::Request(request) = input {
                order.push(request.uid.to_string());
            }
        }
        belief.take(inputs);
    }
    assert_eq!(order.len(), 40);
    assert!(!order.is_sorted(), "events of different objects overtake each other");

    // Changes that come and go while everything is in flight.
    for round in 0..20u64 {
        let now = at(10 + round);
        store.scale("web", if round % 2 == 0 { 10 } else { 40 }).unwrap();
        let machine = MachineId::trusted(format!("m{}", round % 3));
        if !store.remove_node(now, &machine) {
            store.join_node(now, &machine, typed("x"), &amounts("4")).unwrap();
        }
        belief.take(settle(&mut store, now));
    }
    for second in 30..60 {
        belief.take(settle(&mut store, at(second)));
    }
    assert_eq!(belief.requests.len(), store.view(at(60)).requests);
    let nodes: BTreeSet<String> = store.view(at(60)).nodes.iter().map(|n| n.name.clone()).collect();
    assert_eq!(belief.nodes, nodes);
    assert!(belief.pods.is_empty(), "pods are sent for nodes that somebody asked for only");
}

#[test]
fn a_broken_watch_is_listed_anew() {
    let mut store = Store::new(Config { watch_latency: SECOND, watch_jitter: SECOND * 3, ..quick() });
    let mut belief = Belief::default();
    store.start_watch(T0);
    join(&mut store, T0, "a", "100");
    join(&mut store, T0, "b", "100");
    store.apply_deployment(deployment("web", 20, "1")).unwrap();
    let upcoming = |machine: &str| {
        let machine = Some(MachineId::trusted(machine));
        Write::PutUpcomingNode(Box::new(UpcomingNode { machine, ..UpcomingNode::default() }))
    };
    store.write(T0, &upcoming("a")).unwrap();
    store.watch_pods(T0, "node-a");
    for second in 0..10 {
        belief.take(settle(&mut store, at(second)));
    }
    assert!(belief.synced);
    assert_eq!((belief.requests.len(), belief.pods.len(), belief.upcoming.len()), (20, 20, 1));

    store.break_watch(at(10), SECOND * 20);
    store.scale("web", 5).unwrap();
    store.remove_node(at(11), &MachineId::trusted("b"));
    store.write(at(11), &Write::DeleteUpcomingNode { machine: MachineId::trusted("a") }).unwrap();
    store.write(at(12), &upcoming("z")).unwrap();
    for second in 10..30 {
        assert!(settle(&mut store, at(second)).is_empty(), "nothing arrives while it is broken");
    }
    // Demand changes in the moment of the list, too: nothing may be lost behind it.
    store.scale("web", 8).unwrap();
    let mut smallest = belief.requests.len();
    for second in 30..50 {
        belief.take(settle(&mut store, at(second)));
        smallest = smallest.min(belief.requests.len());
    }
    assert_eq!((belief.requests.len(), belief.pods.len()), (8, 8));
    assert!(smallest >= 5, "no dip below what was ever true: {smallest}");
    assert_eq!(belief.nodes, BTreeSet::from(["node-a".to_owned()]));
    assert_eq!(belief.upcoming, BTreeSet::from(["z".to_owned()]));
}

#[test]
fn watched_pods_end_with_their_list_and_unwatched_ones_are_silent() {
    let mut store = Store::new(quick());
    store.start_watch(T0);
    join(&mut store, T0, "a", "10");
    store.apply_deployment(deployment("web", 3, "1")).unwrap();
    settle(&mut store, T0);
    store.watch_pods(T0, "node-a");
    let inputs = settle(&mut store, T0);
    let listed = inputs.iter().position(|i| matches!(i, Input::PodsListed(n) if n == "node-a")).unwrap();
    assert_eq!(inputs[..listed].iter().filter(|i| matches!(i, Input::Pod(_))).count(), 3);
    evict(&mut store, T0, "node-a").unwrap();
    let inputs = settle(&mut store, T0);
    assert!(inputs.iter().any(|i| matches!(i, Input::PodGone(_))));
    store.unwatch_pods("node-a");
    evict(&mut store, T0, "node-a").unwrap();
    let inputs = settle(&mut store, T0);
    assert!(!inputs.iter().any(|i| matches!(i, Input::Pod(_) | Input::PodGone(_))), "{inputs:?}");
}
