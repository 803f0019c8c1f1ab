//! Peers of a shard that this process plays by hand: an operator that sends whatever it likes, and a provider whose
//! records are whatever the test says.

use std::net::SocketAddr;
use std::time::Duration;

use bigfleet_net::channel;
use bigfleet_net::{grpc, listen};
use bigfleet_proto::v1alpha1::capacity_provider_server::{CapacityProvider, CapacityProviderServer};
use bigfleet_proto::v1alpha1::inspect_needs_response::Frame;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::shard_client::ShardClient;
use bigfleet_proto::v1alpha1::shard_read_client::ShardReadClient;
use bigfleet_proto::v1alpha1::{
    Acknowledgement, CapacityNeed, CapacityType, ClusterCapacityNeeds, ConfigureRequest, CreateRequest,
    DeleteRequest, DrainRequest, Hello, HostRef, InspectNeedsRequest, ListFilter, Machine, MachineList,
    MachineRef, MachineState, NeedView, NodeSelectorRequirement, OperatorMessage, Resources, ShardMessage,
    TransitionAck, operator_message, shard_message,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};

use crate::process::PATIENCE;

fn dial(addr: SocketAddr) -> tonic::transport::Channel {
    channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap()
}

/// A session of one cluster, by hand.
pub(crate) struct RawOperator {
    frames: mpsc::Sender<OperatorMessage>,
    answers: Streaming<ShardMessage>,
}

impl RawOperator {
    /// Says hello and waits for the end of the resync.
    pub(crate) async fn connect(shard: SocketAddr, cluster: &str) -> Self {
        let (frames, outgoing) = mpsc::channel(16);
        let hello = Hello { cluster_id: cluster.into(), protocol_version: "v1alpha1".into() };
        let hello = OperatorMessage { payload: Some(operator_message::Payload::Hello(hello)) };
        frames.send(hello).await.unwrap();
        let mut client = ShardClient::new(dial(shard));
        let answers = client.session(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        let mut operator = Self { frames, answers };
        operator.acknowledged("resync").await;
        operator
    }

    /// Sends a roll-up.
    pub(crate) async fn rollup(&self, rollup: ClusterCapacityNeeds) {
        let payload = Some(operator_message::Payload::Rollup(rollup));
        self.frames.send(OperatorMessage { payload }).await.unwrap();
    }

    /// Waits for an acknowledgement of this kind; other frames are passed over.
    pub(crate) async fn acknowledged(&mut self, echo: &str) -> Acknowledgement {
        let wait = async {
            loop {
                let frame = self.answers.message().await.unwrap().expect("the session ended");
                if let Some(shard_message::Payload::Ack(ack)) = frame.payload
                    && ack.echo == echo
                {
                    return ack;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no acknowledgement {echo:?}"))
    }
}

/// A row that wants `cpu` on machines of one type.
pub(crate) fn need(instance_type: &str, cpu: &str) -> CapacityNeed {
    let requirement = NodeSelectorRequirement {
        key: "node.kubernetes.io/instance-type".into(),
        operator: Operator::In.into(),
        values: vec![instance_type.into()],
    };
    CapacityNeed {
        requirements: vec![requirement],
        aggregate_resources: [("cpu".to_owned(), cpu.to_owned())].into(),
        min_unit: [("cpu".to_owned(), "1".to_owned())].into(),
        ..CapacityNeed::default()
    }
}

/// A roll-up of these rows.
pub(crate) fn rollup(cluster: &str, timestamp: i64, needs: Vec<CapacityNeed>) -> ClusterCapacityNeeds {
    ClusterCapacityNeeds { cluster_id: cluster.into(), timestamp_unix_nanos: timestamp, needs }
}

/// The shard's verdicts about all Needs, and the cycle in which they were computed. `None` while nobody answers.
pub(crate) async fn needs(shard: SocketAddr) -> Option<(i64, Vec<NeedView>)> {
    let ask = async {
        let mut client = ShardReadClient::new(dial(shard));
        let mut frames = client.inspect_needs(InspectNeedsRequest::default()).await.ok()?.into_inner();
        let (mut cycle, mut views) = (0, Vec::new());
        while let Some(frame) = frames.message().await.ok()? {
            match frame.frame? {
                Frame::Header(header) => cycle = header.cycle,
                Frame::Need(view) => views.push(view),
            }
        }
        Some((cycle, views))
    };
    tokio::time::timeout(Duration::from_secs(10), ask).await.ok()?
}

/// The provider's machines in id order. `None` while nobody answers.
pub(crate) async fn machines(provider: SocketAddr) -> Option<Vec<Machine>> {
    use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
    let ask = async {
        let mut client = CapacityProviderClient::new(dial(provider));
        let mut machines = client.list(ListFilter::default()).await.ok()?.into_inner().machines;
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        Some(machines)
    };
    tokio::time::timeout(Duration::from_secs(10), ask).await.ok()?
}

/// An Idle bare-metal machine of 4 cores.
pub(crate) fn idle(id: &str, instance_type: &str) -> Machine {
    Machine {
        id: id.into(),
        state: MachineState::Idle.into(),
        host: Some(HostRef { provider: "test".into(), r#ref: format!("host-{id}") }),
        instance_type: instance_type.into(),
        zone: "zone-a".into(),
        capacity_type: CapacityType::BareMetal.into(),
        resources: Some(Resources { resources: [("cpu".to_owned(), "4".to_owned())].into() }),
        ..Machine::default()
    }
}

/// A provider that lists fixed records and changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct FixedProvider(Vec<Machine>);

/// Serves `machines` until the guard goes.
pub(crate) async fn serve_fixed(machines: Vec<Machine>) -> (SocketAddr, DropGuard) {
    let service = CapacityProviderServer::new(FixedProvider(machines));
    let server = grpc::Server::new(listen::bind("127.0.0.1:0").await.unwrap()).add_service(service);
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    tokio::spawn(server.serve(stop.clone(), Duration::ZERO));
    (addr, stop.drop_guard())
}

fn unchanged<T>() -> Result<Response<T>, Status> {
    Err(Status::unavailable("this provider changes nothing"))
}

#[tonic::async_trait]
impl CapacityProvider for FixedProvider {
    async fn create(&self, _: Request<CreateRequest>) -> Result<Response<TransitionAck>, Status> {
        unchanged()
    }

    async fn configure(&self, _: Request<ConfigureRequest>) -> Result<Response<TransitionAck>, Status> {
        unchanged()
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Result<Response<TransitionAck>, Status> {
        unchanged()
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<TransitionAck>, Status> {
        unchanged()
    }

    async fn get(&self, request: Request<MachineRef>) -> Result<Response<Machine>, Status> {
        let id = request.into_inner().id;
        let found = self.0.iter().find(|machine| machine.id == id).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("no such machine"))
    }

    async fn list(&self, _: Request<ListFilter>) -> Result<Response<MachineList>, Status> {
        Ok(Response::new(MachineList { machines: self.0.clone(), ..MachineList::default() }))
    }
}
