//! The end of a drain: when a node counts as empty, and what ends a drain before that.

use std::sync::Arc;

use bigfleet_operator::io::{Input, Node, Pod, Write, WriteError};
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{MachineState, NodeStateUpdate};

use crate::core_kit::{frame, node, pod, state_update, uid};
use crate::core_reclaim::{evictions, instruct, refuse, rig};

#[test]
fn no_drain_ends_before_its_pods_are_known() {
    let mut rig = rig(&["m-1"], Vec::new());
    rig.pods = None;
    instruct(&mut rig, "i", &["m-1"], 60);
    rig.seconds(30);
    assert_eq!(rig.core.counters().drains_active, 1);
    assert_eq!(rig.watched, ["n-1"]);
    rig.input(Input::PodsListed("n-1".to_owned()));
    assert_eq!(rig.core.counters().drain_results, [("drained", 1)].into());
}

#[test]
fn drill17_a_namesake_elsewhere_is_not_touched() {
    let mut rig = rig(&["m-1"], vec![Pod { name: "db-0".to_owned(), ..pod("old", "n-1") }]);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => refuse("no"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 60);
    // The old pod ends by itself and comes back on another node, before the eviction is tried again.
    rig.input(Input::PodGone(uid("old")));
    rig.input(Input::Pod(Arc::new(Pod { name: "db-0".to_owned(), ..pod("new", "n-2") })));
    rig.seconds(60);
    let writes = rig.take_writes();
    assert_eq!(evictions(&writes), [("old", 30)], "every eviction names the uid that it means");
}

#[test]
fn a_gone_node_is_an_empty_one() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    instruct(&mut rig, "i", &["m-1"], 60);
    rig.input(Input::NodeGone("n-1".to_owned()));
    assert_eq!(rig.core.counters().drain_results, [("drained", 1)].into());
}

#[test]
fn a_release_ends_the_drain() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    instruct(&mut rig, "i", &["m-1"], 600);
    rig.take_writes();
    let foreign =
        NodeStateUpdate { cluster_id: "other".to_owned(), ..state_update("m-1", MachineState::Configured) };
    rig.input(frame(Down::NodeStateUpdate(foreign)));
    rig.seconds(700);
    assert_eq!(rig.take_writes().len(), 1, "the object goes, nothing else");
    assert_eq!(rig.watched, Vec::<String>::new());
    assert_eq!(rig.core.counters().drain_results, [("released", 1)].into());
}

#[test]
fn pods_are_listed_again_after_the_cordon() {
    let mut rig = rig(&["m-1"], Vec::new());
    rig.answer = Box::new(|write| match write {
        Write::Cordon { .. } => Some(Err(WriteError::Other("down".to_owned()))),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 60);
    rig.seconds(8);
    assert_eq!(rig.watched, ["n-1"], "evictions begin without the cordon");
    assert_eq!(rig.core.counters().drains_active, 1, "but an open node is not empty for good");
    // A pod is bound that the first list does not have, and then the cordon succeeds.
    rig.pods = Some(vec![Arc::new(pod("late", "n-1"))]);
    rig.answer = Box::new(|_| Some(Ok(())));
    rig.take_writes();
    rig.seconds(5);
    assert_eq!(evictions(&rig.take_writes()), [("late", 30)]);
    rig.input(Input::PodGone(uid("late")));
    assert_eq!(rig.core.counters().drain_results, [("drained", 1)].into());
}

/// Seen in one step, as after a gap of the watch: the drained node is gone and its name is another node's.
#[test]
fn drill18_a_node_that_took_a_drained_nodes_name_is_not_emptied() {
    for machine in ["m-1", "foreign"] {
        let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
        instruct(&mut rig, "i", &["m-1"], 600);
        rig.take_writes();
        rig.input(Input::Node(Arc::new(Node { uid: "another".into(), ..node("n-1", machine) })));
        rig.input(Input::Pod(Arc::new(pod("theirs", "n-1"))));
        rig.seconds(700);
        assert_eq!(evictions(&rig.take_writes()), [], "{machine}");
        assert_eq!(rig.core.counters().drain_results, [("drained", 1)].into(), "{machine}");
    }
}

#[test]
fn who_owns_a_pod_that_nothing_makes_again_hears_of_it_once() {
    let mut rig = rig(&["m-1"], vec![Pod { naked: true, ..pod("bare", "n-1") }, pod("owned", "n-1")]);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => refuse("no"),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 60);
    rig.seconds(59);
    let told = rig.events.iter().filter(|event| event.reason == "BigFleetEvicting");
    let told: Vec<_> = told.map(|event| (&*event.about, event.message.contains("no controller"))).collect();
    assert_eq!(told, [("Pod ns/pod-bare", true), ("Pod ns/pod-owned", false)]);
}

/// Several budgets over one pod make the API server answer 500: to people that is a blocked eviction like any other.
#[test]
fn an_eviction_that_keeps_failing_is_told_as_blocked() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => {
            Some(Err(WriteError::Other("500: more than one PodDisruptionBudget".to_owned())))
        }
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 120);
    rig.seconds(100);
    let told: Vec<_> = rig.events.iter().filter(|event| event.reason == "BigFleetEvictionBlocked").collect();
    assert!(matches!(&told[..], [one] if one.message.contains("more than one")), "{told:?}");
}
