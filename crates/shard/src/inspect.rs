//! `ShardRead.InspectNeeds`: what the last cycle made of each Need.
//!
//! Readers share the cycle's own arrays; a row is put into words when it is sent.

use std::cmp::Reverse;
use std::pin::Pin;
use std::sync::Arc;

use bigfleet_engine::Verdict;
use bigfleet_proto::gate::saturating_count;
use bigfleet_proto::gate::shardread::Inspect;
use bigfleet_proto::v1alpha1::inspect_needs_response::Frame;
use bigfleet_proto::v1alpha1::shard_read_server::{ShardRead, ShardReadServer};
use bigfleet_proto::v1alpha1::{
    InspectNeedsHeader, InspectNeedsRequest, InspectNeedsResponse, MatchingSupply, NeedView, UnmetReason,
};
use bigfleet_types::ClusterId;
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Request, Response, Status};

use crate::io::{Note, Published};

/// Readers served at once.
const READERS: usize = 8;

/// The service. Clones share everything.
#[derive(Debug, Clone)]
pub struct ReadService {
    published: watch::Receiver<Arc<Published>>,
    readers: Arc<Semaphore>,
}

impl ReadService {
    /// A service that shows the newest of `published`.
    #[must_use]
    pub fn new(published: watch::Receiver<Arc<Published>>) -> Self {
        Self { published, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// The gRPC service.
    #[must_use]
    pub fn into_server(self) -> ShardReadServer<Self> {
        ShardReadServer::new(self)
            .max_decoding_message_size(bigfleet_net::limits::CALL_BYTES)
            .max_encoding_message_size(bigfleet_net::limits::CALL_BYTES)
    }
}

#[tonic::async_trait]
impl ShardRead for ReadService {
    type InspectNeedsStream =
        Pin<Box<dyn Stream<Item = Result<InspectNeedsResponse, Status>> + Send + 'static>>;

    async fn inspect_needs(
        &self,
        request: Request<InspectNeedsRequest>,
    ) -> Result<Response<Self::InspectNeedsStream>, Status> {
        let Inspect { cluster, limit } = Inspect::try_from(request.get_ref())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let permit = self.readers.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("{READERS} readers are served already; try again later"))
        })?;
        let published = self.published.borrow().clone();
        let sorted = {
            let published = published.clone();
            tokio::task::spawn_blocking(move || order(&published, cluster.as_ref()))
        };
        let rows =
            sorted.await.map_err(|error| Status::internal(format!("cannot sort the Needs: {error}")))?;
        Ok(Response::new(Box::pin(frames(published, rows, limit, permit))))
    }
}

/// The cluster's verdicts, as places in the published array: by priority descending, arrival, cluster, and then by
/// what tells rows of one cluster apart.
fn order(published: &Published, cluster: Option<&ClusterId>) -> Vec<usize> {
    let verdicts = &published.decisions.verdicts;
    let mut rows: Vec<usize> =
        (0..verdicts.len()).filter(|&i| cluster.is_none_or(|c| verdicts[i].key.cluster == *c)).collect();
    rows.sort_by_cached_key(|&i| {
        let verdict = &verdicts[i];
        (Reverse(verdict.need.profile.priority()), verdict.arrival, verdict.key.clone())
    });
    rows
}

fn frames(
    published: Arc<Published>,
    rows: Vec<usize>,
    limit: Option<usize>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<InspectNeedsResponse, Status>> {
    let header = InspectNeedsHeader {
        cycle: i64::try_from(published.cycle).unwrap_or(i64::MAX),
        computed_at_unix_nanos: published.computed_at.0,
        total_needs: saturating_count(rows.len()),
    };
    let needs = rows.into_iter().take(limit.unwrap_or(usize::MAX)).map(move |i| {
        // A reader counts until its last frame is on its way.
        let _reading = &permit;
        let verdict = &published.decisions.verdicts[i];
        let age = published.unmet_age.get(i).copied().unwrap_or(0);
        Frame::Need(view(verdict, age, published.notes.get(&i)))
    });
    let frames = std::iter::once(Frame::Header(header)).chain(needs);
    futures::stream::iter(frames.map(|frame| Ok(InspectNeedsResponse { frame: Some(frame) })))
}

/// One row in words.
fn view(verdict: &Verdict, unmet_age: u32, note: Option<&Note>) -> NeedView {
    let missing = note.and_then(|note| note.missing.as_ref());
    let satisfied = verdict.satisfied && missing.is_none();
    let residual = missing.unwrap_or(&verdict.residual);
    NeedView {
        need: Some(verdict.need.as_ref().into()),
        cluster_id: verdict.key.cluster.to_string(),
        arrival_unix_nanos: verdict.arrival.0,
        profile_fingerprint: verdict.key.fingerprint.to_string(),
        satisfied,
        residual_deficit: (!satisfied).then(|| residual.into()),
        claimed_machine_count: saturating_count(verdict.claimed),
        bootstrap_count: saturating_count(verdict.bootstraps),
        provision_count: saturating_count(verdict.provisions),
        same_domain: String::new(),
        same_satisfiable: false,
        acquisition_parked: false,
        parked_age_cycles: 0,
        age_cycles_unmet: saturating_count(unmet_age),
        unmet_reason: UnmetReason::try_from(verdict.reason as i32).unwrap_or_default().into(),
        matching_supply: verdict.supply.map(|supply| MatchingSupply {
            idle: supply.idle.into(),
            configured: supply.configured.into(),
            speculative: supply.speculative.into(),
            capped: supply.capped,
        }),
        preemption: None,
        same_candidates: Vec::new(),
        note: note.map(|note| note.cause.to_string()).unwrap_or_default(),
    }
}
