//! The boot command: real programs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bigfleet_provider_kit::backend::Error;
use bigfleet_provider_kit::fakecloud::{BootCommand, FakeCloud, NodeHook, Options};
use bigfleet_provider_kit::{Blob, Operation, Timeouts};
use bigfleet_types::MachineState::{Configured, Failed, Idle};
use tokio::sync::Notify;

use crate::fixture::{Cloud, eventually, metadata, options, serve};

/// Runs `script` in a shell, with `dir` as its only argument.
fn shell(dir: &Path, script: &str) -> Options {
    let args = ["-c", script, "boot", &dir.display().to_string()].map(str::to_owned).to_vec();
    Options { boot: Some(BootCommand { program: "/bin/sh".into(), args }), ..options() }
}

async fn start(options: Options) -> Cloud {
    serve(FakeCloud::new(options).unwrap()).await
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

#[tokio::test]
async fn the_program_sees_the_operation_and_the_blob() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        out="$1/$BIGFLEET_OPERATION"
        env | grep ^BIGFLEET_ | sort > "$out.env"
        cat > "$out.stdin"
    "#;
    let cloud = start(shell(dir.path(), script)).await;
    cloud.client.configure_with("idle-1", "cluster-a", b"secret\0blob", metadata()).await.unwrap();
    cloud.settled("idle-1", Configured).await;
    assert_eq!(
        read(dir.path(), "Configure.env"),
        "BIGFLEET_CLUSTER=cluster-a\nBIGFLEET_INSTANCE_TYPE=m6i.large\nBIGFLEET_MACHINE_ID=idle-1\n\
         BIGFLEET_OPERATION=Configure\nBIGFLEET_OPERATION_ID=op-1\nBIGFLEET_ZONE=zone-b\n"
    );
    assert_eq!(read(dir.path(), "Configure.stdin"), "secret\0blob");
    cloud.client.drain("idle-1", 17).await.unwrap();
    cloud.settled("idle-1", Idle).await;
    assert!(
        read(dir.path(), "Drain.env").contains("BIGFLEET_CLUSTER=cluster-a\nBIGFLEET_GRACE_SECONDS=17\n")
    );
    assert_eq!(read(dir.path(), "Drain.stdin"), "");
    cloud.stop().await;
}

#[tokio::test]
async fn a_bad_exit_fails_the_machine_with_its_last_words_but_never_the_blob() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = start(shell(dir.path(), "echo first >&2; echo no network >&2; exit 3")).await;
    cloud.client.configure("idle-0", "a").await.unwrap();
    let failed = cloud.settled("idle-0", Failed).await;
    assert!(failed.last_error.contains("exit status: 3: no network"), "{}", failed.last_error);
    assert_eq!(failed.cluster, "a");
    cloud.stop().await;

    let cloud = start(shell(dir.path(), "cat >&2; exit 1")).await;
    cloud.client.configure_with("idle-0", "a", b"join now\ncanary-in-a-blob\n", metadata()).await.unwrap();
    let failed = cloud.settled("idle-0", Failed).await;
    assert!(!failed.last_error.contains("canary"), "{}", failed.last_error);
    assert!(failed.last_error.contains("exit status: 1"), "{}", failed.last_error);
    cloud.stop().await;

    let mut missing = shell(dir.path(), "");
    missing.boot.as_mut().unwrap().program = "/no/such/program".into();
    let cloud = start(missing).await;
    cloud.client.configure("idle-0", "a").await.unwrap();
    assert!(cloud.settled("idle-0", Failed).await.last_error.contains("/no/such/program"));
    cloud.stop().await;
}

/// Whether a process is there and not just a dead entry.
fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

#[tokio::test]
async fn a_time_out_kills_the_whole_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"sleep 1000 & echo $! > "$1/grandchild.new"; echo $$ > "$1/child"; mv "$1/grandchild.new" "$1/grandchild"; wait"#;
    let cloud = FakeCloud::new(shell(dir.path(), script)).unwrap();
    let cloud = serve(cloud.kit(|kit| kit.timeouts = Timeouts::all(Duration::from_secs(6)))).await;
    cloud.client.configure("idle-0", "a").await.unwrap();
    eventually("the grandchild runs", async || dir.path().join("grandchild").exists().then_some(())).await;
    let (child, grandchild) = (read(dir.path(), "child"), read(dir.path(), "grandchild"));
    assert!(alive(grandchild.trim()));
    let failed = cloud.settled("idle-0", Failed).await;
    assert!(failed.last_error.contains("timeout: Configure"), "{}", failed.last_error);
    for pid in [child, grandchild] {
        eventually("the process is gone", async || (!alive(pid.trim())).then_some(())).await;
    }
    cloud.stop().await;
}

#[tokio::test]
async fn what_a_good_program_leaves_behind_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    // The child keeps standard error open, as a daemon might.
    let cloud = start(shell(dir.path(), r#"sleep 1000 & echo $! > "$1/daemon""#)).await;
    cloud.client.configure("idle-0", "a").await.unwrap();
    cloud.settled("idle-0", Configured).await;
    let daemon = read(dir.path(), "daemon");
    assert!(alive(daemon.trim()));
    cloud.stop().await;
    assert!(alive(daemon.trim()));
    let pid = rustix::process::Pid::from_raw(daemon.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[derive(Default)]
struct Node {
    ready: Notify,
    leaves: Notify,
}

#[async_trait]
impl NodeHook for Node {
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        assert_eq!(blob.expose(), b"blob");
        if operation.machine.cluster == "broken" {
            return Err(Error::new("no such cluster"));
        }
        assert_ne!(operation.machine.cluster, "panics");
        self.ready.notified().await;
        Ok(())
    }

    async fn drain(&self, _operation: Operation<'_>) -> Result<(), Error> {
        self.leaves.notified().await;
        Ok(())
    }
}

#[tokio::test]
async fn a_hook_decides_when_a_node_is_ready_and_gone() {
    let node = Arc::new(Node::default());
    let cloud = serve(FakeCloud::new(options()).unwrap().hook(Arc::clone(&node) as Arc<dyn NodeHook>)).await;
    cloud.client.configure("idle-0", "a").await.unwrap();
    for _ in 0..20 {
        assert_ne!(cloud.control().state("idle-0"), Some(Configured), "before the node is Ready");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    node.ready.notify_one();
    cloud.settled("idle-0", Configured).await;
    cloud.client.drain("idle-0", 1).await.unwrap();
    node.leaves.notify_one();
    cloud.settled("idle-0", Idle).await;
    cloud.client.configure("idle-1", "broken").await.unwrap();
    assert_eq!(cloud.settled("idle-1", Failed).await.last_error, "no such cluster");
    cloud.client.configure("idle-2", "panics").await.unwrap();
    assert!(cloud.settled("idle-2", Failed).await.last_error.contains("panicked"));
    cloud.stop().await;
}
