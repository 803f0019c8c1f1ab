//! Failure drills of roll-ups and sessions as lists of events. Each names the mutation that makes it fail.

use std::time::Duration;

use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_shard::io::Input;
use bigfleet_types::{Machine, MachineState};

use crate::core_model::{Model, Op, bound, cluster, gpu, need, rows};
use crate::core_world::{Blobs, Lists, World, config};

use MachineState::{Configured, Configuring, Idle};

fn idle(n: usize) -> Vec<Machine> {
    (0..n).map(|n| gpu(&format!("m{n:02}"), Idle)).collect()
}

fn held(n: usize, to: &str) -> Vec<Machine> {
    (0..n).map(|n| bound(&format!("m{n:03}"), Configured, to, &need(1000, 1))).collect()
}

fn slow(machines: Vec<Machine>, seconds: u64) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(seconds));
    model
}

/// Control: apply `Heard` on Hello instead of on the first roll-up, or to every cluster at the first roll-up of any:
/// `b` is drained.
#[test]
fn drill25_restart_with_operators_slow_to_return() {
    let of_b = |n| bound(&format!("b{n:03}"), Configured, "b", &need(1000, 1));
    let machines = held(50, "a").into_iter().chain((0..50).map(of_b));
    let mut world = World::new(config(), Model::with(machines));
    world.seconds(1);
    assert!(world.core.ready());
    world.seconds(300);
    world.connect("a");
    world.connect("b");
    world.seconds(300);
    assert_eq!(world.model.calls, []);
    assert_eq!(world.metric("unreported_clusters"), 2.0);
    // One speaks and asks for less than it has; the other stays silent.
    world.rollup("a", rows(40));
    world.seconds(600);
    assert_eq!(world.metric("unreported_clusters"), 1.0);
    let drained: Vec<&str> = world.model.calls.iter().map(|(machine, _)| machine.as_str()).collect();
    assert_eq!(drained.len(), 10, "{drained:?}");
    assert!(drained.iter().all(|machine| machine.starts_with('m')), "{drained:?}");
    assert_eq!(world.core.machines().filter(|m| m.cluster == Some(cluster("b"))).count(), 50);
    world.rollup("b", rows(50));
    world.seconds(60);
    assert_eq!((world.model.calls.len(), world.metric("unreported_clusters")), (10, 0.0));
}

/// Control: judge no roll-up without a baseline: the first empty one drains the cluster.
#[test]
fn drill26_first_rollup_after_restart_is_empty() {
    for early in [false, true] {
        let mut world = World::new(config(), Model::with(held(20, "a")));
        if early {
            // The operator is faster than the first List.
            world.lists = Lists::Fail;
            world.rollup("a", Vec::new());
            assert!(!world.core.ready());
            world.lists = Lists::Truth;
            world.seconds(10);
        } else {
            world.seconds(10);
            world.rollup("a", Vec::new());
        }
        world.seconds(10);
        world.rollup("a", Vec::new());
        assert_eq!(world.metric(r#"rollup_quarantined{cluster="a"}"#), 2.0);
        world.seconds(100);
        assert_eq!(world.model.calls, [], "held, and the gate is closed");
        assert_eq!(world.metric("unreported_clusters"), 1.0);
        world.rollup("a", Vec::new());
        assert_eq!(world.metric(r#"rollup_quarantined{cluster="a"}"#), 0.0);
        world.seconds(15);
        assert!(world.calls(Op::Drain) > 0);
        assert_eq!(world.acks().iter().filter(|(echo, _)| echo == "rollup").count(), 3);
    }
}

/// Control: `--empty-rollup-guard=false`: 95 machines are reclaimed.
#[test]
fn drill27_torn_rollup() {
    let mut world = World::new(config(), Model::with(held(100, "a")));
    world.rollup("a", rows(100));
    world.seconds(10);
    world.rollup("a", rows(5));
    assert_eq!(world.metric(r#"rollup_quarantined{cluster="a"}"#), 1.0);
    world.seconds(10);
    world.rollup("a", rows(100));
    assert_eq!(world.metric(r#"rollup_quarantined{cluster="a"}"#), 0.0);
    world.seconds(60);
    assert_eq!(world.model.calls, []);
}

/// Control: `--reclaim-cap-fraction=0`: all at once.
#[test]
fn drill28_real_scale_down() {
    let mut world = World::new(config(), Model::with(held(100, "a")));
    world.rollup("a", rows(100));
    world.seconds(10);
    for _ in 0..2 {
        world.rollup("a", rows(5));
        world.seconds(10);
    }
    assert_eq!((world.metric(r#"rollup_quarantined{cluster="a"}"#), world.calls(Op::Drain)), (2.0, 0));
    world.rollup("a", rows(5));
    world.seconds(10);
    // The third was accepted, and ten seconds of reclaims have passed.
    let mut drains = vec![world.calls(Op::Drain)];
    for _ in 0..200 {
        world.rollup("a", rows(5));
        world.seconds(1);
        drains.push(world.calls(Op::Drain));
    }
    let in_ten = drains.windows(11).map(|w| w[10] - w[0]).max().unwrap();
    assert!((1..=5).contains(&in_ten), "{in_ten} reclaims in 10 s");
    assert!(world.metric("reclaims_capped_total") > 0.0);
    world.seconds(1500);
    assert_eq!((world.count(Configured), world.calls(Op::Drain)), (5, 95));
    let grace = world.frames.iter().find_map(|(_, payload)| match payload {
        Payload::ReclaimInstruction(i) => {
            Some((i.grace_period_seconds, i.preemptor_priority, i.machine_ids.len()))
        }
        _ => None,
    });
    assert_eq!(grace, Some((600, 0, 1)));
}

/// Control: apply an empty demand on a refusal: everything is reclaimed.
#[test]
fn drill29_undecodable_rollup() {
    let mut world = World::new(config(), Model::with(held(10, "a")));
    world.rollup("a", rows(10));
    world.seconds(5);
    let session = world.sessions[&cluster("a")];
    let reason = "needs[3].interruption_penalty_bucket: 99 is not a penalty bucket".to_owned();
    world.handle(Input::Rollup { session, timestamp_unix_nanos: 77, rows: Err(reason.clone()) });
    world.seconds(60);
    assert_eq!(world.acks().last(), Some(&("rollup_rejected".to_owned(), reason)));
    let ack = world.frames.iter().rev().find_map(|(_, payload)| match payload {
        Payload::Ack(ack) => Some(ack.rollup_timestamp_unix_nanos),
        _ => None,
    });
    assert_eq!(ack, Some(77));
    assert_eq!(world.metric(r#"rollups_rejected_total{cluster="a"}"#), 1.0);
    assert_eq!((world.model.calls.len(), world.closed.len()), (0, 0));
    assert_eq!(world.metric("demand_rows"), 10.0);
}

/// Control: take the cluster from the message instead of the session.
#[test]
fn drill30_rollup_naming_another_cluster() {
    let machines = held(3, "a")
        .into_iter()
        .chain((0..3).map(|n| bound(&format!("b{n}"), Configured, "b", &need(1000, 1))));
    let mut world = World::new(config(), Model::with(machines));
    world.rollup("a", rows(3));
    world.rollup("b", rows(3));
    world.seconds(5);
    let session = world.sessions[&cluster("a")];
    let reason = "cluster_id: is b, but this session speaks for a".to_owned();
    world.handle(Input::Rollup { session, timestamp_unix_nanos: 1, rows: Err(reason) });
    world.seconds(60);
    assert_eq!(world.acks().last().unwrap().0, "rollup_rejected");
    assert_eq!(world.metric("demand_rows"), 6.0);
    assert_eq!((world.model.calls.len(), world.closed.len()), (0, 0));
}

/// Control: keep the old session's requests waiting: the machine stays Configuring until the time-out.
#[test]
fn drill34_duplicate_session() {
    let mut world = World::new(config(), slow([idle(2), held(2, "a")].concat(), 2));
    world.blobs.insert(cluster("a"), Blobs::Silent);
    world.rollup("a", vec![need(1000, 3)]);
    let old = world.sessions[&cluster("a")];
    assert_eq!(world.count(Configuring), 1);
    world.blobs.insert(cluster("a"), Blobs::Give);
    world.frames.clear();
    let new = world.connect("a");
    assert_eq!(world.closed, [(old, bigfleet_shard::io::CloseReason::Replaced)]);
    assert_eq!(world.outcomes(), [("Bootstrap", "m00".to_owned(), "ctx_canceled")]);
    assert!(world.frames.iter().all(|(session, _)| *session == new));
    assert!(matches!(&world.frames[0].1, Payload::Ack(ack) if ack.echo == "hello"), "before anything else");
    assert_eq!((world.update_states("m000"), world.update_states("m001")), (vec![5], vec![5]), "resync");
    let lifecycle = |event| world.metric(&format!(r#"session_lifecycle_total{{event="{event}"}}"#));
    assert_eq!([lifecycle("installed"), lifecycle("replaced"), lifecycle("removed")], [1.0, 1.0, 0.0]);
    // The end of the old stream comes late and evicts nobody.
    world.handle(Input::SessionClosed { session: old });
    world.seconds(30);
    assert_eq!(world.metric("active_sessions"), 1.0);
    assert_eq!(world.count(Configured), 3);
}
