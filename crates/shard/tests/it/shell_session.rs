//! Sessions over real gRPC: how they begin, replace each other and end.

use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1::operator_message::Payload as Said;
use bigfleet_proto::v1alpha1::shard_message::Payload as Heard;
use bigfleet_proto::v1alpha1::{ClusterCapacityNeeds, MachineState};
use bigfleet_shard::service::Handle;
use tonic::Code;

use crate::shell_fake::{Asked, Fake, Served, idle};
use crate::shell_logs;
use crate::shell_operator::{Operator, hello, pods};
use crate::shell_shard::{eventually, inspect, metric, options, ready, start, stop};

struct Stage {
    _dir: tempfile::TempDir,
    provider: Served,
    handle: Handle,
}

async fn stage_with(
    machines: Vec<bigfleet_proto::v1alpha1::Machine>,
    change: impl FnOnce(&mut bigfleet_shard::options::Options),
) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let provider = Fake::with(machines).serve("127.0.0.1:0").await;
    let mut options = options(dir.path(), provider.addr);
    change(&mut options);
    let handle = start(options).await;
    ready(&handle).await;
    Stage { _dir: dir, provider, handle }
}

async fn stage() -> Stage {
    stage_with(Vec::new(), |_| {}).await
}

/// Control, tried: accept any first frame: the stream stays open.
#[tokio::test(flavor = "multi_thread")]
async fn drill33_first_frame_not_hello() {
    let stage = stage().await;
    let addr = stage.handle.grpc_addr();
    for (first, part) in [
        (Said::Rollup(ClusterCapacityNeeds::default()), "must be hello"),
        (Said::Hello(hello("", "v1alpha1")), "hello.cluster_id: must not be empty"),
        (Said::Hello(hello("a b", "v1alpha1")), "hello.cluster_id: "),
        (Said::Hello(hello(&"x".repeat(254), "v1alpha1")), "254"),
    ] {
        let operator = Operator::dial(addr).await;
        operator.say(first).await;
        let (code, message) = operator.end().await;
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(part), "{message}");
    }
    let operator = Operator::dial(addr).await;
    operator.say(Said::Hello(hello("c-1", "v2"))).await;
    let (code, message) = operator.end().await;
    assert_eq!(code, Code::Unimplemented, "{message}");
    assert!(message.contains("\"v2\"") && message.contains("\"v1alpha1\""), "{message}");
    // An old operator that states no version is served.
    let mut operator = Operator::dial(addr).await;
    operator.say(Said::Hello(hello("c-1", ""))).await;
    assert!(matches!(operator.next().await.unwrap(), Some(Heard::Ack(_))));
    stop(stage.handle).await;
}

/// Control, tried: a time-out of an hour: the stream stays open.
#[tokio::test(flavor = "multi_thread")]
async fn drill33_hello_never_sent() {
    let stage = stage().await;
    let operator = Operator::dial(stage.handle.grpc_addr()).await;
    let begun = Instant::now();
    let (code, message) = operator.end().await;
    assert_eq!(
        (code, message.as_str()),
        (Code::InvalidArgument, "no Hello within 10 s of opening the session")
    );
    assert!(begun.elapsed() >= Duration::from_secs(9), "{:?}", begun.elapsed());
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_again_is_acknowledged_and_a_foreign_one_ends_the_session() {
    let stage = stage().await;
    let mut operator = Operator::hello(stage.handle.grpc_addr(), "c-1").await;
    operator.say(Said::Hello(hello("c-1", "v1alpha1"))).await;
    let again = |heard: &Heard| matches!(heard, Heard::Ack(ack) if ack.echo == "hello").then_some(());
    operator.until("the second acknowledgement", again).await;
    operator.say(Said::Hello(hello("c-2", "v1alpha1"))).await;
    let (code, message) = operator.end().await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("\"c-1\""), "{message}");
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_names_our_epoch() {
    let stage = stage().await;
    let operator = Operator::hello(stage.handle.grpc_addr(), "c-1").await;
    let Heard::Ack(ack) = &operator.passed[0] else { panic!("{:?}", operator.passed) };
    assert_eq!((ack.shard_epoch, ack.coordinator_term), (stage.handle.epoch(), 0));
    assert!((metric(&stage.handle, "active_sessions", &[]).await - 1.0).abs() < 0.5);
    drop(operator);
    eventually("the end of the session", async || {
        (metric(&stage.handle, "session_lifecycle_total", &["removed"]).await > 0.5).then_some(())
    })
    .await;
    assert!(metric(&stage.handle, "active_sessions", &[]).await < 0.5);
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drill29_undecodable_rollup_is_refused_whole() {
    let stage = stage().await;
    let addr = stage.handle.grpc_addr();
    let mut operator = Operator::hello(addr, "c-1").await;
    assert_eq!(operator.rollup(vec![pods(3)]).await.echo, "rollup");
    let shown = async || inspect(addr, "c-1", 0).await.ok().filter(|(h, _)| h.total_needs == 1);
    let before = eventually("the demand", shown).await.1;

    let mut bucket = pods(1);
    bucket.interruption_penalty_bucket = 99;
    let mut quantity = pods(1);
    quantity.aggregate_resources.insert("cpu".into(), "1.5.5".into());
    for (bad, part) in
        [(bucket, "needs[1].interruption_penalty_bucket"), (quantity, "needs[1].aggregate_resources")]
    {
        let ack = operator.rollup(vec![pods(7), bad]).await;
        assert_eq!(ack.echo, "rollup_rejected");
        assert!(ack.reason.contains(part), "{}", ack.reason);
    }
    assert!((metric(&stage.handle, "rollups_rejected_total", &["c-1"]).await - 2.0).abs() < 0.5);
    let after = inspect(addr, "c-1", 0).await.unwrap().1;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].need, before[0].need, "the old demand changed");
    // The session is as good as before.
    assert_eq!(operator.rollup(vec![pods(4)]).await.echo, "rollup");
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drill30_rollup_naming_another_cluster() {
    shell_logs::keep();
    let stage = stage().await;
    let addr = stage.handle.grpc_addr();
    let mut victim = Operator::hello(addr, "drill30-b").await;
    assert_eq!(victim.rollup(vec![pods(3)]).await.echo, "rollup");
    let mut operator = Operator::hello(addr, "drill30-a").await;
    for named in ["drill30-b", ""] {
        let ack = operator.rollup_of(named, vec![pods(9)]).await;
        assert_eq!(ack.echo, "rollup_rejected", "{named:?}");
        assert!(ack.reason.starts_with("cluster_id: "), "{}", ack.reason);
    }
    let security = shell_logs::with(&["security", "cluster=drill30-a", "names another cluster"]);
    assert_eq!(security.len(), 1, "once a minute: {security:?}");
    assert!(security[0].contains("ERROR") && security[0].contains("drill30-b"), "{security:?}");
    let theirs = async || inspect(addr, "", 0).await.ok().filter(|(h, _)| h.total_needs > 0);
    let (_, needs) = eventually("the demand", theirs).await;
    assert_eq!(needs.len(), 1, "{needs:?}");
    assert_eq!(needs[0].cluster_id, "drill30-b");
    assert_eq!(needs[0].need.as_ref().unwrap().aggregate_resources["cpu"], "3");
    assert_eq!(operator.rollup(vec![pods(1)]).await.echo, "rollup");
    stop(stage.handle).await;
}

/// The second half of drill 31, with a small limit.
#[tokio::test(flavor = "multi_thread")]
async fn drill31_oversized_rollup_ends_its_stream_and_keeps_the_demand() {
    shell_logs::keep();
    let stage = stage_with(Vec::new(), |options| options.max_rollup_bytes = 64 << 10).await;
    let addr = stage.handle.grpc_addr();
    let mut operator = Operator::hello(addr, "drill31").await;
    assert_eq!(operator.rollup(vec![pods(3)]).await.echo, "rollup");
    let shown = async || inspect(addr, "drill31", 0).await.ok().filter(|(h, _)| h.total_needs == 1).map(drop);
    eventually("the demand", shown).await;
    let mut large = pods(1);
    large.min_unit.insert("x".repeat(70 << 10), "1".into());
    operator
        .say(Said::Rollup(ClusterCapacityNeeds {
            cluster_id: "drill31".into(),
            timestamp_unix_nanos: 9,
            needs: vec![large],
        }))
        .await;
    let (code, message) = operator.end().await;
    assert_eq!(code, Code::ResourceExhausted, "{message}");
    assert!(message.contains("--max-rollup-bytes") && message.contains("65536"), "{message}");
    let log = shell_logs::with(&["ERROR", "cluster=drill31", "--max-rollup-bytes"]);
    assert_eq!(log.len(), 1, "{log:?}");
    // More than 70 KiB were found.
    assert!(log[0].contains("found 717") && log[0].contains("65536"), "{log:?}");
    let (_, needs) = inspect(addr, "drill31", 0).await.unwrap();
    assert_eq!(needs[0].need.as_ref().unwrap().aggregate_resources["cpu"], "3");
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drill34_newest_session_wins_and_pending_bootstraps_roll_back() {
    let stage = stage_with(vec![idle("m-1")], |_| {}).await;
    let addr = stage.handle.grpc_addr();
    let mut old = Operator::hello(addr, "drill34").await;
    assert_eq!(old.rollup(vec![pods(1)]).await.echo, "rollup");
    let (request, machine) = old.bootstrap_request().await;
    assert_eq!(machine, "m-1");

    // The old stream never answers; the new one takes over.
    let mut new = Operator::hello(addr, "drill34").await;
    let replaced = Instant::now();
    let (code, message) = old.end().await;
    assert_eq!((code, message.as_str()), (Code::Aborted, "session replaced"));
    // An answer under the old number means nothing on the new stream.
    new.answer_bootstrap(request.clone(), b"stale").await;
    let (again, machine) = new.bootstrap_request().await;
    assert_eq!(machine, "m-1");
    assert_ne!(again, request);
    // At once, not after the 30 s that a blob may take.
    assert!(replaced.elapsed() < Duration::from_secs(20), "{:?}", replaced.elapsed());
    assert!(stage.provider.fake.asked().is_empty(), "{:?}", stage.provider.fake.asked());
    new.answer_bootstrap(again, b"fresh").await;
    let asked = async || stage.provider.fake.asked().into_iter().next();
    let Asked::Configure(configure) = eventually("the Configure", asked).await else {
        panic!("no Configure")
    };
    assert_eq!((configure.machine_id.as_str(), &configure.bootstrap_blob[..]), ("m-1", &b"fresh"[..]));
    assert!((metric(&stage.handle, "session_lifecycle_total", &["replaced"]).await - 1.0).abs() < 0.5);
    assert!((metric(&stage.handle, "active_sessions", &[]).await - 1.0).abs() < 0.5);
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drill34_the_new_session_is_told_of_every_bound_machine() {
    let bound = |id: &str, cluster: &str| {
        let mut machine = idle(id);
        machine.state = MachineState::Configured.into();
        machine.cluster = cluster.into();
        machine
    };
    let machines = vec![bound("a", "drill34b"), bound("b", "drill34b"), bound("c", "another"), idle("d")];
    let stage = stage_with(machines, |_| {}).await;
    for _ in 0..2 {
        let mut operator = Operator::hello(stage.handle.grpc_addr(), "drill34b").await;
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 2 {
            let update = operator
                .until("a node state", |heard| match heard {
                    Heard::NodeStateUpdate(update) => Some(update.clone()),
                    _ => None,
                })
                .await;
            assert_eq!((update.state(), update.cluster_id.as_str()), (MachineState::Configured, "drill34b"));
            assert_eq!(update.supersedes_key, format!("node:{}", update.machine_id));
            seen.insert(update.machine_id);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
    stop(stage.handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drill35_flapping_operators_wait_from_the_fourth_replacement_on() {
    shell_logs::keep();
    let stage = stage().await;
    let addr = stage.handle.grpc_addr();
    let mut streams = vec![Operator::hello(addr, "drill35").await];
    let mut waits = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        streams.push(Operator::hello(addr, "drill35").await);
        waits.push(begun.elapsed());
    }
    // The first three go through; each further one waits its second.
    assert!(waits[3..].iter().all(|wait| *wait >= Duration::from_millis(990)), "{waits:?}");
    assert_eq!(shell_logs::with(&["ERROR", "cluster=drill35", "replace each other"]).len(), 1);
    // The newest one wins all the same.
    let mut newest = streams.pop().unwrap();
    assert_eq!(newest.rollup(vec![pods(1)]).await.echo, "rollup");
    for old in streams {
        assert_eq!(old.end().await, (Code::Aborted, "session replaced".into()));
    }
    stop(stage.handle).await;
}

/// Drill 36 without its minute: what an operator does not read waits in its own queue, complete, and disturbs nobody.
#[tokio::test(flavor = "multi_thread")]
async fn drill36_an_operator_that_does_not_read_stalls_nobody() {
    const MACHINES: usize = 600;
    let machines = (0..MACHINES).map(|n| {
        let mut machine = idle(&format!("m-{n:03}"));
        machine.state = MachineState::Configured.into();
        machine.cluster = "drill36".into();
        machine.labels = (0..60).map(|l| (format!("label-{l}"), "x".repeat(250))).collect();
        machine
    });
    // About 10 MB of states, more than the transport takes for a reader that does not read.
    let stage = stage_with(machines.collect(), |_| {}).await;
    let addr = stage.handle.grpc_addr();
    let mut asleep = Operator::dial(addr).await;
    asleep.say(Said::Hello(hello("drill36", "v1alpha1"))).await;
    let waits = async || {
        let frames = metric(&stage.handle, "session_outbox_depth", &["coalescing"]).await;
        (frames > 1.0).then_some(())
    };
    eventually("frames that wait", waits).await;
    let mut other = Operator::hello(addr, "drill36-other").await;
    assert_eq!(other.rollup(vec![pods(1)]).await.echo, "rollup");
    // It wakes up, and nothing is missing.
    asleep.until_state(MACHINES, MachineState::Configured).await;
    stop(stage.handle).await;
}
