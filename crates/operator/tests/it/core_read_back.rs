//! UpcomingNodes and the labels of nodes.

use std::sync::Arc;

use bigfleet_operator::core::names;
use bigfleet_operator::core::phase::{Belongs, Verdict, verdict};
use bigfleet_operator::io::{Input, Node, Phase, UpcomingNode, Write, WriteError};
use bigfleet_proto::v1alpha1::operator_message::Payload as Up;
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{BootstrapRequest, MachineState, NodeStateUpdate, Resources};
use bigfleet_types::MachineId;

use crate::core_kit::{Rig, frame, node, state_frame, state_update, strings};

fn stored(machine: &str, phase: Phase, last_error: &str) -> Input {
    Input::UpcomingNode(Box::new(UpcomingNode {
        machine: Some(MachineId::trusted(machine)),
        phase,
        last_error: last_error.to_owned(),
        ..Default::default()
    }))
}

fn rig_with(object: Input) -> Rig {
    let mut rig = Rig::new();
    rig.input(object);
    rig.input(Input::Synced);
    rig.connect();
    rig
}

fn put(machine: &str, phase: Phase) -> (String, Option<Phase>) {
    (machine.to_owned(), Some(phase))
}

fn deleted(machine: &str) -> (String, Option<Phase>) {
    (machine.to_owned(), None)
}

#[test]
fn every_pair_of_phase_and_state_has_a_verdict() {
    use Phase as P;
    use bigfleet_types::MachineState as S;
    let phases = [P::Provisioning, P::Launched, P::Registered, P::Ready, P::Draining, P::Drained, P::Failed];
    for stored in [None].into_iter().chain(phases.map(Some)) {
        for state in S::ALL {
            let bound = !matches!(stored, None | Some(P::Provisioning | P::Launched));
            let expected = |named: bool| match state {
                S::Speculative if bound => Verdict::Release,
                S::Speculative | S::Creating if stored.is_none() && !named => Verdict::Ignore,
                S::Speculative | S::Creating => Verdict::Put(P::Provisioning),
                S::Idle if bound => Verdict::Release,
                S::Idle => Verdict::Put(P::Launched),
                S::Configuring => Verdict::Put(P::Registered),
                S::Configured => Verdict::Put(P::Ready),
                S::Draining => Verdict::Put(P::Draining),
                S::Deleting => Verdict::Release,
                S::Failed => Verdict::Put(P::Failed),
            };
            assert_eq!(verdict(stored, state, Belongs::Us), expected(true), "{stored:?} {state:?}");
            assert_eq!(verdict(stored, state, Belongs::Unsaid), expected(false), "{stored:?} {state:?}");
            assert_eq!(verdict(stored, state, Belongs::Another), Verdict::Release, "{stored:?} {state:?}");
        }
    }
}

#[test]
fn ex43_a_burst_is_one_write() {
    let mut rig = Rig::running();
    rig.burst([state_frame("m", MachineState::Configuring), state_frame("m", MachineState::Configured)]);
    assert_eq!(rig.phases(), [put("m", Phase::Ready)]);
}

#[test]
fn ex44_idle_after_ready_is_release() {
    idle_is_release(Phase::Ready, "");
}

#[test]
fn ex45_idle_after_a_drain_is_release_however_that_ended() {
    idle_is_release(Phase::Failed, "drain deadline exceeded after 30s");
    idle_is_release(Phase::Drained, "");
}

fn idle_is_release(phase: Phase, error: &str) {
    let mut rig = rig_with(stored("m", phase, error));
    rig.state("m", MachineState::Idle);
    assert_eq!(rig.phases(), [deleted("m")], "{phase:?}");
    rig.seconds(60);
    rig.ack("resync");
    assert_eq!(rig.phases(), [], "it stays away");
}

/// A shard that restarted does not know for whom it had machines made, and does not name them: their objects go, and
/// come back with the first frame that says whose they are.
#[test]
fn machines_that_are_being_made_when_the_shard_restarts_are_shown_again_when_they_join() {
    let mut rig = Rig::running();
    for i in 0..20 {
        rig.state(&format!("made-{i}"), MachineState::Creating);
    }
    for i in 0..15 {
        rig.state(&format!("used-{i}"), MachineState::Configured);
    }
    rig.input(Input::Disconnected);
    rig.connect();
    rig.take_writes();
    for i in 0..15 {
        rig.state(&format!("used-{i}"), MachineState::Configured);
    }
    rig.ack("resync");
    assert_eq!(rig.phases(), [], "more than half: not at the first word");
    rig.seconds(61);
    rig.ack("resync");
    let gone = rig.phases();
    assert_eq!(gone.len(), 20);
    assert!(gone.iter().all(|(machine, phase)| machine.starts_with("made-") && phase.is_none()), "{gone:?}");
    rig.state("made-3", MachineState::Configuring);
    assert_eq!(rig.phases(), [put("made-3", Phase::Registered)]);
}

#[test]
fn ex44_release_is_seen_before_the_binding_was_written() {
    let mut rig = Rig::running();
    rig.answer = Box::new(|_| None);
    rig.state("m", MachineState::Configured);
    rig.state("m", MachineState::Idle);
    let (_, id, _) = rig.writes.remove(0);
    rig.done(id, Ok(()));
    assert_eq!(rig.phases(), [deleted("m")]);
}

#[test]
fn ex46_idle_without_an_object_is_launched() {
    let mut rig = Rig::running();
    rig.state("m", MachineState::Idle);
    assert_eq!(rig.phases(), [put("m", Phase::Launched)]);
}

#[test]
fn ex47_the_same_again_writes_nothing() {
    let mut rig = Rig::running();
    let with = |cpu: &str| {
        frame(Down::NodeStateUpdate(NodeStateUpdate {
            resources: Some(Resources { resources: strings(&[("cpu", cpu)]) }),
            ..state_update("m", MachineState::Configured)
        }))
    };
    rig.input(with("2"));
    assert_eq!(rig.phases(), [put("m", Phase::Ready)]);
    rig.seconds(5);
    rig.input(with("2000m"));
    assert_eq!(rig.phases(), []);
    assert_eq!(rig.core.counters().read_back_writes, [("success", 1), ("noop", 1)].into());
    rig.input(with("3"));
    assert_eq!(rig.phases(), [put("m", Phase::Ready)]);
}

#[test]
fn frames_that_do_not_concern_us_leave_no_trace() {
    let mut rig = Rig::running();
    let unnamed = |state: MachineState| {
        frame(Down::NodeStateUpdate(NodeStateUpdate {
            cluster_id: String::new(),
            ..state_update("m", state)
        }))
    };
    rig.input(unnamed(MachineState::Creating));
    rig.input(unnamed(MachineState::Deleting));
    rig.state("m", MachineState::Unspecified);
    rig.state("", MachineState::Configured);
    let foreign =
        NodeStateUpdate { cluster_id: "other".to_owned(), ..state_update("m", MachineState::Configured) };
    rig.input(frame(Down::NodeStateUpdate(foreign.clone())));
    rig.input(Input::Frame(Box::default()));
    assert_eq!(rig.take_writes(), []);
    let ignored = [("not_ours", 3), ("machine_state", 1), ("machine_id", 1), ("unknown_payload", 1)];
    assert_eq!(rig.core.counters().frames_ignored, ignored.into());
    rig.state("m", MachineState::Configured);
    rig.input(frame(Down::NodeStateUpdate(foreign)));
    assert_eq!(rig.phases(), [put("m", Phase::Ready), deleted("m")]);
}

#[test]
fn an_error_goes_when_the_phase_does() {
    let mut rig = Rig::running();
    let failed =
        NodeStateUpdate { last_error: "no quota".to_owned(), ..state_update("m", MachineState::Failed) };
    rig.input(frame(Down::NodeStateUpdate(failed)));
    let start = rig.now;
    rig.seconds(30);
    rig.state("m", MachineState::Configured);
    let objects: Vec<_> = rig
        .take_writes()
        .into_iter()
        .map(|write| match write {
            Write::PutUpcomingNode(o) => (o.phase, o.last_error, o.provisioning_start),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected =
        [(Phase::Failed, "no quota".to_owned(), Some(start)), (Phase::Ready, String::new(), Some(start))];
    assert_eq!(objects, expected);
}

#[test]
fn failed_writes_come_back_and_give_way_to_newer_frames() {
    let mut rig = Rig::running();
    let mut failures = vec![WriteError::Conflict, WriteError::Other("down".to_owned()), WriteError::Conflict];
    rig.answer = Box::new(move |_| Some(failures.pop().map_or(Ok(()), Err)));
    rig.state("m", MachineState::Configuring);
    rig.seconds(30);
    assert_eq!(rig.phases(), vec![put("m", Phase::Registered); 4]);
    rig.answer = Box::new(|_| Some(Err(WriteError::Other("down".to_owned()))));
    rig.state("m", MachineState::Configured);
    rig.state("m", MachineState::Failed);
    rig.seconds(5);
    let tries = rig.phases();
    assert!(tries.len() > 3 && tries[1..].iter().all(|t| *t == put("m", Phase::Failed)), "{tries:?}");
}

#[test]
fn drill13_a_storm_of_frames() {
    let mut rig = Rig::running();
    rig.answer = Box::new(|_| None);
    for i in 0..1_500 {
        rig.core.handle(rig.now, state_frame(&format!("m-{}", i % 300), MachineState::Configuring));
        if i == 700 {
            let request = BootstrapRequest {
                request_id: "r".to_owned(),
                machine_id: "x".to_owned(),
                ..Default::default()
            };
            rig.core.handle(rig.now, frame(Down::BootstrapRequest(request)));
        }
        rig.input(state_frame(&format!("m-{}", i % 300), MachineState::Configured));
    }
    assert_eq!(rig.writes.len(), 32, "writers");
    assert!(
        matches!(&rig.sent[..], [(_, Up::BootstrapResponse(r))] if r.error.is_empty()),
        "answered in the middle"
    );
    let mut done = 0;
    while done < rig.writes.len() {
        let (_, id, _) = rig.writes[done];
        rig.done(id, Ok(()));
        done += 1;
        let under_way = &rig.writes[done..];
        let machines: std::collections::BTreeSet<_> = under_way
            .iter()
            .map(|(_, _, write)| match write {
                Write::PutUpcomingNode(object) => object.machine.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(under_way.len() <= 32 && machines.len() == under_way.len());
    }
    let last = rig.phases();
    assert_eq!(last.iter().filter(|(_, phase)| *phase == Some(Phase::Ready)).count(), 300);
    assert!(last.len() <= 332, "{} writes for 300 machines", last.len());
}

#[test]
fn identity_goes_by_label_name_provider_id_and_id() {
    let plain = |name: &str, provider_id: &str| {
        Input::Node(Arc::new(Node {
            name: name.to_owned(),
            uid: name.into(),
            provider_id: provider_id.to_owned(),
            ..Default::default()
        }))
    };
    let of = |rig: &mut Rig| {
        rig.take_writes().into_iter().rev().find_map(|write| match write {
            Write::PutUpcomingNode(object) => Some(object.node),
            _ => None,
        })
    };
    let update = NodeStateUpdate {
        node_name: "by-name".to_owned(),
        provider_id: "i-1".to_owned(),
        ..state_update("m", MachineState::Configured)
    };
    let mut rig = Rig::running();
    rig.input(frame(Down::NodeStateUpdate(update)));
    assert_eq!(of(&mut rig), Some(None));
    rig.input(plain("m", ""));
    assert_eq!(of(&mut rig), Some(Some("m".to_owned())));
    rig.input(plain("by-provider", "aws:///eu-west-1a/i-1"));
    assert_eq!(of(&mut rig), Some(Some("by-provider".to_owned())));
    rig.input(plain("by-provider-too", "i-1"));
    assert_eq!(of(&mut rig), Some(None), "two at one level are none");
    assert_eq!(rig.core.counters().identity_conflicts, 1);
    rig.input(plain("by-name", ""));
    assert_eq!(of(&mut rig), Some(Some("by-name".to_owned())));
    rig.input(Input::Node(Arc::new(node("by-label", "m"))));
    assert_eq!(of(&mut rig), Some(Some("by-label".to_owned())));
    rig.input(Input::NodeGone("by-label".to_owned()));
    assert_eq!(of(&mut rig), Some(Some("by-name".to_owned())));
    rig.input(Input::Node(Arc::new(Node { provider_id: String::new(), ..node("by-name", "another") })));
    assert_eq!(of(&mut rig), Some(None), "a node of another machine is never it");
}

#[test]
fn a_node_gets_the_label_of_its_machine() {
    let mut rig = Rig::running();
    rig.state("m", MachineState::Configured);
    rig.take_writes();
    let bare = Node { name: "m".to_owned(), uid: "u".into(), ready: true, ..Default::default() };
    rig.input(Input::Node(Arc::new(bare)));
    let labels = strings(&[("bigfleet.lucy.sh/machine-id", "m")]);
    assert!(rig.take_writes().contains(&Write::LabelNode { node: "m".to_owned(), uid: "u".into(), labels }));
    rig.input(Input::Node(Arc::new(node("m", "m"))));
    rig.seconds(60);
    assert_eq!(rig.take_writes(), []);
}

#[test]
fn the_sweep_takes_what_the_replay_did_not_name() {
    let mut rig = Rig::running();
    for machine in ["a", "b", "c"] {
        rig.state(machine, MachineState::Configured);
    }
    rig.input(Input::Disconnected);
    rig.connect();
    rig.take_writes();
    rig.state("a", MachineState::Configured);
    rig.state("c", MachineState::Draining);
    rig.ack("resync");
    assert_eq!(rig.phases(), [put("c", Phase::Draining), deleted("b")]);
}

#[test]
fn drill21_an_empty_replay_sweeps_nothing_at_once() {
    let mut rig = Rig::new();
    for i in 0..20 {
        rig.input(stored(&format!("m-{i}"), Phase::Ready, ""));
        if i < 15 {
            rig.input(Input::Node(Arc::new(node(&format!("n-{i}"), &format!("m-{i}")))));
        }
    }
    rig.input(Input::Synced);
    rig.connect();
    rig.seconds(590);
    assert_eq!(rig.phases(), []);
    rig.seconds(60);
    assert_eq!(rig.phases().len(), 5, "without the marker only those that have no Node");
    rig.ack("resync");
    assert_eq!(rig.phases(), [], "more than half");
    rig.seconds(30);
    rig.ack("resync");
    assert_eq!(rig.phases(), [], "too soon to be a second opinion");
    rig.seconds(31);
    rig.ack("resync");
    assert_eq!(rig.phases().len(), 15);
}

#[test]
fn a_node_whose_machine_left_is_deleted_when_asked_for() {
    for (flag, ready, expected) in [(false, false, 0), (true, true, 0), (true, false, 1)] {
        let mut rig = Rig::with(|config| config.delete_node_on_release = flag);
        rig.input(Input::Node(Arc::new(Node { ready, ..node("n", "m") })));
        rig.connect();
        rig.state("m", MachineState::Configured);
        rig.state("m", MachineState::Idle);
        let delete = |write: &Write| matches!(write, Write::DeleteNode { node, uid } if node == "n" && &**uid == "uid-n");
        assert_eq!(rig.take_writes().iter().filter(|w| delete(w)).count(), expected, "{flag} {ready}");
        if flag && ready {
            rig.input(Input::Node(Arc::new(Node { ready: false, ..node("n", "m") })));
            assert_eq!(rig.take_writes().iter().filter(|w| delete(w)).count(), 1, "once it is not Ready");
        }
    }
}

#[test]
fn object_names() {
    let name = |id: &str| names::upcoming_node(&MachineId::trusted(id));
    assert_eq!(name("research-049"), "un-research-049");
    assert_eq!(name("aws:///us-east-1a/i-0ABC"), "un-aws-us-east-1a-i-0abc-ec1bf617");
    let long = name(&"x".repeat(253));
    assert!(long.len() <= 253 && long.starts_with("un-xxx"), "{long}");
    let key = "available:p=1000000|ipb=16|rpb=19|reqs=node.kubernetes.io/instance-type:1:a3-highgpu-8g;|spr=";
    assert_eq!(names::available_capacity(key), "ac-068bacd71e6b6f5f65ee7a599f28550e");
}
