//! Audits of decisions in a running shard: a planted mistake, and all that is to be seen of it.

use std::fs;
use std::path::{Path, PathBuf};

use bigfleet_proto::v1alpha1::MachineState as Wire;
use bigfleet_shard::options::Options;
use bigfleet_shard::service::Handle;

use crate::shell_flow::{cloud, cycles, hosts, rows};
use crate::shell_logs;
use crate::shell_operator::Operator;
use crate::shell_shard::{eventually, metric, options, ready, start, stop};

/// A shard that overlooks what changes after its first cycle, until an audit notices.
async fn faulty(mut options: Options) -> Handle {
    options.control.overlook = true;
    options.control.decision_audit_cycles = 2;
    let handle = start(options).await;
    ready(&handle).await;
    cycles(handle.grpc_addr(), 2).await;
    handle
}

fn kept(dir: &Path) -> Vec<PathBuf> {
    let folder = dir.join("decision-audit");
    fs::read_dir(folder)
        .map_or_else(|_| Vec::new(), |found| found.map(|entry| entry.unwrap().path()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_decision_is_counted_told_kept_and_followed_by_a_right_one() {
    shell_logs::keep();
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(3)).await);
    let handle = faulty(options(dir.path(), cloud.dial_addr())).await;
    let mut operator = Operator::hello(handle.grpc_addr(), "audited").await;
    assert_eq!(operator.rollup(rows(2)).await.echo, "rollup");

    // Only the forced full pass can have decided this.
    let machines = operator.work_until_all(2, Wire::Configured, b"blob").await;
    assert_eq!(machines.len(), 2);
    assert!((metric(&handle, "decision_divergences_total", &[]).await - 1.0).abs() < 1e-9);
    let seen = metric(&handle, "decision_audits_total", &[]).await;
    let [folder] = &kept(dir.path())[..] else { panic!("{:?}", kept(dir.path())) };
    for parts in [
        &["ERROR", "differs from a full pass"][..],
        &["ERROR", "differs: machine m-00: not claimed, full pass claimed"],
        &["ERROR", "differs: action on m-00: nothing, full pass Bootstrap audited"],
        &["ERROR", "state and both answers are kept", folder.to_str().unwrap()],
    ] {
        assert!(!shell_logs::with(parts).is_empty(), "{parts:?}");
    }

    let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (state, live, full) = (file("state.json"), file("live.json"), file("full.json"));
    assert!(file("beside.json").contains("\"machines\": []"), "{}", file("beside.json"));
    let input = bigfleet_decide::read(state.as_bytes()).unwrap();
    let replayed = bigfleet_decide::decide(&input).to_json().unwrap();
    assert_eq!(replayed, full, "what `bigfleet decide` says to the state");
    assert_ne!(replayed, live);
    assert_eq!(full.matches("\"Bootstrap\"").count(), 2, "{full}");
    assert_eq!(live.matches("\"Bootstrap\"").count(), 0, "{live}");

    // Something has to change for another one.
    assert_eq!(operator.rollup(rows(1)).await.echo, "rollup");
    let more = async || (metric(&handle, "decision_audits_total", &[]).await > seen).then_some(());
    eventually("an audit after that", more).await;
    assert!((metric(&handle, "decision_divergences_total", &[]).await - 1.0).abs() < 1e-9);
    assert!(metric(&handle, "decision_audits_failed_total", &[]).await < 0.5);
    stop(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_written_are_said_to_be_lost() {
    shell_logs::keep();
    let (dir, cloud) = (tempfile::tempdir().unwrap(), cloud(hosts(1)).await);
    fs::write(dir.path().join("decision-audit"), "in the way").unwrap();
    let handle = faulty(options(dir.path(), cloud.dial_addr())).await;
    let mut operator = Operator::hello(handle.grpc_addr(), "unkept").await;
    assert_eq!(operator.rollup(rows(1)).await.echo, "rollup");
    operator.work_until_all(1, Wire::Configured, b"blob").await;
    let path = dir.path().join("decision-audit").join(".partial");
    let lost = ["ERROR", "state and answers are lost: cannot write", path.to_str().unwrap()];
    assert!(!shell_logs::with(&lost).is_empty());
    stop(handle).await;
}
