//! The six calls on the wire.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_server::CapacityProvider;
use tonic::{Code, Request, Response, Status};

use super::Provider;
use super::listing::Listed;
use crate::blob::Blob;
use crate::faults::Method;
use crate::shape::{self, Malformed};
use crate::table::{Ack, Call, Page, Refusal};

/// The service over a provider.
#[derive(Debug, Clone)]
pub(super) struct Service(pub(super) Provider);

impl Service {
    /// One call from first byte to answer. What it does runs in a task of its own: a caller that goes away must not
    /// stop a change between its record and its work.
    async fn serve<T: Send + 'static>(
        &self,
        method: Method,
        machine: String,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        let begun = Instant::now();
        let shared = &self.0.shared;
        let result = async {
            shared.faults.before(method, &machine).await?;
            let done = shared.tasks.spawn(work).await.map_err(|error| {
                shared.metrics.panics.inc();
                tracing::error!(method = method.name(), %machine, %error, "a call panicked");
                Status::internal("the provider panicked in this call; its log says where")
            })??;
            shared.faults.after(method, &machine).await?;
            Ok(done)
        }
        .await;
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        shared.metrics.answered(method, code, begun.elapsed());
        result
    }

    async fn change(
        &self,
        method: Method,
        call: Call,
        blob: Option<Blob>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let provider = self.0.clone();
        let machine = call.machine.to_string();
        let ack = self.serve(method, machine, async move { provider.dispatch(call, blob).await }).await?;
        Ok(Response::new(self.wire(ack)))
    }

    /// A call refused before it is looked into, on the same path as all others.
    async fn refuse<T: Send + 'static>(
        &self,
        method: Method,
        reason: impl Into<Status>,
    ) -> Result<Response<T>, Status> {
        let reason = reason.into();
        self.serve(method, String::new(), async move { Err(reason) }).await
    }

    /// A machine on its way into an answer.
    fn shown(&self, machine: Arc<pb::Machine>) -> pb::Machine {
        let shared = &self.0.shared;
        let mut machine = Arc::unwrap_or_clone(machine);
        shared.faults.machine(&mut machine);
        if shared.options.switch().on().is_some() {
            shared.journal.read().spoil(&mut machine);
        }
        machine
    }

    fn wire(&self, ack: Ack) -> pb::TransitionAck {
        let machine = self.shown(ack.machine);
        pb::TransitionAck { operation_id: ack.operation_id, machine: Some(machine) }
    }
}

#[tonic::async_trait]
impl CapacityProvider for Service {
    async fn create(
        &self,
        request: Request<pb::CreateRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let (_, extensions, request) = request.into_parts();
        if let Err(denied) = self.0.shared.policy.moves(&extensions, Method::Create, &request.shard_id) {
            return self.refuse(Method::Create, denied).await;
        }
        match shape::create(request) {
            Ok(call) => self.change(Method::Create, call, None).await,
            Err(malformed) => self.refuse(Method::Create, malformed).await,
        }
    }

    async fn configure(
        &self,
        request: Request<pb::ConfigureRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let (_, extensions, request) = request.into_parts();
        if let Err(denied) = self.0.shared.policy.moves(&extensions, Method::Configure, &request.shard_id) {
            return self.refuse(Method::Configure, denied).await;
        }
        match shape::configure(request) {
            Ok((call, blob)) => self.change(Method::Configure, call, Some(blob)).await,
            Err(malformed) => self.refuse(Method::Configure, malformed).await,
        }
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Result<Response<pb::TransitionAck>, Status> {
        let (_, extensions, request) = request.into_parts();
        if let Err(denied) = self.0.shared.policy.moves(&extensions, Method::Drain, &request.shard_id) {
            return self.refuse(Method::Drain, denied).await;
        }
        match shape::drain(request) {
            Ok(call) => self.change(Method::Drain, call, None).await,
            Err(malformed) => self.refuse(Method::Drain, malformed).await,
        }
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::TransitionAck>, Status> {
        let (_, extensions, request) = request.into_parts();
        if let Err(denied) = self.0.shared.policy.moves(&extensions, Method::Delete, &request.shard_id) {
            return self.refuse(Method::Delete, denied).await;
        }
        match shape::delete(request) {
            Ok(call) => self.change(Method::Delete, call, None).await,
            Err(malformed) => self.refuse(Method::Delete, malformed).await,
        }
    }

    async fn get(&self, request: Request<pb::MachineRef>) -> Result<Response<pb::Machine>, Status> {
        if let Err(denied) = self.0.shared.policy.looks(request.extensions(), Method::Get) {
            return self.refuse(Method::Get, denied).await;
        }
        let id = request.into_inner().id;
        let provider = self.0.clone();
        let found = self
            .serve(Method::Get, id.clone(), async move {
                let id = shape::machine_id("id", &id)?;
                provider
                    .machine(id.as_str())
                    .ok_or_else(|| Status::not_found(format!("id: no machine {id:?}")))
            })
            .await?;
        Ok(Response::new(self.shown(found)))
    }

    async fn list(&self, request: Request<pb::ListFilter>) -> Result<Response<pb::MachineList>, Status> {
        if let Err(denied) = self.0.shared.policy.looks(request.extensions(), Method::List) {
            return self.refuse(Method::List, denied).await;
        }
        let filter = request.into_inner();
        let provider = self.0.clone();
        let page = self
            .serve(Method::List, String::new(), async move {
                let (states, limit) = shape::filter(&filter)?;
                if let Some(past) = provider.shared.faults.past() {
                    return Ok(Page::of_past(&past, &states, limit));
                }
                let cursor = &filter.since_revision;
                if provider.shared.options.switch().on().is_some()
                    && provider.shared.journal.read().refuses_cursor(cursor)
                {
                    return Err(Status::invalid_argument("since_revision is no cursor"));
                }
                let list = |start| provider.shared.journal.read().list(&states, limit, cursor, start);
                let rotates = limit > 0 && cursor.is_empty();
                Ok(if rotates { provider.shared.turns.take(&states, list) } else { list(0) })
            })
            .await?;
        if !self.0.shared.faults.alters() && self.0.shared.options.switch().on().is_none() {
            let mut answer = Response::new(pb::MachineList::default());
            answer.extensions_mut().insert(Listed::new(page)?);
            return Ok(answer);
        }
        let machines = page.machines.iter().map(|machine| self.shown(Arc::new(machine.decode())));
        let list = pb::MachineList {
            machines: machines.collect(),
            revision: page.cursor.into(),
            removed_ids: page.removed,
        };
        Ok(Response::new(self.0.shared.faults.list(list)))
    }
}

impl From<Malformed> for Status {
    fn from(malformed: Malformed) -> Self {
        Self::invalid_argument(malformed.to_string())
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Fenced { .. } | Refusal::Superseded { .. } => Code::FailedPrecondition,
            Refusal::Token(_) => Code::InvalidArgument,
            Refusal::Unknown(_) => Code::NotFound,
            Refusal::OtherCluster { .. } => Code::Aborted,
            Refusal::CannotDelete(_) => Code::Unimplemented,
            Refusal::Position { .. } => Code::Internal,
            Refusal::OutOfStock { .. } => Code::ResourceExhausted,
        };
        Self::new(code, refusal.to_string())
    }
}
