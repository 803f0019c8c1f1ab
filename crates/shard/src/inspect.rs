//! `ShardRead.InspectNeeds`: what the last cycle made of each Need.
//!
//! Readers share the cycle's own arrays; a row is put into words when it is sent.

use std::cmp::Reverse;
use std::pin::Pin;
use std::sync::Arc;

use bigfleet_engine::{GangVerdict, Verdict};
use bigfleet_proto::gate::saturating_count;
use bigfleet_proto::gate::shardread::Inspect;
use bigfleet_proto::v1alpha1::inspect_needs_response::Frame;
use bigfleet_proto::v1alpha1::shard_read_server::{ShardRead, ShardReadServer};
use bigfleet_proto::v1alpha1::{
    DomainCoverage, InspectNeedsHeader, InspectNeedsRequest, InspectNeedsResponse, MatchingSupply, NeedView,
    PreemptionSummary, UnmetReason,
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

/// Where a row is told: the place of a verdict in the published array and, for a folded Need, that of a gang in it.
type Place = (usize, Option<usize>);

/// The cluster's rows; every gang of a folded Need is one. By priority descending, arrival, cluster, and then by
/// what tells rows of one cluster apart.
fn order(published: &Published, cluster: Option<&ClusterId>) -> Vec<Place> {
    let verdicts = &published.decisions.verdicts;
    let wanted = (0..verdicts.len()).filter(|&i| cluster.is_none_or(|c| verdicts[i].key.cluster == *c));
    let mut rows: Vec<Place> = Vec::new();
    for i in wanted {
        match verdicts[i].gangs.len() {
            0 => rows.push((i, None)),
            gangs => rows.extend((0..gangs).map(|gang| (i, Some(gang)))),
        }
    }
    rows.sort_by_cached_key(|&(i, gang)| {
        let verdict = &verdicts[i];
        let (arrival, key) = match gang.and_then(|gang| verdict.gangs.get(gang)) {
            Some(gang) => (gang.arrival, gang.key),
            None => (verdict.arrival, verdict.key.clone()),
        };
        (Reverse(verdict.need.profile.priority()), arrival, key)
    });
    rows
}

fn frames(
    published: Arc<Published>,
    rows: Vec<Place>,
    limit: Option<usize>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<InspectNeedsResponse, Status>> {
    let header = InspectNeedsHeader {
        cycle: i64::try_from(published.cycle).unwrap_or(i64::MAX),
        computed_at_unix_nanos: published.computed_at.0,
        total_needs: saturating_count(rows.len()),
    };
    let needs = rows.into_iter().take(limit.unwrap_or(usize::MAX)).map(move |(i, gang)| {
        // A reader counts until its last frame is on its way.
        let _reading = &permit;
        let verdict = &published.decisions.verdicts[i];
        let age = published.unmet_age.get(&verdict.key).copied().unwrap_or(0);
        let row = view(verdict, age, published.notes.get(&verdict.key));
        Frame::Need(match gang.and_then(|gang| verdict.gangs.get(gang)) {
            None => row,
            Some(gang) => gang_view(row, &gang),
        })
    });
    let frames = std::iter::once(Frame::Header(header)).chain(needs);
    futures::stream::iter(frames.map(|frame| Ok(InspectNeedsResponse { frame: Some(frame) })))
}

/// One row in words.
fn view(verdict: &Verdict, unmet_age: u32, note: Option<&Note>) -> NeedView {
    let missing = note.and_then(|note| note.missing.as_ref());
    let satisfied = verdict.satisfied && missing.is_none();
    let residual = missing.unwrap_or(&verdict.residual);
    let same = verdict.same.as_ref();
    let candidates = same.into_iter().flat_map(|same| &same.candidates);
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
        same_domain: same.and_then(|same| same.domain.as_deref()).unwrap_or_default().to_owned(),
        same_satisfiable: same.is_some_and(|same| same.satisfiable),
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
        preemption: verdict.preemption.as_ref().map(|preemption| PreemptionSummary {
            victims_found: saturating_count(preemption.victims),
            capacity_freed: Some((&preemption.freed).into()),
        }),
        same_candidates: candidates.map(coverage).collect(),
        note: note.map(|note| note.cause.to_string()).unwrap_or_default(),
    }
}

/// One gang of a folded Need, whose machines serve all of its gangs together: counts and supply are those of the fold,
/// what is missing is the gang's own.
fn gang_view(fold: NeedView, gang: &GangVerdict) -> NeedView {
    let satisfied = gang.satisfied;
    NeedView {
        need: Some(gang.need.as_ref().into()),
        arrival_unix_nanos: gang.arrival.0,
        profile_fingerprint: gang.key.fingerprint.to_string(),
        satisfied,
        residual_deficit: (!satisfied).then(|| (&gang.need.aggregate).into()),
        age_cycles_unmet: if satisfied { 0 } else { fold.age_cycles_unmet },
        unmet_reason: if satisfied { UnmetReason::Unspecified.into() } else { fold.unmet_reason },
        matching_supply: fold.matching_supply.filter(|_| !satisfied),
        ..fold
    }
}

fn coverage(candidate: &bigfleet_engine::Candidate) -> DomainCoverage {
    DomainCoverage {
        domain: candidate.domain.to_string(),
        coverage_per_mille: candidate.per_mille.into(),
        satisfiable: candidate.satisfiable,
    }
}
