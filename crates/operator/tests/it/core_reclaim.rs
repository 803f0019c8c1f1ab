//! Reclaim: who is drained, how, and what happens when something is in the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::io::{Input, Node, Phase, Pod, UpcomingNode, Write, WriteError};
use bigfleet_proto::v1alpha1::operator_message::Payload as Up;
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{MachineState, ReclaimInstruction};
use bigfleet_types::UnixNanos;

use crate::core_kit::{Answer, Rig, node, pod, strings, uid};

const DEADLINE: &str = "bigfleet.lucy.sh/drain-deadline";
const CORDONED_BY: &str = "bigfleet.lucy.sh/cordoned-by";

/// Connected, with these machines bound; the node of `m-1` is `n-1`.
pub(crate) fn rig(machines: &[&str], pods: Vec<Pod>) -> Rig {
    rig_with(machines, pods, |_| {})
}

fn rig_with(
    machines: &[&str],
    pods: Vec<Pod>,
    change: impl FnOnce(&mut bigfleet_operator::core::Config),
) -> Rig {
    let mut rig = Rig::with(change);
    rig.pods = Some(pods.into_iter().map(Arc::new).collect());
    rig.input(Input::Synced);
    rig.connect();
    for machine in machines {
        rig.input(Input::Node(Arc::new(node(&node_of(machine), machine))));
        rig.state(machine, MachineState::Configured);
    }
    rig.take_writes();
    rig
}

fn node_of(machine: &str) -> String {
    machine.replace('m', "n")
}

pub(crate) fn instruct(rig: &mut Rig, id: &str, machines: &[&str], grace: i64) {
    rig.frame(Down::ReclaimInstruction(ReclaimInstruction {
        instruction_id: id.to_owned(),
        nodes: machines.iter().map(|m| (*m).to_owned()).collect(),
        grace_period_seconds: grace,
        ..Default::default()
    }));
}

/// Instruction, nodes started, seconds since `start`.
fn acks(rig: &Rig, start: UnixNanos) -> Vec<(&str, i32, u64)> {
    let of = |(at, sent): &'_ (UnixNanos, Up)| match sent {
        Up::ReclaimAck(ack) => {
            Some((ack.instruction_id.clone(), ack.nodes_started, at.since(start).as_secs()))
        }
        _ => None,
    };
    let all: Vec<_> = rig.sent.iter().filter_map(of).collect();
    all.into_iter().map(|(id, n, t)| (&*id.leak(), n, t)).collect()
}

/// Pods that were to be evicted, with the grace in seconds, in order.
pub(crate) fn evictions(writes: &[Write]) -> Vec<(&str, u64)> {
    writes
        .iter()
        .filter_map(|write| match write {
            Write::Evict { pod, grace, .. } => Some((&**pod, grace.as_secs())),
            _ => None,
        })
        .collect()
}

pub(crate) fn cordons(writes: &[Write]) -> Vec<(&str, &BTreeMap<String, String>)> {
    writes
        .iter()
        .filter_map(|write| match write {
            Write::Cordon { node, annotations, .. } => Some((node.as_str(), annotations)),
            _ => None,
        })
        .collect()
}

pub(crate) fn last_put(writes: Vec<Write>) -> Option<UpcomingNode> {
    writes.into_iter().rev().find_map(|write| match write {
        Write::PutUpcomingNode(object) => Some(*object),
        _ => None,
    })
}

pub(crate) fn refuse(message: &str) -> Answer {
    Some(Err(WriteError::TooMany { retry_after: None, message: message.to_owned() }))
}

#[test]
fn a_drain_from_instruction_to_drained() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1"), pod("b", "n-1")]);
    let start = rig.now;
    instruct(&mut rig, "i-1", &["m-1"], 120);
    assert_eq!(acks(&rig, start), [("i-1", 1, 0)]);
    let writes = rig.take_writes();
    let (name, annotations) = cordons(&writes)[0];
    let expected = strings(&[
        ("bigfleet.lucy.sh/drain-instruction", "i-1"),
        (DEADLINE, "2023-11-14T22:15:20Z"),
        (CORDONED_BY, "bigfleet-operator"),
    ]);
    assert_eq!((name, annotations), ("n-1", &expected));
    assert_eq!(evictions(&writes), [("a", 30), ("b", 30)]);
    assert_eq!(last_put(writes).map(|o| o.phase), Some(Phase::Draining));
    rig.input(Input::Pod(Arc::new(Pod { deleting: true, ..pod("a", "n-1") })));
    rig.input(Input::PodGone(uid("a")));
    rig.seconds(20);
    assert_eq!(rig.take_writes(), [], "nobody is evicted twice");
    assert_eq!(rig.core.counters().drains_active, 1);
    rig.input(Input::PodGone(uid("b")));
    assert_eq!(rig.phases(), [("m-1".to_owned(), Some(Phase::Drained))]);
    assert_eq!(rig.watched, Vec::<String>::new());
    rig.state("m-1", MachineState::Draining);
    assert_eq!(rig.phases(), [], "our result stands");
    rig.state("m-1", MachineState::Idle);
    assert_eq!(rig.phases(), [("m-1".to_owned(), None)]);
    let reasons: Vec<_> = rig.events.iter().map(|e| (e.about.as_str(), e.reason)).collect();
    let expected = [
        ("Node n-1", "BigFleetReclaim"),
        ("Pod ns/pod-a", "BigFleetEvicting"),
        ("Pod ns/pod-b", "BigFleetEvicting"),
        ("Node n-1", "BigFleetDrained"),
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn who_is_evicted_and_in_which_order() {
    let plain = |uid: &str| pod(uid, "n-1");
    let pods = vec![
        Pod { daemon_set: true, ..plain("daemon") },
        Pod { mirror: true, ..plain("mirror") },
        Pod { finished: true, ..plain("finished") },
        Pod { operator_itself: true, ..plain("0-operator") },
        Pod { deleting: true, ..plain("terminating") },
        Pod { termination_grace: Duration::from_secs(600), ..plain("slow") },
        Pod { termination_grace: Duration::ZERO, ..plain("quick") },
        pod("elsewhere", "n-2"),
    ];
    let mut rig = rig(&["m-1"], pods);
    instruct(&mut rig, "i", &["m-1"], 45);
    assert_eq!(evictions(&rig.take_writes()), [("quick", 1), ("slow", 45)]);
    for gone in ["quick", "slow", "terminating"] {
        rig.seconds(5);
        assert_eq!(evictions(&rig.take_writes()), []);
        rig.input(Input::PodGone(uid(gone)));
    }
    assert_eq!(evictions(&rig.take_writes()), [("0-operator", 30)], "ourselves last");
    rig.input(Input::PodGone(uid("0-operator")));
    assert_eq!(rig.phases(), [("m-1".to_owned(), Some(Phase::Drained))]);
}

#[test]
fn drill08_a_budget_blocks_past_the_deadline() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1"), pod("b", "n-1"), pod("c", "n-1")]);
    rig.answer = Box::new(|write| match write {
        Write::Evict { pod, .. } if &**pod == "a" => refuse("PDB ns/b"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 40);
    rig.input(Input::PodGone(uid("b")));
    rig.input(Input::Pod(Arc::new(Pod { deleting: true, ..pod("c", "n-1") })));
    rig.seconds(39);
    let writes = rig.take_writes();
    let tries = evictions(&writes).iter().filter(|(pod, _)| *pod == "a").count();
    assert!((15..=24).contains(&tries), "every 2 s, give or take a fifth: {tries}");
    let graces: Vec<_> =
        evictions(&writes).into_iter().filter(|(pod, _)| *pod == "a").map(|(_, g)| g).collect();
    assert!(
        graces.is_sorted_by(|a, b| a >= b) && graces.last() < Some(&5),
        "never beyond the deadline: {graces:?}"
    );
    rig.seconds(1);
    let object = last_put(rig.take_writes()).expect("a write");
    assert_eq!(object.phase, Phase::Failed);
    let left = "drain deadline exceeded after 40s: 2 pods remain (ns/pod-a: PDB ns/b; ns/pod-c: terminating)";
    assert_eq!(object.last_error, left);
    let told: Vec<_> = rig.events.iter().map(|e| (e.reason, e.message.as_str())).collect();
    assert!(told.contains(&("BigFleetEvictionBlocked", "PDB ns/b")), "{told:?}");
    assert!(told.contains(&("BigFleetDrainTimeout", left)), "{told:?}");
    let before = rig.rollups.len();
    rig.seconds(20);
    assert_eq!(rig.take_writes(), [], "the node stays cordoned and nobody is deleted");
    assert_eq!(rig.rollups.len(), before + 2, "the session goes on");
    rig.state("m-1", MachineState::Draining);
    assert_eq!(rig.take_writes(), [], "and the reason stays");
    assert_eq!(rig.core.counters().drain_results, [("failed", 1)].into());
}

/// Where pods that stand in the way may be killed: the drain ends at its deadline, and who was in the way is told.
#[test]
fn fr47_fr49_a_blocked_eviction_names_its_budget_and_ends_at_the_deadline() {
    let mut rig = rig_with(&["m-1"], vec![pod("a", "n-1")], |config| config.force_delete_at_deadline = true);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => refuse("Cannot evict pod: budget ns/web allows 0 disruptions"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 300);
    rig.seconds(61);
    let blocked: Vec<_> = rig.events.iter().filter(|e| e.reason == "BigFleetEvictionBlocked").collect();
    assert_eq!(blocked.len(), 1, "once, within a minute: {:?}", rig.events);
    assert_eq!(blocked[0].about, "Pod ns/pod-a");
    assert!(blocked[0].message.contains("ns/web"), "{}", blocked[0].message);
    rig.take_writes();
    rig.seconds(238);
    assert!(
        !rig.take_writes().iter().any(|write| matches!(write, Write::DeletePod { .. })),
        "not before its time"
    );
    rig.seconds(2);
    let writes = rig.take_writes();
    assert!(writes.iter().any(|write| matches!(write, Write::DeletePod { .. })));
    assert_eq!(last_put(writes).map(|o| o.phase), Some(Phase::Drained));
    rig.seconds(3600);
    assert_eq!(rig.take_writes(), [], "and nothing goes on");
}

#[test]
fn answers_to_evictions() {
    let cases: [(WriteError, Option<u64>); 4] = [
        (WriteError::Gone, None),
        (WriteError::Conflict, None),
        (
            WriteError::TooMany { retry_after: Some(Duration::from_secs(11)), message: String::new() },
            Some(11),
        ),
        (WriteError::Other("500 two budgets".to_owned()), Some(5)),
    ];
    for (error, again) in cases {
        let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
        let mut first = Some(error.clone());
        rig.answer = Box::new(move |write| match write {
            Write::Evict { .. } => Some(first.take().map_or(Ok(()), Err)),
            _ => Some(Ok(())),
        });
        let start = rig.now;
        instruct(&mut rig, "i", &["m-1"], 60);
        rig.seconds(30);
        let times: Vec<_> = rig
            .writes
            .iter()
            .filter(|(_, _, write)| matches!(write, Write::Evict { .. }))
            .map(|(at, ..)| at.since(start).as_secs())
            .collect();
        let expected: Vec<u64> = [0].into_iter().chain(again).collect();
        assert_eq!(times, expected, "{error:?}");
        let gone = again.is_none();
        assert_eq!(rig.core.counters().drain_results.contains_key("drained"), gone, "{error:?}");
    }
}

#[test]
fn force_deletes_what_outlives_the_deadline() {
    let pods = vec![pod("a", "n-1"), Pod { daemon_set: true, ..pod("d", "n-1") }];
    let mut rig = rig_with(&["m-1"], pods, |config| config.force_delete_at_deadline = true);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => refuse("no"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 10);
    rig.take_writes();
    rig.seconds(10);
    let writes = rig.take_writes();
    let deleted: Vec<_> = writes
        .iter()
        .filter_map(|w| if let Write::DeletePod { pod, .. } = w { Some(&**pod) } else { None })
        .collect();
    assert_eq!(deleted, ["a"]);
    assert_eq!(last_put(writes).map(|o| o.phase), Some(Phase::Drained));
}

#[test]
fn drill04_a_restart_in_the_middle_of_a_drain() {
    let mut rig = Rig::new();
    rig.pods = Some(vec![Arc::new(pod("a", "n-1"))]);
    let deadline = rig.now.after(Duration::from_secs(300));
    rig.input(Input::Node(Arc::new(Node {
        unschedulable: true,
        annotations: strings(&[
            ("bigfleet.lucy.sh/drain-instruction", "i-7"),
            (DEADLINE, "2023-11-14T22:18:20Z"),
            (CORDONED_BY, "bigfleet-operator"),
        ]),
        ..node("n-1", "m-1")
    })));
    rig.input(Input::Synced);
    rig.seconds(10);
    rig.connect();
    assert_eq!(rig.take_writes(), [], "not before the shard says that it is still so");
    rig.state("m-1", MachineState::Draining);
    rig.ack("resync");
    let writes = rig.take_writes();
    assert_eq!(cordons(&writes), [], "no second cordon");
    assert_eq!(evictions(&writes), [("a", 30)]);
    assert_eq!(last_put(writes).map(|o| o.phase), Some(Phase::Draining));
    rig.pass(Duration::from_nanos(u64::try_from(deadline.0 - rig.now.0 - 1).expect("ahead")));
    assert_eq!(rig.phases(), []);
    rig.pass(Duration::from_nanos(1));
    assert_eq!(rig.phases(), [("m-1".to_owned(), Some(Phase::Failed))]);
}

#[test]
fn a_drain_without_an_instruction_gets_thirty_seconds() {
    for node_first in [true, false] {
        let mut rig = Rig::running();
        rig.pods = Some(vec![Arc::new(pod("a", "n-1"))]);
        let appears = Input::Node(Arc::new(node("n-1", "m-1")));
        if node_first {
            rig.input(appears.clone());
        }
        rig.state("m-1", MachineState::Draining);
        if !node_first {
            rig.input(appears);
        }
        let writes = rig.take_writes();
        assert_eq!((cordons(&writes).len(), evictions(&writes)), (1, vec![("a", 30)]), "{node_first}");
        assert_eq!(rig.events[0].reason, "BigFleetDrainUnasked", "not to be taken for a Reclaim");
        rig.state("m-1", MachineState::Draining);
        rig.seconds(29);
        assert_eq!(rig.take_writes(), []);
        rig.seconds(1);
        assert_eq!(rig.phases(), [("m-1".to_owned(), Some(Phase::Failed))]);
        rig.state("m-1", MachineState::Draining);
        rig.seconds(60);
        assert_eq!(rig.take_writes(), [], "once");
    }
}

#[test]
fn drill09_entries_that_are_not_acted_on() {
    let mut rig = rig(&["m-1"], Vec::new());
    let protected = Node {
        labels: strings(&[
            ("node-role.kubernetes.io/control-plane", ""),
            ("bigfleet.lucy.sh/machine-id", "m-cp"),
        ]),
        ..node("n-cp", "")
    };
    rig.input(Input::Node(Arc::new(protected)));
    let bare = |name: &str| Input::Node(Arc::new(Node { labels: BTreeMap::new(), ..node(name, "") }));
    rig.input(bare("foreign"));
    rig.input(Input::Node(Arc::new(node("n-x", "m-twice"))));
    rig.input(Input::Node(Arc::new(node("n-y", "m-twice"))));
    let start = rig.now;
    instruct(&mut rig, "i", &["nowhere", "foreign", "m-cp", "n-cp", "m-twice", "m-1", "m-1"], -5);
    assert_eq!(acks(&rig, start), [("i", 1, 0)]);
    let writes = rig.take_writes();
    assert_eq!(cordons(&writes).iter().map(|(n, _)| *n).collect::<Vec<_>>(), ["n-1"]);
    let expected = [("no_node", 1), ("not_ours", 1), ("protected", 2), ("ambiguous", 1)];
    assert_eq!(rig.core.counters().reclaim_unresolved, expected.into());
    instruct(&mut rig, "none", &["nowhere"], 30);
    assert_eq!(acks(&rig, start)[1], ("none", 0, 0));

    // A Node's name does too, when the Node is tied to a machine; machine_ids go before nodes.
    rig.input(Input::Node(Arc::new(node("n-2", "m-2"))));
    rig.frame(Down::ReclaimInstruction(ReclaimInstruction {
        instruction_id: "by-name".to_owned(),
        nodes: vec!["m-1".to_owned()],
        machine_ids: vec!["n-2".to_owned()],
        ..Default::default()
    }));
    assert_eq!(cordons(&rig.take_writes())[0].0, "n-2");
}

#[test]
fn drill09_fr50_grace_is_bounded() {
    for (given, deadline) in
        [(0, "2023-11-14T22:13:50Z"), (-1, "2023-11-14T22:13:50Z"), (1 << 40, "2023-11-15T22:13:20Z")]
    {
        let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
        instruct(&mut rig, "i", &["m-1"], given);
        assert_eq!(cordons(&rig.take_writes())[0].1[DEADLINE], deadline, "{given}");
    }
}

#[test]
fn nodes_drain_in_parallel_each_with_its_own_deadline() {
    let names: Vec<String> = (0..100).map(|i| format!("m-{i:03}")).collect();
    let machines: Vec<&str> = names.iter().map(String::as_str).collect();
    let pods: Vec<Pod> = machines.iter().map(|m| pod(&format!("p{m}"), &node_of(m))).collect();
    let mut rig = rig(&machines, pods);
    let start = rig.now;
    instruct(&mut rig, "i", &machines[..50], 30);
    rig.seconds(10);
    instruct(&mut rig, "j", &machines[50..], 30);
    assert_eq!(acks(&rig, start), [("i", 50, 0), ("j", 50, 10)]);
    let writes = rig.take_writes();
    assert_eq!(cordons(&writes).len(), 100, "cordons do not wait");
    assert_eq!(evictions(&writes).len(), 64, "evictions do, beyond 64 nodes");
    rig.seconds(19);
    assert_eq!(rig.core.counters().drain_results, BTreeMap::new());
    rig.seconds(1);
    assert_eq!(rig.core.counters().drain_results, [("failed", 50)].into());
    assert_eq!(evictions(&rig.take_writes()).len(), 36, "the others follow");
    rig.seconds(10);
    assert_eq!(rig.core.counters().drain_results, [("failed", 100)].into());
}

#[test]
fn a_repeated_instruction_keeps_the_earlier_deadline() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    let start = rig.now;
    instruct(&mut rig, "i-1", &["m-1"], 60);
    rig.seconds(10);
    instruct(&mut rig, "i-2", &["m-1"], 600);
    assert_eq!(acks(&rig, start), [("i-1", 1, 0), ("i-2", 1, 10)]);
    assert_eq!(cordons(&rig.take_writes()).len(), 1, "no second cordon");
    instruct(&mut rig, "i-3", &["m-1"], 20);
    let writes = rig.take_writes();
    assert_eq!(cordons(&writes)[0].1[DEADLINE], "2023-11-14T22:13:50Z", "an earlier one is noted");
    assert_eq!(evictions(&writes), []);
    rig.seconds(20);
    let object = last_put(rig.take_writes()).expect("a write");
    assert_eq!((object.phase, rig.now.since(start).as_secs()), (Phase::Failed, 30));
    assert!(object.last_error.starts_with("drain deadline exceeded after 20s: 1 pod remains"), "{object:?}");
}

#[test]
fn the_acknowledgement_waits_for_cordons_but_not_for_ever() {
    let mut rig = rig(&["m-1", "m-2", "m-3"], vec![pod("a", "n-2")]);
    rig.answer = Box::new(|write| match write {
        Write::Cordon { node, .. } if node == "n-2" => Some(Err(WriteError::Other("down".to_owned()))),
        Write::Cordon { node, .. } if node == "n-3" => Some(Err(WriteError::Gone)),
        _ => Some(Ok(())),
    });
    let start = rig.now;
    instruct(&mut rig, "i", &["m-1", "m-2", "m-3"], 60);
    rig.pass(Duration::from_millis(4_900));
    assert_eq!(acks(&rig, start), []);
    let writes = rig.take_writes();
    assert_eq!(cordons(&writes).iter().filter(|(node, _)| *node == "n-2").count(), 3);
    rig.seconds(1);
    assert_eq!(acks(&rig, start), [("i", 1, 5)]);
    assert_eq!(evictions(&writes), [("a", 30)], "better evicted from an open node than killed");
    rig.answer = Box::new(|_| Some(Ok(())));
    rig.take_writes();
    rig.seconds(20);
    assert_eq!(cordons(&rig.take_writes()).len(), 1, "the cordon is tried on");
}

#[test]
fn a_drain_runs_on_without_a_session_and_says_so_later() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1"), pod("b", "n-1")]);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => refuse("PDB ns/b"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 60);
    rig.input(Input::Disconnected);
    rig.take_writes();
    rig.seconds(59);
    let writes = rig.take_writes();
    assert!(evictions(&writes).len() > 20 && evictions(&writes).len() == writes.len(), "only evictions");
    rig.seconds(60);
    assert_eq!(rig.take_writes().into_iter().filter(|w| !matches!(w, Write::Evict { .. })).count(), 0);
    rig.connect();
    rig.state("m-1", MachineState::Draining);
    let object = last_put(rig.take_writes()).expect("a write");
    assert_eq!(object.phase, Phase::Failed);
    assert!(object.last_error.contains("2 pods remain"), "{object:?}");
}
