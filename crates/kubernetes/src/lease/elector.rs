//! The election against an API server.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{Clock, UnixNanos};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Options;
use super::record::{Election, Record, Step};

/// Takes part in an election.
#[derive(Clone)]
pub struct Elector {
    api: Api<Lease>,
    options: Options,
    clock: Arc<dyn Clock>,
}

/// The lease is ours, for as long as it is renewed. Dropping it stops the renewal: the lease then expires.
#[derive(Debug)]
pub struct Leadership {
    lost: CancellationToken,
    stop: CancellationToken,
    transitions: i32,
    renewal: AbortOnDropHandle<()>,
}

impl Elector {
    /// An elector that judges time by `clock`.
    #[must_use]
    pub fn new(client: Client, options: Options, clock: Arc<dyn Clock>) -> Self {
        Self { api: Api::namespaced(client, &options.namespace), options, clock }
    }

    /// Waits until the lease is ours, and keeps it from then on. `None` when `stop` was cancelled before that.
    /// Whatever the API server answers, it is asked again. `standing_by` is called whenever another process is found
    /// to lead.
    pub async fn acquire(
        &self,
        stop: &CancellationToken,
        mut standing_by: impl FnMut(),
    ) -> Option<Leadership> {
        let mut election = Election::new(&self.options);
        let mut told = String::new();
        loop {
            let tried = tokio::time::timeout(self.options.renew_deadline, self.attempt(&mut election));
            let outcome = tokio::select! {
                outcome = tried => outcome,
                () = stop.cancelled() => return None,
            };
            match outcome {
                Ok(Ok(true)) => return Some(self.lead(election)),
                Ok(Ok(false)) => {
                    standing_by();
                    let holder = election.observed().map_or("", |record| record.holder.as_str());
                    if told != holder {
                        told = holder.to_owned();
                        tracing::info!(lease = self.options.name, holder, "another process leads; waiting");
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.options.name, %error, "the lease cannot be had yet");
                }
                Err(_) => tracing::warn!(lease = self.options.name, "the API server does not answer"),
            }
            tokio::select! {
                () = tokio::time::sleep(self.options.retry) => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    fn lead(&self, mut election: Election) -> Leadership {
        let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
        let transitions = election.transitions();
        tracing::info!(lease = self.options.name, identity = self.options.identity, transitions, "leading");
        let (elector, ended, end) = (self.clone(), lost.clone(), stop.clone());
        let renewal = tokio::spawn(async move {
            let given_back = elector.keep(&mut election, &end).await;
            if !given_back {
                tracing::error!(lease = elector.options.name, "the lease is lost");
            }
            ended.cancel();
        });
        Leadership { lost, stop, transitions, renewal: AbortOnDropHandle::new(renewal) }
    }

    /// Renews until the lease is lost (`false`) or to be given back (`true`).
    async fn keep(&self, election: &mut Election, stop: &CancellationToken) -> bool {
        loop {
            let left = election.remaining(self.clock.now());
            tokio::select! {
                () = tokio::time::sleep(self.options.retry.min(left)) => {}
                () = stop.cancelled() => {
                    self.give_back(election).await;
                    return true;
                }
            }
            let left = election.remaining(self.clock.now());
            let tried = tokio::time::timeout(left, self.attempt(election));
            match tried.await {
                Ok(Ok(true)) => {}
                // It is another's: there is nothing to wait for.
                Ok(Ok(false)) => return false,
                Ok(Err(error)) => tracing::warn!(lease = self.options.name, %error, "not renewed"),
                Err(_) => tracing::warn!(lease = self.options.name, "not renewed: no answer in time"),
            }
            if !election.leads(self.clock.now()) {
                return false;
            }
        }
    }

    /// Reads the lease and writes it if that is right; whether it is ours now.
    async fn attempt(&self, election: &mut Election) -> kube::Result<bool> {
        let name = &self.options.name;
        let began = self.clock.now();
        let found = self.api.get_opt(name).await?;
        let step = election.read(self.clock.now(), found.as_ref().map(record));
        let written = match (step, found) {
            (Step::Wait, _) => return Ok(false),
            (Step::Create, _) | (_, None) => {
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(began, None, true)) };
                self.api.create(&PostParams::default(), &lease).await
            }
            (Step::Renew | Step::Take, Some(mut lease)) => {
                lease.spec = Some(self.spec(began, lease.spec.as_ref(), step == Step::Take));
                // The resource version that was read goes along: whoever was quicker wins.
                self.api.replace(name, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                election.written(began, record(&lease));
                Ok(true)
            }
            // Somebody else wrote: for a candidate that is the answer, a leader looks again.
            Err(kube::Error::Api(status)) if status.code == 409 && !election.leads(began) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn give_back(&self, election: &mut Election) {
        election.resign();
        let given = async {
            let Some(mut lease) = self.api.get_opt(&self.options.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.options.identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = stamp(self.clock.now());
            self.api.replace(&self.options.name, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(self.options.retry.max(Duration::from_secs(1)), given).await {
            Ok(Ok(())) => tracing::info!(lease = self.options.name, "the lease is given back"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.options.name, %error, "not given back: it will expire");
            }
            Err(_) => tracing::warn!(lease = self.options.name, "not given back in time: it will expire"),
        }
    }

    fn spec(&self, now: UnixNanos, before: Option<&LeaseSpec>, taken: bool) -> LeaseSpec {
        let before = before.cloned().unwrap_or_default();
        let transitions = before.lease_transitions.unwrap_or(0);
        let changes = taken && before.renew_time.is_some();
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.options.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if taken { stamp(now) } else { before.acquire_time },
            renew_time: stamp(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(changes))),
            ..LeaseSpec::default()
        }
    }
}

impl Leadership {
    /// Cancelled when the lease is lost or given back: stop writing at once.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// The fencing number: grows each time that the lease changes hands.
    #[must_use]
    pub fn transitions(&self) -> i32 {
        self.transitions
    }

    /// Gives the lease back, so that a successor need not wait for its expiry.
    pub async fn release(self) {
        self.stop.cancel();
        // A renewal that panicked has nothing left to give back.
        let _ = self.renewal.await;
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    Record {
        version: lease.resource_version().unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}

fn stamp(at: UnixNanos) -> Option<MicroTime> {
    Timestamp::from_nanosecond(i128::from(at.0)).ok().map(MicroTime)
}
