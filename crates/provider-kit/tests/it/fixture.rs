//! A fake cloud on a loopback port, and a client that numbers its calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_provider_kit::fakecloud::{Control, FakeCloud, Handle, Latencies, Latency, Options, Seeds};
use bigfleet_provider_kit::table::Checks;
use bigfleet_types::MachineState;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// How long a wait for something that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A fake cloud with a client.
pub(crate) struct Cloud {
    pub(crate) handle: Handle,
    pub(crate) client: Client,
}

/// Small and asynchronous.
pub(crate) fn options() -> Options {
    let short = Latency { min_ms: 1, max_ms: 3 };
    Options {
        seeds: Seeds { idle: 4, speculative: 4, spot: 2, ..Seeds::default() },
        latency: Latencies { create: short, configure: short, drain: short, delete: short },
        ..Options::default()
    }
}

pub(crate) async fn start(options: Options) -> Cloud {
    serve(FakeCloud::new(options).unwrap()).await
}

pub(crate) async fn serve(cloud: FakeCloud) -> Cloud {
    let handle = cloud.start(bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap()).await.unwrap();
    let client = Client::connect(&handle.dial_addr().to_string(), "shard-0", 1);
    Cloud { handle, client }
}

impl Cloud {
    pub(crate) fn control(&self) -> &Control {
        self.handle.control()
    }

    pub(crate) async fn settled(&self, id: &str, state: MachineState) -> pb::Machine {
        eventually(&format!("{id} becomes {state}"), async || {
            let machine = self.client.get(id).await.unwrap();
            (machine.state == number(state)).then_some(machine)
        })
        .await
    }

    pub(crate) async fn stop(self) {
        self.handle.shutdown().await.unwrap();
    }
}

/// Calls with a token of their own each.
#[derive(Clone)]
pub(crate) struct Client {
    grpc: CapacityProviderClient<Channel>,
    pub(crate) shard: String,
    pub(crate) epoch: i64,
    sequence: std::sync::Arc<std::sync::atomic::AtomicI64>,
}

impl Client {
    pub(crate) fn connect(addr: &str, shard: &str, epoch: i64) -> Self {
        Self::over(channel::connect_lazy(addr, &channel::Options::default()).unwrap(), shard, epoch)
    }

    pub(crate) fn over(channel: Channel, shard: &str, epoch: i64) -> Self {
        let grpc = CapacityProviderClient::new(channel)
            .max_decoding_message_size(bigfleet_net::limits::LIST_BYTES)
            .max_encoding_message_size(bigfleet_net::limits::LIST_BYTES);
        Self { grpc, shard: shard.into(), epoch, sequence: std::sync::Arc::default() }
    }

    pub(crate) fn raw(&self) -> CapacityProviderClient<Channel> {
        self.grpc.clone()
    }

    fn next(&self) -> i64 {
        self.sequence.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1
    }

    pub(crate) async fn create(&self, id: &str) -> Result<pb::TransitionAck, Status> {
        let request = pb::CreateRequest {
            machine_id: id.into(),
            shard_id: self.shard.clone(),
            shard_epoch: self.epoch,
            sequence_number: self.next(),
        };
        Ok(self.raw().create(request).await?.into_inner())
    }

    pub(crate) async fn configure(&self, id: &str, cluster: &str) -> Result<pb::TransitionAck, Status> {
        self.configure_with(id, cluster, b"blob", metadata()).await
    }

    pub(crate) async fn configure_with(
        &self,
        id: &str,
        cluster: &str,
        blob: &[u8],
        shard_metadata: BTreeMap<String, String>,
    ) -> Result<pb::TransitionAck, Status> {
        let request = pb::ConfigureRequest {
            machine_id: id.into(),
            cluster_id: cluster.into(),
            bootstrap_blob: blob.to_vec().into(),
            shard_id: self.shard.clone(),
            shard_epoch: self.epoch,
            sequence_number: self.next(),
            shard_metadata,
        };
        Ok(self.raw().configure(request).await?.into_inner())
    }

    pub(crate) async fn drain(
        &self,
        id: &str,
        grace_period_seconds: i64,
    ) -> Result<pb::TransitionAck, Status> {
        let request = pb::DrainRequest {
            machine_id: id.into(),
            grace_period_seconds,
            shard_id: self.shard.clone(),
            shard_epoch: self.epoch,
            sequence_number: self.next(),
        };
        Ok(self.raw().drain(request).await?.into_inner())
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<pb::TransitionAck, Status> {
        let request = pb::DeleteRequest {
            machine_id: id.into(),
            shard_id: self.shard.clone(),
            shard_epoch: self.epoch,
            sequence_number: self.next(),
        };
        Ok(self.raw().delete(request).await?.into_inner())
    }

    pub(crate) async fn get(&self, id: &str) -> Result<pb::Machine, Status> {
        Ok(self.raw().get(pb::MachineRef { id: id.into() }).await?.into_inner())
    }

    pub(crate) async fn list(&self, filter: pb::ListFilter) -> pb::MachineList {
        self.raw().list(filter).await.unwrap().into_inner()
    }

    pub(crate) async fn list_since(&self, cursor: &[u8], max_results: i32) -> pb::MachineList {
        let since_revision = cursor.to_vec().into();
        self.list(pb::ListFilter { max_results, since_revision, ..pb::ListFilter::default() }).await
    }
}

/// Keys and values that nobody may touch.
pub(crate) fn metadata() -> BTreeMap<String, String> {
    [("bigfleet.lucy.sh/assigned-priority", "7"), ("strange \u{0}\u{1f980}", "\u{7}"), ("empty", "")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

pub(crate) fn number(state: MachineState) -> i32 {
    i32::from(state.number())
}

pub(crate) fn ids(list: &pb::MachineList) -> Vec<&str> {
    list.machines.iter().map(|machine| machine.id.as_str()).collect()
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// Asks until there is an answer. Fails the test only when patience ends.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a machine is in a state, and gives it as it is then.
pub(crate) async fn settled(client: &Client, id: &str, state: MachineState) -> pb::Machine {
    eventually(&format!("{id} becomes {state}"), async || {
        Some(client.get(id).await.unwrap()).filter(|m| m.state == number(state))
    })
    .await
}

/// A table's checks that let everything through.
pub(crate) struct Anything;

impl Checks for Anything {
    fn can_delete(&self, _machine: &pb::Machine) -> bool {
        true
    }

    fn in_stock(&self, _machine: &pb::Machine) -> Result<(), String> {
        Ok(())
    }
}
