//! A provider that answers as it is told and remembers what it was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigfleet_net::{grpc, limits, listen};
use bigfleet_proto::v1alpha1::capacity_provider_server::{CapacityProvider, CapacityProviderServer};
use bigfleet_proto::v1alpha1::{
    ConfigureRequest, CreateRequest, DeleteRequest, DrainRequest, ListFilter, Machine, MachineList,
    MachineRef, MachineState, TransitionAck,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

/// A change as it arrived.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Create(CreateRequest),
    Configure(ConfigureRequest),
    Drain(DrainRequest),
    Delete(DeleteRequest),
}

impl Asked {
    /// Who asked, in which epoch, with which number.
    pub(crate) fn token(&self) -> (String, i64, i64) {
        macro_rules! token {
            ($request:expr) => {
                ($request.shard_id.clone(), $request.shard_epoch, $request.sequence_number)
            };
        }
        match self {
            Self::Create(r) => token!(r),
            Self::Configure(r) => token!(r),
            Self::Drain(r) => token!(r),
            Self::Delete(r) => token!(r),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    machines: Vec<Machine>,
    asked: Vec<Asked>,
    /// Answers to the next changes; none left: accepted.
    refusals: VecDeque<Status>,
    /// Deletes are never answered.
    silent: bool,
}

/// The provider. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

/// A fake that is served; ends with it.
pub(crate) struct Served {
    pub(crate) fake: Fake,
    pub(crate) addr: SocketAddr,
    _stop: DropGuard,
}

/// An Idle machine of 2 cores and 8 GiB.
pub(crate) fn idle(id: &str) -> Machine {
    let resources = bigfleet_proto::v1alpha1::Resources {
        resources: [("cpu".to_owned(), "2".to_owned()), ("memory".to_owned(), "8Gi".to_owned())].into(),
    };
    Machine {
        id: id.into(),
        state: MachineState::Idle.into(),
        host: Some(bigfleet_proto::v1alpha1::HostRef {
            provider: "fake".into(),
            r#ref: format!("host-{id}"),
        }),
        instance_type: "m6i.large".into(),
        zone: "zone-a".into(),
        resources: Some(resources),
        ..Machine::default()
    }
}

impl Fake {
    pub(crate) fn with(machines: Vec<Machine>) -> Self {
        let fake = Self::default();
        fake.0.lock().unwrap().machines = machines;
        fake
    }

    /// Refuses the next change.
    pub(crate) fn refuse(&self, status: Status) {
        self.0.lock().unwrap().refusals.push_back(status);
    }

    /// From now on a Delete is never answered.
    pub(crate) fn fall_silent(&self) {
        self.0.lock().unwrap().silent = true;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.lock().unwrap().asked.clone()
    }

    pub(crate) async fn serve(self, addr: &str) -> Served {
        let service = CapacityProviderServer::new(self.clone())
            .max_decoding_message_size(limits::CALL_BYTES)
            .max_encoding_message_size(limits::LIST_BYTES);
        let server = grpc::Server::new(listen::bind(addr).await.unwrap()).add_service(service);
        let (addr, stop) = (server.dial_addr(), CancellationToken::new());
        tokio::spawn(server.serve(stop.clone(), Duration::ZERO));
        Served { fake: self, addr, _stop: stop.drop_guard() }
    }

    fn answer(&self, id: &str, asked: Asked) -> Result<Response<TransitionAck>, Status> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(asked);
        if let Some(status) = state.refusals.pop_front() {
            return Err(status);
        }
        let machine = state.machines.iter().find(|m| m.id == id).cloned();
        Ok(Response::new(TransitionAck { operation_id: format!("op-{}", state.asked.len()), machine }))
    }
}

#[tonic::async_trait]
impl CapacityProvider for Fake {
    async fn create(&self, r: Request<CreateRequest>) -> Result<Response<TransitionAck>, Status> {
        self.answer(&r.get_ref().machine_id.clone(), Asked::Create(r.into_inner()))
    }

    async fn configure(&self, r: Request<ConfigureRequest>) -> Result<Response<TransitionAck>, Status> {
        self.answer(&r.get_ref().machine_id.clone(), Asked::Configure(r.into_inner()))
    }

    async fn drain(&self, r: Request<DrainRequest>) -> Result<Response<TransitionAck>, Status> {
        self.answer(&r.get_ref().machine_id.clone(), Asked::Drain(r.into_inner()))
    }

    async fn delete(&self, r: Request<DeleteRequest>) -> Result<Response<TransitionAck>, Status> {
        if self.0.lock().unwrap().silent {
            std::future::pending::<()>().await;
        }
        self.answer(&r.get_ref().machine_id.clone(), Asked::Delete(r.into_inner()))
    }

    async fn get(&self, r: Request<MachineRef>) -> Result<Response<Machine>, Status> {
        let id = r.into_inner().id;
        let found = self.0.lock().unwrap().machines.iter().find(|m| m.id == id).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("no such machine"))
    }

    async fn list(&self, _: Request<ListFilter>) -> Result<Response<MachineList>, Status> {
        let machines = self.0.lock().unwrap().machines.clone();
        Ok(Response::new(MachineList { machines, ..MachineList::default() }))
    }
}
