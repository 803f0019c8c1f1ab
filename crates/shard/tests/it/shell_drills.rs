//! Failure drills of the core once more through the whole shard, against the kit's cloud and its knobs.

use bigfleet_proto::v1alpha1::MachineState as Wire;
use bigfleet_proto::v1alpha1::shard_message::Payload as Heard;
use bigfleet_provider_kit::Method;
use bigfleet_provider_kit::fakecloud::{self, Corruption, ListFault};
use bigfleet_shard::service::Handle;
use bigfleet_types::MachineState;

use crate::shell_flow::{all_in, cloud, count, cycles, host, hosts, rows, shard, slot};
use crate::shell_logs;
use crate::shell_operator::Operator;
use crate::shell_shard::{eventually, metric, stop};

struct Drill {
    cloud: fakecloud::Handle,
    shard: Handle,
    operator: Operator,
    _dir: tempfile::TempDir,
}

async fn drill(cluster: &str, machines: impl IntoIterator<Item = bigfleet_provider_kit::Instance>) -> Drill {
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(machines).await);
    let shard = shard(dir.path(), cloud.dial_addr()).await;
    let operator = Operator::hello(shard.grpc_addr(), cluster).await;
    Drill { cloud, shard, operator, _dir: dir }
}

impl Drill {
    fn calls(&self, method: Method) -> u64 {
        self.cloud.control().total_calls(method)
    }

    async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        metric(&self.shard, name, labels).await
    }

    async fn cycles(&self, n: i64) {
        cycles(self.shard.grpc_addr(), n).await;
    }

    async fn over(self) {
        stop(self.shard).await;
        self.cloud.shutdown().await.unwrap();
    }
}

/// Control: treat a silent Configure as not done: another machine is taken.
#[tokio::test(flavor = "multi_thread")]
async fn drill02_configure_applied_ack_lost() {
    let mut drill = drill("drill02", hosts(3)).await;
    for n in 0..3 {
        drill.cloud.control().drop_next_answer(&format!("m-{n:02}"), Method::Configure);
    }
    drill.operator.rollup(rows(1)).await;
    drill.operator.work_until_all(1, Wire::Configured, b"blob").await;
    drill.cycles(3).await;
    assert_eq!(drill.calls(Method::Configure), 1, "no second machine");
    assert_eq!(count(&drill.cloud, MachineState::Configured).await, 1);
    drill.over().await;
}

/// Control: as drill 2, for Create.
#[tokio::test(flavor = "multi_thread")]
async fn drill03_create_applied_ack_lost() {
    let mut drill = drill("drill03", (0..3).map(|n| slot(&format!("s-{n}")))).await;
    for n in 0..3 {
        drill.cloud.control().drop_next_answer(&format!("s-{n}"), Method::Create);
    }
    drill.operator.rollup(rows(1)).await;
    drill.operator.work_until_all(1, Wire::Configured, b"blob").await;
    drill.cycles(3).await;
    assert_eq!((drill.calls(Method::Create), drill.calls(Method::Configure)), (1, 1));
    assert_eq!(count(&drill.cloud, MachineState::Speculative).await, 2);
    drill.over().await;
}

/// Control: accept commanded edges only: the Failed machine stays credited.
#[tokio::test(flavor = "multi_thread")]
async fn drill06_spot_reclaim() {
    let mut drill = drill("drill06", hosts(2)).await;
    drill.operator.rollup(rows(1)).await;
    let lost = drill.operator.work_until_all(1, Wire::Configured, b"blob").await.remove(0);
    assert!(drill.cloud.control().fail_machine(&lost, "reclaimed").await.unwrap());
    let told = |heard: &Heard| match heard {
        Heard::NodeStateUpdate(u) if u.state() == Wire::Failed => {
            Some((u.machine_id.clone(), u.last_error.clone()))
        }
        _ => None,
    };
    let (machine, error) = drill.operator.work_until("FAILED", b"blob", told).await;
    assert_eq!((machine, error.contains("reclaimed")), (lost.clone(), true), "{error}");
    let other = drill.operator.work_until_all(1, Wire::Configured, b"blob").await.remove(0);
    assert_ne!(other, lost);
    drill.cycles(3).await;
    assert_eq!(drill.cloud.control().calls(Method::Drain, &lost), 0);
    assert_eq!(drill.cloud.control().calls(Method::Delete, &lost), 0);
    drill.over().await;
}

/// Control: believe the first List: everything is removed and bought again.
#[tokio::test(flavor = "multi_thread")]
async fn drill08_list_returns_empty() {
    shell_logs::keep();
    let mut drill = drill("drill08", hosts(23)).await;
    drill.operator.rollup(rows(2)).await;
    drill.operator.work_until_all(2, Wire::Configured, b"blob").await;
    // Held from the first one on; three that agree would be believed, so it heals as soon as it is seen.
    drill.cloud.control().spoil_list(Some(ListFault::Empty));
    eventually("the quarantine", async || {
        (drill.metric("removals_quarantined", &[]).await > 0.5).then_some(())
    })
    .await;
    drill.cloud.control().spoil_list(None);
    eventually("its end", async || (drill.metric("removals_quarantined", &[]).await < 0.5).then_some(()))
        .await;
    drill.cycles(2).await;
    assert!(!shell_logs::with(&["ERROR", "the List lacks many machines", "inventory=23"]).is_empty());
    assert_eq!(drill.metric("inventory_machines", &[]).await.round(), 23.0);
    assert_eq!((drill.calls(Method::Configure), drill.calls(Method::Drain)), (2, 0));
    drill.over().await;
}

/// Control: count only accepted records as seen: the refused machines are removed.
#[tokio::test(flavor = "multi_thread")]
async fn drill10_bad_records() {
    let mut drill = drill("drill10", hosts(6)).await;
    drill.operator.rollup(rows(5)).await;
    let bound = drill.operator.work_until_all(5, Wire::Configured, b"blob").await;
    let spoilt = [
        Corruption::Price(-1.0),
        Corruption::Price(f64::NAN),
        Corruption::Probability(1.7),
        Corruption::State(99),
        Corruption::EmptyId,
    ];
    for (machine, corruption) in bound.iter().zip(spoilt) {
        drill.cloud.control().corrupt(machine, Some(corruption));
    }
    for (reason, at_least) in [("price", 2.0), ("interruption_probability", 1.0), ("structural", 1.0)] {
        let enough = async || {
            (drill.metric("machines_rejected_total", &[reason]).await > at_least - 0.5).then_some(())
        };
        eventually(reason, enough).await;
    }
    drill.cycles(3).await;
    assert_eq!((drill.calls(Method::Configure), drill.calls(Method::Drain)), (5, 0));
    // One is missing by its id, which is too few to doubt the List.
    let configured = drill.metric("inventory_machines", &["Configured"]).await.round();
    assert!((4.0..=5.0).contains(&configured), "{configured}");
    drill.over().await;
}

/// Control: latch at the first fenced machine: one mistake of the provider stops the shard.
#[tokio::test(flavor = "multi_thread")]
async fn drill20_failed_precondition_for_one_machine() {
    let mut drill = drill("drill20", hosts(3)).await;
    drill.cloud.control().misuse_failed_precondition("m-00", true);
    drill.operator.rollup(rows(2)).await;
    drill.operator.work_until_all(2, Wire::Configured, b"blob").await;
    drill.cycles(3).await;
    assert_eq!(drill.cloud.control().state("m-00"), Some(MachineState::Idle));
    assert_eq!(drill.metric("self_fenced", &[]).await.round(), 0.0);
    let fenced = drill.metric("action_execute_outcomes_total", &["Bootstrap", "fenced"]).await;
    assert_eq!((fenced.round(), drill.cloud.control().calls(Method::Configure, "m-00")), (1.0, 1));
    drill.over().await;
}

/// Control: leave Instructed Reclaims to their time-out when the session ends: the provider is told to drain.
#[tokio::test(flavor = "multi_thread")]
async fn drill39_reclaim_waits_for_its_operator() {
    let mut drill = drill("drill39", [host("m-00"), host("m-01")]).await;
    drill.operator.rollup(rows(2)).await;
    drill.operator.work_until_all(2, Wire::Configured, b"blob").await;
    drill.operator.rollup(rows(1)).await;
    let told = |heard: &Heard| matches!(heard, Heard::ReclaimInstruction(_)).then_some(());
    drill.operator.until("an instruction", told).await;
    let Drill { cloud, shard, operator, _dir } = drill;
    drop(operator);
    let deferred = async || {
        let outcomes = metric(&shard, "action_execute_outcomes_total", &["Reclaim", "no_session"]).await;
        (outcomes > 0.5).then_some(())
    };
    eventually("the Reclaim to be put off", deferred).await;
    cycles(shard.grpc_addr(), 3).await;
    assert_eq!(cloud.control().total_calls(Method::Drain), 0);
    let mut operator = Operator::hello(shard.grpc_addr(), "drill39").await;
    let work = operator.work_until("nothing, for ever", b"blob", |_| None::<()>);
    tokio::select! {
        () = work => unreachable!(),
        () = all_in(&cloud, MachineState::Idle, 1) => {}
    }
    assert_eq!(cloud.control().total_calls(Method::Drain), 1);
    stop(shard).await;
    cloud.shutdown().await.unwrap();
}
