//! From demand to a machine and back, against the kit's asynchronous cloud.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bigfleet_proto::v1alpha1::MachineState as Wire;
use bigfleet_proto::v1alpha1::shard_message::Payload as Heard;
use bigfleet_provider_kit::fakecloud::{self, FakeCloud};
use bigfleet_provider_kit::{Host, Instance, Kind, Method};
use bigfleet_shard::service::{Failure, Handle};
use bigfleet_types::{CapacityType, MachineState};

use crate::shell_logs;
use crate::shell_operator::{LONG, Operator, pods, row};
use crate::shell_shard::{eventually, get, inspect, metric, options, ready, start, stop};

const MUTATIONS: [Method; 4] = [Method::Create, Method::Configure, Method::Drain, Method::Delete];

/// A host of 2 cores and 8 GiB that costs nothing and is never given back.
pub(crate) fn host(id: &str) -> Instance {
    Instance {
        host: Some(Host { provider: "test".into(), reference: format!("host-{id}") }),
        capacity_type: CapacityType::BareMetal,
        price_per_hour: 0.0,
        ..slot(id)
    }
}

/// A slot for such a machine, by the hour.
pub(crate) fn slot(id: &str) -> Instance {
    let vector = [("cpu".to_owned(), "2".to_owned()), ("memory".to_owned(), "8Gi".to_owned())];
    Instance {
        id: id.into(),
        host: None,
        instance_type: "m6i.large".into(),
        zone: "zone-a".into(),
        capacity_type: CapacityType::OnDemand,
        price_per_hour: 0.1,
        interruption_probability: 0.0,
        resources: vector.into(),
        allocatable: std::collections::BTreeMap::new(),
        labels: std::collections::BTreeMap::new(),
    }
}

pub(crate) async fn cloud(machines: impl IntoIterator<Item = Instance>) -> fakecloud::Handle {
    let listener = bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap();
    let cloud = FakeCloud::new(fakecloud::Options::default()).unwrap().start(listener).await.unwrap();
    for machine in machines {
        assert!(cloud.control().add(machine).await.unwrap());
    }
    cloud
}

pub(crate) fn hosts(n: usize) -> impl Iterator<Item = Instance> {
    (0..n).map(|n| host(&format!("m-{n:02}")))
}

/// `n` rows that a host each is needed for: they differ in priority.
pub(crate) fn rows(n: i32) -> Vec<bigfleet_proto::v1alpha1::CapacityNeed> {
    (0..n).map(|n| row(2, 100 + n)).collect()
}

pub(crate) async fn count(cloud: &fakecloud::Handle, state: MachineState) -> usize {
    cloud.control().machines().iter().filter(|m| MachineState::from_number(m.state) == Some(state)).count()
}

pub(crate) async fn all_in(cloud: &fakecloud::Handle, state: MachineState, n: usize) {
    eventually(&format!("{n} machines {state}"), async || (count(cloud, state).await == n).then_some(()))
        .await;
}

/// Waits for `n` more cycles.
pub(crate) async fn cycles(addr: SocketAddr, n: i64) {
    let cycle = async || inspect(addr, "", 1).await.unwrap().0.cycle;
    let goal = cycle().await + n;
    eventually("more cycles", async || (cycle().await >= goal).then_some(())).await;
}

pub(crate) async fn shard(dir: &Path, provider: SocketAddr) -> Handle {
    let handle = start(options(dir, provider)).await;
    ready(&handle).await;
    handle
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_comes_with_demand_and_goes_with_it() {
    const CANARY: &str = "canary-2b1d-token";
    shell_logs::keep();
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(10)).await);
    let audit = dir.path().join("audit.jsonl");
    let mut options = options(dir.path(), cloud.dial_addr());
    options.audit_log = Some(audit.clone());
    let handle = start(options).await;
    ready(&handle).await;
    let addr = handle.grpc_addr();

    let mut operator = Operator::hello(addr, "flow").await;
    assert_eq!(operator.rollup(rows(10)).await.echo, "rollup");
    let machines = operator.work_until_all(10, Wire::Configured, CANARY.as_bytes()).await;
    assert_eq!(machines.len(), 10);
    assert_eq!(count(&cloud, MachineState::Configured).await, 10);
    let stamped = cloud.control().provider().machine("m-00").unwrap();
    assert_eq!(stamped.cluster, "flow");
    assert!(stamped.shard_metadata.contains_key("bigfleet.lucy.sh/assigned-need-fingerprint"), "{stamped:?}");
    let needs = eventually("every Need satisfied", async || {
        let (header, needs) = inspect(addr, "flow", 0).await.unwrap();
        assert!(header.cycle > 0 && header.computed_at_unix_nanos > 0);
        needs.iter().all(|need| need.satisfied).then_some(needs)
    })
    .await;
    let priorities: Vec<_> = needs.iter().map(|n| n.need.as_ref().unwrap().priority).collect();
    assert_eq!(priorities, (100..110).rev().collect::<Vec<_>>(), "not in order of priority");
    assert!(needs.iter().all(|n| n.claimed_machine_count == 1 && n.residual_deficit.is_none()));
    let (header, limited) = inspect(addr, "flow", 3).await.unwrap();
    assert_eq!((header.total_needs, limited.len()), (10, 3));
    assert_eq!(inspect(addr, "another", 0).await.unwrap().0.total_needs, 0);

    // The demand vanishes: held twice, believed the third time.
    for held in [1.0, 2.0] {
        assert_eq!(operator.rollup(Vec::new()).await.echo, "rollup");
        cycles(addr, 2).await;
        assert!((metric(&handle, "rollup_quarantined", &["flow"]).await - held).abs() < 0.5);
        assert_eq!(cloud.control().total_calls(Method::Drain), 0);
    }
    assert_eq!(operator.rollup(Vec::new()).await.echo, "rollup");
    let (freed, grace) = operator
        .work_until("a reclaim", CANARY.as_bytes(), |heard| match heard {
            Heard::ReclaimInstruction(r) => Some((r.clone(), r.grace_period_seconds)),
            _ => None,
        })
        .await;
    assert_eq!((grace, freed.preemptor_priority, freed.machine_ids.len()), (600, 0, 1));
    assert_eq!(freed.nodes, freed.machine_ids);
    operator.ack_reclaim(freed.instruction_id).await;
    let idle = operator.work_until_all(1, Wire::Idle, CANARY.as_bytes()).await;
    assert_eq!(idle[0], freed.machine_ids[0]);
    let machine = cloud.control().provider().machine(&idle[0]).unwrap();
    assert_eq!((machine.state(), machine.cluster.as_str()), (Wire::Idle, ""));
    assert!(metric(&handle, "action_execute_outcomes_total", &["Bootstrap", "success"]).await > 9.5);

    // The blob is nowhere but with the provider.
    let (_, metrics) = get(handle.metrics_addr().unwrap(), "/metrics").await;
    stop(handle).await;
    let audited = fs::read_to_string(&audit).unwrap();
    assert!(audited.lines().count() >= 11, "{audited}");
    for text in [&audited, &metrics, &shell_logs::with(&[CANARY]).concat()] {
        assert!(!text.contains(CANARY), "a blob leaked");
    }
    cloud.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_where_the_last_process_stopped() {
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(2)).await);
    let first = shard(dir.path(), cloud.dial_addr()).await;
    let mut operator = Operator::hello(first.grpc_addr(), "restart").await;
    operator.rollup(rows(1)).await;
    let bound = operator.work_until_all(1, Wire::Configured, b"blob").await;
    let epoch = first.epoch();
    stop(first).await;
    let before = cloud.control().all_actions();

    let second = shard(dir.path(), cloud.dial_addr()).await;
    assert!(second.epoch() > epoch);
    cycles(second.grpc_addr(), 3).await;
    let mut operator = Operator::hello(second.grpc_addr(), "restart").await;
    assert_eq!(operator.work_until_all(1, Wire::Configured, b"blob").await, bound, "not replayed");
    operator.rollup(rows(1)).await;
    let satisfied = async || {
        let (_, needs) = inspect(second.grpc_addr(), "restart", 0).await.unwrap();
        needs.iter().any(|need| need.satisfied && need.claimed_machine_count == 1).then_some(())
    };
    eventually("credit for the bound machine", satisfied).await;
    assert_eq!(cloud.control().all_actions(), before, "the restart did something");
    // The new epoch is accepted for the old machine.
    operator.rollup(Vec::new()).await;
    assert_eq!(operator.work_until_all(1, Wire::Idle, b"blob").await, bound);
    assert!(metric(&second, "action_execute_outcomes_total", &["fenced"]).await < 0.5);
    stop(second).await;
    cloud.shutdown().await.unwrap();
}

/// Binds three machines under an epoch far in the future, and stops.
async fn future_epoch(cloud: &fakecloud::Handle, cluster: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("epoch"), "9000000000000000000").unwrap();
    let first = shard(dir.path(), cloud.dial_addr()).await;
    assert_eq!(first.epoch(), 9_000_000_000_000_000_001);
    let mut operator = Operator::hello(first.grpc_addr(), cluster).await;
    operator.rollup(rows(3)).await;
    operator.work_until_all(3, Wire::Configured, b"blob").await;
    stop(first).await;
}

/// Drill 22's second half: the data directory is lost and the clock is behind the lost epoch.
#[tokio::test(flavor = "multi_thread")]
async fn drill22_a_lower_epoch_is_fenced_and_latches_after_three_machines() {
    shell_logs::keep();
    let cloud = cloud(hosts(3)).await;
    future_epoch(&cloud, "drill22").await;
    let before = cloud.control().all_actions();
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), cloud.dial_addr());
    options.control.reclaim_cap_fraction = 0.0;
    let mut second = start(options).await;
    ready(&second).await;
    let mut operator = Operator::hello(second.grpc_addr(), "drill22").await;
    operator.rollup(Vec::new()).await;
    let latched = async || metric(&second, "self_fenced", &[]).await;
    let work = operator.work_until("nothing, for ever", b"blob", |_| None::<()>);
    let outcome = tokio::select! {
        () = work => unreachable!(),
        () = eventually("the latch", async || (latched().await > 0.5).then_some(())) => second.epoch(),
    };
    assert!(outcome < 9_000_000_000_000_000_001);
    assert!(
        (metric(&second, "action_execute_outcomes_total", &["Reclaim", "fenced"]).await - 3.0).abs() < 0.5
    );
    assert_eq!(cloud.control().all_actions(), before, "a fenced call had an effect");
    assert_eq!(count(&cloud, MachineState::Configured).await, 3);
    // It goes on reading: Lists, sessions, readers, probes.
    cycles(second.grpc_addr(), 2).await;
    assert_eq!(get(second.metrics_addr().unwrap(), "/readyz").await.0, 200);
    assert!(tokio::time::timeout(Duration::from_millis(50), second.wait()).await.is_err(), "it ended");
    stop(second).await;
    cloud.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_shard_ends_when_the_epoch_file_names_a_successor() {
    let cloud = cloud(hosts(3)).await;
    future_epoch(&cloud, "successor").await;
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), cloud.dial_addr());
    options.control.reclaim_cap_fraction = 0.0;
    let mut zombie = start(options).await;
    ready(&zombie).await;
    fs::write(dir.path().join("epoch"), (zombie.epoch() + 1).to_string()).unwrap();
    let mut operator = Operator::hello(zombie.grpc_addr(), "successor").await;
    operator.rollup(Vec::new()).await;
    let working = tokio::spawn(async move {
        while let Ok(Some(heard)) = operator.next().await {
            if let Heard::ReclaimInstruction(reclaim) = heard {
                operator.ack_reclaim(reclaim.instruction_id).await;
            }
        }
    });
    let end = tokio::time::timeout(LONG, zombie.wait()).await.expect("the zombie lives on").unwrap_err();
    assert!(matches!(&end, Failure::Superseded(by) if by.found == zombie.epoch() + 1), "{end}");
    tokio::time::timeout(LONG, working).await.unwrap().unwrap();
    cloud.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn drill46_pause_file_mid_burst() {
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(12)).await);
    cloud.control().stage(Kind::Configure, true);
    let handle = shard(dir.path(), cloud.dial_addr()).await;
    let mut operator = Operator::hello(handle.grpc_addr(), "drill46").await;
    operator.rollup(rows(12)).await;
    // Two are in flight at the provider, others wait for their blob.
    for _ in 0..2 {
        let (request, _) = operator.bootstrap_request().await;
        operator.answer_bootstrap(request, b"blob").await;
    }
    all_in(&cloud, MachineState::Configuring, 2).await;
    let (waiting, _) = operator.bootstrap_request().await;

    fs::write(dir.path().join("PAUSE"), "").unwrap();
    let paused = async |want: f64| {
        let found =
            async || ((metric(&handle, "actuation_paused", &[]).await - want).abs() < 0.5).then_some(());
        eventually("the pause", found).await;
    };
    paused(1.0).await;
    let calls = || MUTATIONS.map(|method| cloud.control().total_calls(method));
    let before = calls();
    assert_eq!(before[1], 2, "Configures");
    // The next stage of an action under way does not start.
    operator.answer_bootstrap(waiting, b"blob").await;
    cycles(handle.grpc_addr(), 3).await;
    assert_eq!(calls(), before, "a paused shard changed machines");
    assert!(metric(&handle, "actions_suppressed_total", &["Bootstrap"]).await > 0.5);
    // What is in flight settles.
    cloud.control().stage(Kind::Configure, false);
    operator.until_state(2, Wire::Configured).await;
    assert_eq!(calls(), before);
    assert_eq!(count(&cloud, MachineState::Idle).await, 10);

    fs::remove_file(dir.path().join("PAUSE")).unwrap();
    paused(0.0).await;
    let work = operator.work_until("nothing, for ever", b"blob", |_| None::<()>);
    tokio::select! {
        () = work => unreachable!(),
        () = all_in(&cloud, MachineState::Configured, 12) => {}
    }
    stop(handle).await;
    cloud.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn drill47_dry_run_against_a_live_fleet() {
    shell_logs::keep();
    let machines = [host("m-00"), slot("slot-00"), slot("slot-01")];
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(machines).await);
    assert!(cloud.control().add_configured(host("bound-00"), "drill47-b").await.unwrap());
    let audit = dir.path().join("audit.jsonl");
    let mut options = options(dir.path(), cloud.dial_addr());
    options.control.dry_run = true;
    options.audit_log = Some(audit.clone());
    let handle = start(options).await;
    ready(&handle).await;
    let addr = handle.grpc_addr();
    let mut wants = Operator::hello(addr, "drill47-a").await;
    let mut leaves = Operator::hello(addr, "drill47-b").await;
    wants.rollup(rows(2)).await;
    leaves.rollup(Vec::new()).await;
    let counted = async |kind: &str| metric(&handle, "actions_dryrun_total", &[kind]).await;
    for kind in ["Bootstrap", "Provision", "Reclaim"] {
        eventually(kind, async || (counted(kind).await > 0.5).then_some(())).await;
    }
    cycles(addr, 3).await;
    // Nothing converges, so the intentions come again.
    assert!(counted("Reclaim").await > 1.5);
    assert!(metric(&handle, "actions_total", &[]).await < 0.5);
    for method in MUTATIONS {
        assert_eq!(cloud.control().total_calls(method), 0, "{method:?}");
    }
    stop(handle).await;
    for operator in [&mut wants, &mut leaves] {
        while let Ok(Some(heard)) = operator.next().await {
            operator.passed.push(heard);
        }
        let told = operator
            .passed
            .iter()
            .any(|heard| matches!(heard, Heard::BootstrapRequest(_) | Heard::ReclaimInstruction(_)));
        assert!(!told, "{operator:?} was told to act: {:?}", operator.passed);
    }
    // What is observed reaches operators all the same.
    let observed = leaves.passed.iter().any(|heard| {
        matches!(heard, Heard::NodeStateUpdate(u) if u.machine_id == "bound-00" && u.state() == Wire::Configured)
    });
    assert!(observed, "{:?}", leaves.passed);
    let audited = fs::read_to_string(&audit).unwrap();
    for kind in ["Bootstrap", "Provision", "Reclaim"] {
        let (kind, outcome) = (format!("\"kind\":\"{kind}\""), "\"outcome\":\"dryrun\"");
        assert!(
            audited.lines().any(|line| line.contains(&kind) && line.contains(outcome)),
            "{kind}: {audited}"
        );
    }
    assert!(audited.lines().all(|line| line.contains("dryrun")), "{audited}");
    cloud.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_small_pods_share_one_machine() {
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(3)).await);
    let handle = shard(dir.path(), cloud.dial_addr()).await;
    let mut operator = Operator::hello(handle.grpc_addr(), "small").await;
    operator.rollup(vec![pods(2)]).await;
    operator.work_until_all(1, Wire::Configured, b"blob").await;
    cycles(handle.grpc_addr(), 2).await;
    assert_eq!(count(&cloud, MachineState::Configured).await, 1);
    stop(handle).await;
    cloud.shutdown().await.unwrap();
}
