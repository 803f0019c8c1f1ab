//! The providers as programs, with the flags that a conformance runner starts them with.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_types::MachineState::{self, Configured, Failed, Idle, Speculative};
use tonic::transport::Channel;

use crate::process::{PATIENCE, Program};

/// The six calls, without fencing.
pub(crate) struct Client(CapacityProviderClient<Channel>);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let channel = channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap();
        Self(CapacityProviderClient::new(channel).max_decoding_message_size(64 << 20))
    }

    pub(crate) async fn list(&mut self) -> Vec<pb::Machine> {
        self.0.list(pb::ListFilter::default()).await.unwrap().into_inner().machines
    }

    pub(crate) async fn create(&mut self, id: &str) -> Result<pb::TransitionAck, tonic::Status> {
        let request = pb::CreateRequest { machine_id: id.into(), ..pb::CreateRequest::default() };
        Ok(self.0.create(request).await?.into_inner())
    }

    pub(crate) async fn configure(&mut self, id: &str, cluster: &str) -> pb::TransitionAck {
        let request = pb::ConfigureRequest {
            machine_id: id.into(),
            cluster_id: cluster.into(),
            bootstrap_blob: b"secret blob of the test".to_vec().into(),
            ..pb::ConfigureRequest::default()
        };
        self.0.configure(request).await.unwrap().into_inner()
    }

    pub(crate) async fn drain(&mut self, id: &str) {
        let request = pb::DrainRequest { machine_id: id.into(), ..pb::DrainRequest::default() };
        self.0.drain(request).await.unwrap();
    }

    pub(crate) async fn delete(&mut self, id: &str) -> Result<(), tonic::Status> {
        let request = pb::DeleteRequest { machine_id: id.into(), ..pb::DeleteRequest::default() };
        self.0.delete(request).await.map(|_| ())
    }

    pub(crate) async fn get(&mut self, id: &str) -> pb::Machine {
        self.0.get(pb::MachineRef { id: id.into() }).await.unwrap().into_inner()
    }

    /// Waits until a machine is in `state`.
    pub(crate) async fn settled(&mut self, id: &str, state: MachineState) -> pb::Machine {
        let begun = std::time::Instant::now();
        loop {
            let machine = self.get(id).await;
            if machine.state == i32::from(state.number()) {
                return machine;
            }
            assert!(begun.elapsed() < PATIENCE, "{id} never becomes {state}: {machine:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// Starts a provider under its own program name, as the public runner does.
fn by_name(folder: &Path, name: &str, args: &[&str]) -> Program {
    let program = folder.join(format!("bigfleet-provider-{name}"));
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_bigfleet"), &program).unwrap();
    }
    Program::start_as(&program, args, &folder.join("log"))
}

#[tokio::test]
async fn fakecloud_takes_the_flags_of_the_public_runner() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("durable-state.json").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--provider=certify",
        "--use-fake-backend",
        "--seed-count=64",
        "--metrics-addr=0",
        &state,
    ];
    let mut program = by_name(folder.path(), "fakecloud", &args);
    let mut client = Client::connect(program.ready("provider"));
    let machines = client.list().await;
    assert_eq!(machines.len(), 64);
    assert!(machines.iter().all(|m| m.state == i32::from(Speculative.number())));
    let joined = client.create("seed-5").await.unwrap().operation_id;
    assert_eq!(client.settled("seed-5", Idle).await.host.unwrap().provider, "certify");
    program.kill();
    let mut program = by_name(folder.path(), "fakecloud", &args);
    let mut client = Client::connect(program.ready("provider"));
    assert_eq!(client.get("seed-5").await.state, i32::from(Idle.number()));
    assert_eq!(client.create("seed-5").await.unwrap().operation_id, joined);
    client.delete("seed-5").await.unwrap();
    client.settled("seed-5", Speculative).await;
    assert!(program.terminate().0.success());
}

#[tokio::test]
async fn fault_fails_what_the_wire_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("state").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--provider=fault",
        "--seed-count=64",
        "--transition-timeout=1s",
        "--metrics-addr=0",
        &state,
    ];
    let mut program = by_name(folder.path(), "fault", &args);
    let mut client = Client::connect(program.ready("provider"));
    let machines = client.list().await;
    let faulty = |m: &&pb::Machine| m.labels.get("conformance.fault/create").is_some_and(|v| v == "error");
    assert_eq!((machines.len(), machines.iter().filter(faulty).count()), (72, 8));

    let broken = machines.iter().find(faulty).unwrap().id.clone();
    client.create(&broken).await.unwrap();
    assert!(client.settled(&broken, Failed).await.last_error.contains("on purpose"));
    let clusters = ["fault-error", "fault-timeout", "fault-slow-ok", "fault-readiness-block"];
    for (n, cluster) in clusters.iter().enumerate() {
        let id = format!("slot-{n}");
        client.create(&id).await.unwrap();
        client.settled(&id, Idle).await;
        client.configure(&id, cluster).await;
        let failed = client.settled(&id, Failed).await;
        let words = if *cluster == "fault-error" { "on purpose" } else { "timeout: Configure" };
        assert!(failed.last_error.contains(words), "{cluster}: {}", failed.last_error);
    }
    for (n, (cluster, end)) in [("fault-drain-error", Failed), ("sound", Idle)].into_iter().enumerate() {
        let id = format!("slot-1{n}");
        client.create(&id).await.unwrap();
        client.settled(&id, Idle).await;
        client.configure(&id, cluster).await;
        client.settled(&id, Configured).await;
        client.drain(&id).await;
        client.settled(&id, end).await;
    }
    // A Configure that a kill interrupts has failed before the next process answers anybody.
    client.create("slot-20").await.unwrap();
    client.settled("slot-20", Idle).await;
    client.configure("slot-20", "fault-timeout").await;
    program.kill();
    let mut program = by_name(folder.path(), "fault", &args);
    let after = Client::connect(program.ready("provider")).get("slot-20").await;
    assert_eq!(after.state, i32::from(Failed.number()));
    assert!(after.last_error.contains("restart"), "{}", after.last_error);
}

/// A metrics port that somebody else has must neither stop a provider nor keep it from ending.
#[test]
fn a_taken_metrics_port_does_not_keep_a_provider_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = format!("--metrics-addr={}", taken.local_addr().unwrap());
    let mut program = by_name(folder.path(), "fakecloud", &["--addr=127.0.0.1:0", &metrics]);
    program.ready("provider");
    let (status, took) = program.terminate();
    assert!(status.success() && took < crate::process::STOP_WITHIN, "{status} after {took:?}");
}
