//! A provider in front of another that passes everything on, but for one thing that it gets wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bigfleet_net::{channel, limits, listen};
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_proto::v1alpha1::capacity_provider_server::{CapacityProvider, CapacityProviderServer};
use bigfleet_provider_kit::defects::Defect;
use pb::MachineState as S;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// What the proxy knows, over restarts of the provider behind it.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    state: Option<PathBuf>,
    restarted: bool,
    minted: u64,
    marks: BTreeMap<(String, String), (i64, i64)>,
    operations: BTreeMap<(String, &'static str), String>,
    creating: BTreeMap<String, u32>,
    metadata: BTreeMap<String, BTreeMap<String, String>>,
    latest: BTreeMap<String, String>,
    polls: BTreeMap<Vec<u8>, u32>,
    failed: BTreeMap<String, Instant>,
    old: BTreeSet<String>,
}

impl Memory {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    /// The provider behind starts; again, if it keeps its state where an earlier one kept it.
    pub(crate) fn started(&self, state: Option<&Path>) {
        let mut known = self.known();
        let again = known.state.is_some() && known.state.as_deref() == state;
        known.state = state.map(Path::to_owned);
        known.restarted = again;
    }
}

/// A proxy that serves. Dropping it stops it.
pub(crate) struct Proxy {
    addr: SocketAddr,
    _stop: DropGuard,
}

impl Proxy {
    pub(crate) async fn start(defect: Option<Defect>, behind: &str, memory: Arc<Memory>) -> Self {
        let channel = channel::connect_lazy(behind, &channel::Options::default()).unwrap();
        let inner = CapacityProviderClient::new(channel).max_decoding_message_size(limits::LIST_BYTES);
        let service = CapacityProviderServer::new(Broken { defect, inner, memory })
            .max_decoding_message_size(limits::PROVIDER_REQUEST_BYTES);
        let server = bigfleet_net::grpc::Server::new(listen::bind("127.0.0.1:0").await.unwrap());
        let addr = server.dial_addr();
        let stop = CancellationToken::new();
        tokio::spawn(server.add_service(service).serve(stop.clone(), Duration::ZERO));
        Self { addr, _stop: stop.drop_guard() }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

struct Broken {
    /// What the proxy gets wrong.
    defect: Option<Defect>,
    inner: CapacityProviderClient<Channel>,
    memory: Arc<Memory>,
}

/// The parts of a request that are judged, by reference, so that the token can be taken out of it.
struct Asked<'a> {
    kind: &'static str,
    machine: &'a str,
    shard: &'a mut String,
    epoch: &'a mut i64,
    sequence: &'a mut i64,
}

fn stable(machine: Option<&pb::Machine>) -> bool {
    machine.is_some_and(|m| matches!(m.state(), S::Speculative | S::Idle | S::Configured | S::Failed))
}

impl Broken {
    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Judges a call before it is passed on. Gives the mark to set if the call then succeeds.
    async fn before(&self, asked: Asked<'_>) -> Result<Option<((String, String), (i64, i64))>, Status> {
        let Asked { kind, machine, shard, epoch, sequence } = asked;
        let is = |defect| self.is(defect);
        if is(Defect::LookupBeforeFence) {
            self.get(machine).await?;
        }
        let own_fence = [Defect::MarkPerShard, Defect::NewEpochNeedsSequence, Defect::MarkMovesOnSuccess]
            .into_iter()
            .any(is)
            && !shard.is_empty();
        let place = if is(Defect::MarkPerShard) { String::new() } else { machine.to_owned() };
        let key = (shard.clone(), place);
        // A first token is the provider's to check.
        let compared = (*epoch).min(*sequence) >= 0 || self.memory.known().marks.contains_key(&key);
        let mut mark = None;
        if own_fence && compared {
            shard.clear();
            let token = (std::mem::take(epoch), std::mem::take(sequence));
            let mut known = self.memory.known();
            let highest = known.marks.get(&key).copied();
            let newer = highest.is_none_or(|highest| token > highest);
            let refused = is(Defect::NewEpochNeedsSequence) && token.1 == 0 && highest.is_some();
            if !newer || refused {
                return Err(Status::failed_precondition("fenced by the proxy"));
            }
            if is(Defect::MarkMovesOnSuccess) {
                mark = Some((key, token));
            } else {
                known.marks.insert(key, token);
            }
        }
        if is(Defect::MarksLostOverRestart) && self.memory.known().restarted {
            (*shard, *epoch, *sequence) = (String::new(), 0, 0);
        }
        if kind == "Create" {
            *self.memory.known().creating.entry(machine.to_owned()).or_default() += 1;
        }
        Ok(mark)
    }

    async fn get(&self, machine: &str) -> Result<pb::Machine, Status> {
        Ok(self.inner.clone().get(pb::MachineRef { id: machine.to_owned() }).await?.into_inner())
    }

    /// Spoils an acknowledgement.
    fn after(
        &self,
        kind: &'static str,
        machine: &str,
        mark: Option<((String, String), (i64, i64))>,
        answer: Result<Response<pb::TransitionAck>, Status>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let overlapping = {
            let mut known = self.memory.known();
            let running = known.creating.entry(machine.to_owned()).or_default();
            let overlapping = kind == "Create" && *running > 1;
            if kind == "Create" {
                *running -= 1;
            }
            overlapping
        };
        let mut ack = answer?.into_inner();
        let mut known = self.memory.known();
        if let Some((key, token)) = mark {
            known.marks.insert(key, token);
        }
        let mint = match self.defect {
            Some(Defect::RepeatsMintOperations) => stable(ack.machine.as_ref()),
            Some(Defect::CreatesDoNotCollapse) => overlapping,
            _ => false,
        };
        if mint {
            known.minted += 1;
            ack.operation_id = format!("{}-{}", ack.operation_id, known.minted);
        }
        if self.is(Defect::OperationsPerKind) {
            ack.operation_id = format!("{kind}-{machine}");
        }
        if self.is(Defect::OperationsReusedOverRestart) && kind == "Create" {
            if known.restarted {
                ack.operation_id = known.old.pop_first().unwrap_or(ack.operation_id);
            } else {
                known.old.insert(ack.operation_id.clone());
            }
        }
        if kind == "Configure" {
            known.operations.insert((machine.to_owned(), kind), ack.operation_id.clone());
        } else if kind != "Drain" {
            known.metadata.remove(machine);
        }
        drop(known);
        ack.machine = ack.machine.map(|m| self.spoil(m, false));
        Ok(Response::new(ack))
    }

    /// Spoils a machine.
    fn spoil(&self, mut m: pb::Machine, listed: bool) -> pb::Machine {
        let mut known = self.memory.known();
        match self.defect {
            Some(Defect::EmptyValuesDropped) => m.shard_metadata.retain(|_, value| !value.is_empty()),
            Some(Defect::MetadataOutliveDrain) => match m.state() {
                S::Configured => {
                    known.metadata.insert(m.id.clone(), m.shard_metadata.clone());
                }
                S::Idle => m.shard_metadata = known.metadata.get(&m.id).cloned().unwrap_or_default(),
                _ => {}
            },
            Some(Defect::MetadataShared) if m.state() == S::Configured => {
                m.shard_metadata = known.latest.clone()
            }
            Some(Defect::LateSuccessWins) if m.state() == S::Failed && m.cluster == "fault-slow-ok" => {
                let since = *known.failed.entry(m.id.clone()).or_insert_with(Instant::now);
                if since.elapsed() > Duration::from_millis(500) {
                    m.set_state(S::Configured);
                }
            }
            Some(Defect::SpotNeverInterrupted) if m.capacity_type() == pb::CapacityType::Spot => {
                m.interruption_probability = 0.0;
            }
            Some(Defect::SlotsHaveHosts) if listed && m.state() == S::Speculative => {
                m.host = Some(pb::HostRef { provider: "proxy".into(), r#ref: m.id.clone() });
            }
            _ => {}
        }
        m
    }

    /// An acceptance that a FAILED machine must not give.
    async fn accepts_failed(&self, machine: &str) -> Option<pb::TransitionAck> {
        if !self.is(Defect::FailedAccepts) {
            return None;
        }
        let m = self.get(machine).await.ok().filter(|m| m.state() == S::Failed)?;
        Some(pb::TransitionAck { operation_id: "proxy".into(), machine: Some(m) })
    }
}

/// One changing call: judged, passed on, spoiled.
macro_rules! change {
    ($self:ident, $kind:literal, $method:ident, $request:ident) => {{
        let mut request = $request.into_inner();
        let machine = request.machine_id.clone();
        if let Some(ack) = $self.accepts_failed(&machine).await {
            return Ok(Response::new(ack));
        }
        let asked = Asked {
            kind: $kind,
            machine: &machine,
            shard: &mut request.shard_id,
            epoch: &mut request.shard_epoch,
            sequence: &mut request.sequence_number,
        };
        let mark = $self.before(asked).await?;
        let answer = $self.inner.clone().$method(request).await;
        $self.after($kind, &machine, mark, answer)
    }};
}

#[tonic::async_trait]
impl CapacityProvider for Broken {
    async fn create(
        &self,
        request: Request<pb::CreateRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        change!(self, "Create", create, request)
    }

    async fn configure(
        &self,
        request: Request<pb::ConfigureRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let asked = request.get_ref();
        let key = (asked.machine_id.clone(), "Configure");
        let known = self.memory.known().operations.get(&key).cloned();
        if self.is(Defect::RepeatBeforeFence)
            && let Some(operation_id) = known
            && let Ok(m) = self.get(&asked.machine_id).await
            && m.state() == S::Configured
            && m.cluster == asked.cluster_id
        {
            return Ok(Response::new(pb::TransitionAck { operation_id, machine: Some(m) }));
        }
        self.memory.known().latest.clone_from(&asked.shard_metadata);
        change!(self, "Configure", configure, request)
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Result<Response<pb::TransitionAck>, Status> {
        change!(self, "Drain", drain, request)
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        change!(self, "Delete", delete, request)
    }

    async fn get(&self, request: Request<pb::MachineRef>) -> Result<Response<pb::Machine>, Status> {
        let machine = Self::get(self, &request.into_inner().id).await?;
        Ok(Response::new(self.spoil(machine, false)))
    }

    async fn list(&self, request: Request<pb::ListFilter>) -> Result<Response<pb::MachineList>, Status> {
        let filter = request.into_inner();
        let cursor = filter.since_revision.to_vec();
        let digits = !cursor.is_empty() && cursor.iter().all(u8::is_ascii_digit);
        if self.is(Defect::GarbageCursorIsAnError) && !cursor.is_empty() && !digits {
            return Err(Status::invalid_argument("since_revision is no cursor"));
        }
        let mut list = self.inner.clone().list(filter).await?.into_inner();
        if self.is(Defect::DeltaLacksNewest) && digits {
            list.machines.pop();
        }
        if self.is(Defect::IdlingMovesRevision) && !cursor.is_empty() && list.machines.is_empty() {
            let polls = {
                let mut known = self.memory.known();
                let polls = known.polls.entry(cursor).or_default();
                *polls += 1;
                *polls
            };
            if polls > 3 {
                let any = pb::ListFilter { max_results: 1, ..pb::ListFilter::default() };
                list.machines = self.inner.clone().list(any).await?.into_inner().machines;
            }
        }
        list.machines = list.machines.into_iter().map(|m| self.spoil(m, true)).collect();
        Ok(Response::new(list))
    }
}
