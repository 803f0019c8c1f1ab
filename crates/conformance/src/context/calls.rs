//! The six calls, recorded.

use std::collections::BTreeMap;
use std::future::Future;

use bigfleet_proto::v1alpha1 as pb;
use tonic::{Response, Status};

use super::{Context, map};
use crate::check::{Check, ok, shown};
use crate::record;

/// The cluster of calls whose cluster does not matter.
pub(crate) const CLUSTER: &str = "conformance-cluster";
const BLOB: &[u8] = b"#cloud-config\n# conformance\n";

/// Who calls: all of it zero is a caller without fencing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Token {
    pub(crate) shard: String,
    pub(crate) epoch: i64,
    pub(crate) sequence: i64,
}

/// The token of a shard's call.
pub(crate) fn token(shard: &str, epoch: i64, sequence: i64) -> Token {
    Token { shard: shard.to_owned(), epoch, sequence }
}

impl Token {
    fn shown(&self) -> String {
        if *self == Self::default() {
            return "unfenced".to_owned();
        }
        format!("shard_id={:?} shard_epoch={} sequence_number={}", self.shard, self.epoch, self.sequence)
    }
}

/// A call that changes a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Create,
    Configure,
    Drain,
    Delete,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Create, Self::Configure, Self::Drain, Self::Delete];
}

/// Metadata of calls whose metadata does not matter.
pub(crate) fn metadata() -> BTreeMap<String, String> {
    map(&[("bigfleet.lucy.sh/assigned-priority", "7"), ("conformance/unknown", "kept")])
}

type Answer<T> = Result<T, Status>;

impl Context {
    async fn recorded<T>(
        &self,
        sent: String,
        call: impl Future<Output = Answer<Response<T>>>,
        show: impl FnOnce(&T) -> String,
    ) -> Answer<T> {
        let limit = self.settings.call;
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map(Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!("no answer within {limit:?}"))),
        };
        let received = match &answer {
            Ok(message) => show(message),
            Err(status) => shown(status),
        };
        self.log.add(sent, received);
        answer
    }

    pub(crate) async fn create_as(&self, id: &str, token: &Token) -> Answer<pb::TransitionAck> {
        let caller = self.caller(token)?;
        let token = &caller.token;
        let request = pb::CreateRequest {
            machine_id: id.to_owned(),
            shard_id: token.shard.clone(),
            shard_epoch: token.epoch,
            sequence_number: token.sequence,
        };
        let sent = format!("Create machine_id={id:?} {}", token.shown());
        let answer = self.recorded(sent, caller.grpc.clone().create(request), record::ack).await;
        self.answered(caller);
        answer
    }

    /// Under TLS: a Create over the connection of `shard`, whatever its token says.
    pub(crate) async fn create_over(
        &self,
        shard: &str,
        id: &str,
        token: &Token,
    ) -> Answer<pb::TransitionAck> {
        let request = pb::CreateRequest {
            machine_id: id.to_owned(),
            shard_id: token.shard.clone(),
            shard_epoch: token.epoch,
            sequence_number: token.sequence,
        };
        let sent = format!("Create as {shard:?} machine_id={id:?} {}", token.shown());
        let mut grpc = self.client_of(shard)?;
        self.recorded(sent, grpc.create(request), record::ack).await
    }

    pub(crate) async fn configure_as(
        &self,
        id: &str,
        cluster: &str,
        metadata: &BTreeMap<String, String>,
        blob: &[u8],
        token: &Token,
    ) -> Answer<pb::TransitionAck> {
        let caller = self.caller(token)?;
        let token = &caller.token;
        let request = pb::ConfigureRequest {
            machine_id: id.to_owned(),
            cluster_id: cluster.to_owned(),
            bootstrap_blob: blob.to_vec().into(),
            shard_id: token.shard.clone(),
            shard_epoch: token.epoch,
            sequence_number: token.sequence,
            shard_metadata: metadata.clone(),
        };
        let sent = format!(
            "Configure machine_id={id:?} cluster_id={cluster:?} bootstrap_blob={} bytes shard_metadata={} {}",
            blob.len(),
            record::cut(&format!("{metadata:?}"), 200),
            token.shown()
        );
        let answer = self.recorded(sent, caller.grpc.clone().configure(request), record::ack).await;
        self.answered(caller);
        answer
    }

    pub(crate) async fn drain_as(&self, id: &str, grace: i64, token: &Token) -> Answer<pb::TransitionAck> {
        let caller = self.caller(token)?;
        let token = &caller.token;
        let request = pb::DrainRequest {
            machine_id: id.to_owned(),
            grace_period_seconds: grace,
            shard_id: token.shard.clone(),
            shard_epoch: token.epoch,
            sequence_number: token.sequence,
        };
        let sent = format!("Drain machine_id={id:?} grace_period_seconds={grace} {}", token.shown());
        let answer = self.recorded(sent, caller.grpc.clone().drain(request), record::ack).await;
        self.answered(caller);
        answer
    }

    pub(crate) async fn delete_as(&self, id: &str, token: &Token) -> Answer<pb::TransitionAck> {
        let caller = self.caller(token)?;
        let token = &caller.token;
        let request = pb::DeleteRequest {
            machine_id: id.to_owned(),
            shard_id: token.shard.clone(),
            shard_epoch: token.epoch,
            sequence_number: token.sequence,
        };
        let sent = format!("Delete machine_id={id:?} {}", token.shown());
        let answer = self.recorded(sent, caller.grpc.clone().delete(request), record::ack).await;
        self.answered(caller);
        answer
    }

    /// Any of the four, with a cluster and metadata that do not matter.
    pub(crate) async fn act(&self, kind: Kind, id: &str, token: &Token) -> Answer<pb::TransitionAck> {
        match kind {
            Kind::Create => self.create_as(id, token).await,
            Kind::Configure => self.configure_as(id, CLUSTER, &metadata(), BLOB, token).await,
            Kind::Drain => self.drain_as(id, 5, token).await,
            Kind::Delete => self.delete_as(id, token).await,
        }
    }

    pub(crate) async fn create(&self, id: &str) -> Answer<pb::TransitionAck> {
        self.create_as(id, &Token::default()).await
    }

    pub(crate) async fn configure(
        &self,
        id: &str,
        cluster: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Answer<pb::TransitionAck> {
        self.configure_as(id, cluster, metadata, BLOB, &Token::default()).await
    }

    pub(crate) async fn drain(&self, id: &str, grace: i64) -> Answer<pb::TransitionAck> {
        self.drain_as(id, grace, &Token::default()).await
    }

    pub(crate) async fn delete(&self, id: &str) -> Answer<pb::TransitionAck> {
        self.delete_as(id, &Token::default()).await
    }

    pub(crate) async fn get(&self, id: &str) -> Answer<pb::Machine> {
        let request = pb::MachineRef { id: id.to_owned() };
        self.recorded(format!("Get id={id:?}"), self.grpc.clone().get(request), record::machine).await
    }

    /// A machine that must be there.
    pub(crate) async fn machine(&self, id: &str) -> Check<pb::Machine> {
        ok(&format!("Get of {id}"), self.get(id).await)
    }

    pub(crate) async fn list(&self, filter: pb::ListFilter) -> Answer<pb::MachineList> {
        self.recorded(record::filter(&filter), self.grpc.clone().list(filter), record::list).await
    }

    /// Machines in any of `states`; all machines without one.
    pub(crate) async fn listed(&self, states: &[pb::MachineState]) -> Check<Vec<pb::Machine>> {
        let states = states.iter().map(|state| i32::from(*state)).collect();
        let filter = pb::ListFilter { states, ..pb::ListFilter::default() };
        Ok(ok("List", self.list(filter).await)?.machines)
    }

    /// What changed since a cursor; `most` 0 is no limit.
    pub(crate) async fn since(&self, cursor: &[u8], most: i32) -> Check<pb::MachineList> {
        let since_revision = cursor.to_vec().into();
        let filter = pb::ListFilter { since_revision, max_results: most, ..pb::ListFilter::default() };
        ok("List since a cursor", self.list(filter).await)
    }

    /// The cursor of now.
    pub(crate) async fn cursor(&self) -> Check<Vec<u8>> {
        Ok(ok("List", self.list(pb::ListFilter::default()).await)?.revision.to_vec())
    }
}
