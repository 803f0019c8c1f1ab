//! An operator that says what the test says, and hears what the shard says.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use bigfleet_net::{channel, limits};
use bigfleet_proto::v1alpha1::operator_message::Payload as Said;
use bigfleet_proto::v1alpha1::shard_client::ShardClient;
use bigfleet_proto::v1alpha1::shard_message::Payload as Heard;
use bigfleet_proto::v1alpha1::{
    Acknowledgement, BootstrapBlobResponse, CapacityNeed, ClusterCapacityNeeds, Hello, MachineState,
    OperatorMessage, ReclaimAck, ShardMessage,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// Longer than anything here takes; only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One stream to a shard.
pub(crate) struct Operator {
    cluster: String,
    say: mpsc::Sender<OperatorMessage>,
    hear: Streaming<ShardMessage>,
    /// Everything that was passed over while something else was waited for.
    pub(crate) passed: Vec<Heard>,
    next_timestamp: i64,
}

impl Operator {
    /// Opens a stream and says nothing yet.
    pub(crate) async fn dial(addr: SocketAddr) -> Self {
        let channel = channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap();
        let mut client = ShardClient::new(channel)
            .max_encoding_message_size(limits::ROLLUP_BYTES_MAX)
            .max_decoding_message_size(limits::OPERATOR_FRAME_BYTES);
        let (say, said) = mpsc::channel(64);
        let opened = tokio::time::timeout(LONG, client.session(ReceiverStream::new(said))).await.unwrap();
        let hear = opened.unwrap().into_inner();
        Self { cluster: String::new(), say, hear, passed: Vec::new(), next_timestamp: 1 }
    }

    /// Opens a session and waits for its acknowledgement, which comes first.
    pub(crate) async fn hello(addr: SocketAddr, cluster: &str) -> Self {
        let mut operator = Self::dial(addr).await;
        operator.cluster = cluster.to_owned();
        operator.say(Said::Hello(hello(cluster, "v1alpha1"))).await;
        let first = operator.next().await.unwrap().unwrap();
        assert!(matches!(&first, Heard::Ack(ack) if ack.echo == "hello"), "{first:?}");
        operator.passed.push(first);
        operator
    }

    pub(crate) async fn say(&self, said: Said) {
        self.say.send(OperatorMessage { payload: Some(said) }).await.unwrap();
    }

    /// The next frame; `None` when the shard ended the stream without an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Heard>, Status> {
        let message = tokio::time::timeout(LONG, self.hear.message()).await.expect("the shard is silent")?;
        Ok(message.map(|m| m.payload.expect("a frame without content")))
    }

    /// Waits for the first frame that `wanted` turns into something.
    pub(crate) async fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&Heard) -> Option<T>) -> T {
        loop {
            let heard = match self.next().await {
                Ok(Some(heard)) => heard,
                end => panic!("{}: the stream ended with {end:?} while waiting for {what}", self.cluster),
            };
            if let Some(found) = wanted(&heard) {
                self.passed.push(heard);
                return found;
            }
            self.passed.push(heard);
        }
    }

    /// As [`Self::until`], and does what an operator does meanwhile: answers bootstrap requests with `blob` and
    /// acknowledges reclaims.
    pub(crate) async fn work_until<T>(
        &mut self,
        what: &str,
        blob: &[u8],
        mut wanted: impl FnMut(&Heard) -> Option<T>,
    ) -> T {
        enum Do<T> {
            Bootstrap(String),
            Reclaim(String),
            Done(T),
        }
        loop {
            let heard = |heard: &Heard| match (wanted(heard), heard) {
                (Some(found), _) => Some(Do::Done(found)),
                (None, Heard::BootstrapRequest(r)) => Some(Do::Bootstrap(r.request_id.clone())),
                (None, Heard::ReclaimInstruction(r)) => Some(Do::Reclaim(r.instruction_id.clone())),
                _ => None,
            };
            match self.until(what, heard).await {
                Do::Done(found) => return found,
                Do::Bootstrap(request) => self.answer_bootstrap(request, blob).await,
                Do::Reclaim(instruction) => self.ack_reclaim(instruction).await,
            }
        }
    }

    /// Works until each of `machines` was reported in `state`.
    pub(crate) async fn work_until_all(
        &mut self,
        machines: usize,
        state: MachineState,
        blob: &[u8],
    ) -> Vec<String> {
        let mut seen = std::collections::BTreeSet::new();
        let what = format!("{machines} machines {state:?}");
        self.work_until(&what, blob, |heard| {
            if let Heard::NodeStateUpdate(update) = heard
                && update.state() == state
            {
                seen.insert(update.machine_id.clone());
            }
            (seen.len() >= machines).then(|| seen.iter().cloned().collect())
        })
        .await
    }

    /// Waits, idle, until `machines` were reported in `state`.
    pub(crate) async fn until_state(&mut self, machines: usize, state: MachineState) {
        let mut seen = std::collections::BTreeSet::new();
        self.until("node states", |heard| {
            if let Heard::NodeStateUpdate(update) = heard
                && update.state() == state
            {
                seen.insert(update.machine_id.clone());
            }
            (seen.len() >= machines).then_some(())
        })
        .await;
    }

    /// Reads to the end; the code and message of the status.
    pub(crate) async fn end(mut self) -> (Code, String) {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return (Code::Ok, String::new()),
                Err(status) => return (status.code(), status.message().to_owned()),
            }
        }
    }

    /// Sends a roll-up of its own cluster and gives back what it is answered with.
    pub(crate) async fn rollup(&mut self, needs: Vec<CapacityNeed>) -> Acknowledgement {
        let cluster_id = self.cluster.clone();
        self.rollup_of(&cluster_id, needs).await
    }

    /// As [`Self::rollup`], with the cluster that the message names.
    pub(crate) async fn rollup_of(&mut self, cluster_id: &str, needs: Vec<CapacityNeed>) -> Acknowledgement {
        let timestamp_unix_nanos = self.next_timestamp;
        self.next_timestamp += 1;
        let rollup = ClusterCapacityNeeds { cluster_id: cluster_id.into(), timestamp_unix_nanos, needs };
        self.say(Said::Rollup(rollup)).await;
        self.until("the answer to a roll-up", |heard| match heard {
            Heard::Ack(ack) if ack.rollup_timestamp_unix_nanos == timestamp_unix_nanos => Some(ack.clone()),
            _ => None,
        })
        .await
    }

    /// Waits for a bootstrap request; its id and machine.
    pub(crate) async fn bootstrap_request(&mut self) -> (String, String) {
        self.until("a bootstrap request", |heard| match heard {
            Heard::BootstrapRequest(r) => Some((r.request_id.clone(), r.machine_id.clone())),
            _ => None,
        })
        .await
    }

    pub(crate) async fn answer_bootstrap(&self, request_id: String, user_data: &[u8]) {
        self.say(Said::BootstrapResponse(BootstrapBlobResponse {
            request_id,
            user_data: user_data.to_vec().into(),
            ttl_seconds: 600,
            error: String::new(),
        }))
        .await;
    }

    pub(crate) async fn ack_reclaim(&self, instruction_id: String) {
        self.say(Said::ReclaimAck(ReclaimAck { instruction_id, nodes_started: 1 })).await;
    }
}

impl Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operator({})", self.cluster)
    }
}

pub(crate) fn hello(cluster: &str, version: &str) -> Hello {
    Hello { cluster_id: cluster.into(), protocol_version: version.into() }
}

/// `n` pods of one core and one GiB at priority 100.
pub(crate) fn pods(n: u32) -> CapacityNeed {
    row(n, 100)
}

/// `n` pods of one core and one GiB.
pub(crate) fn row(n: u32, priority: i32) -> CapacityNeed {
    let vector = |n: u32| [("cpu".to_owned(), n.to_string()), ("memory".to_owned(), format!("{n}Gi"))].into();
    CapacityNeed {
        aggregate_resources: vector(n),
        min_unit: vector(1),
        priority,
        interruption_penalty_bucket: 1,
        reclamation_penalty_bucket: 1,
        ..CapacityNeed::default()
    }
}
