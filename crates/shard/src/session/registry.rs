//! Which sessions are open, and which one speaks for a cluster: the newest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bigfleet_net::log_limit::LogLimit;
use bigfleet_proto::v1alpha1::ShardMessage;
use bigfleet_types::ClusterId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::stopping;
use crate::io::{CloseReason, Input, Lane, SessionId};
use crate::metrics::Metrics;
use crate::outbox::{Outbox, Pushed};

/// Sessions that may be open at once.
const MAX_SESSIONS: usize = 5_000;
/// So many replacements of one cluster within [`FLAP_WINDOW`] mean that two operators fight.
const FLAPS: usize = 3;
const FLAP_WINDOW: Duration = Duration::from_secs(60);
/// How long each further accept waits then.
const FLAP_WAIT: Duration = Duration::from_secs(1);

/// The open sessions. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Mutex<Table>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: BTreeMap<SessionId, Open>,
    newest: BTreeMap<ClusterId, SessionId>,
    flaps: BTreeMap<ClusterId, Flaps>,
    stopping: bool,
}

#[derive(Debug)]
struct Open {
    cluster: ClusterId,
    outbox: Outbox,
    ended: CancellationToken,
}

/// The recent replacements of one cluster.
#[derive(Debug)]
struct Flaps {
    at: VecDeque<Instant>,
    complaints: LogLimit,
}

impl Flaps {
    /// Forgets what is too old; how many are left.
    fn recent(&mut self, now: Instant) -> usize {
        self.at.retain(|at| now.saturating_duration_since(*at) < FLAP_WINDOW);
        self.at.len()
    }
}

impl Sessions {
    /// No sessions yet.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self(Arc::new(Inner { table: Mutex::default(), metrics }))
    }

    /// Makes the stream behind `outbox` the cluster's session, tells the core, and ends the one before. The token
    /// is cancelled when somebody else ends the session.
    pub(crate) async fn install(
        &self,
        cluster: &ClusterId,
        outbox: &Outbox,
        inputs: &mpsc::Sender<Input>,
    ) -> Result<(SessionId, CancellationToken), Status> {
        if self.flapping(cluster) {
            tokio::time::sleep(FLAP_WAIT).await;
        }
        // The place in the queue is taken first, so that numbers and announcements have one order.
        let place = inputs.reserve().await.map_err(|_| stopping())?;
        let mut table = self.table();
        if table.stopping {
            return Err(stopping());
        }
        if table.open.len() >= MAX_SESSIONS {
            return Err(Status::resource_exhausted(format!(
                "{MAX_SESSIONS} sessions are open, more than that need another shard; try again later"
            )));
        }
        table.last += 1;
        let session = SessionId(table.last);
        let ended = CancellationToken::new();
        let open = Open { cluster: cluster.clone(), outbox: outbox.clone(), ended: ended.clone() };
        table.open.insert(session, open);
        let older = table.newest.insert(cluster.clone(), session);
        if let Some(older) = older {
            table.end(older, Status::aborted("session replaced"));
            table.note_replacement(cluster, Instant::now());
        }
        place.send(Input::SessionOpened { session, cluster: cluster.clone() });
        drop(table);
        tracing::debug!(%cluster, session = session.0, replaced = older.is_some(), "session installed");
        Ok((session, ended))
    }

    /// Forgets a session whose stream has ended. A successor stays.
    pub(super) fn remove(&self, session: SessionId) {
        let mut table = self.table();
        let Some(open) = table.open.remove(&session) else { return };
        if table.newest.get(&open.cluster) == Some(&session) {
            table.newest.remove(&open.cluster);
            tracing::debug!(cluster = %open.cluster, session = session.0, "session removed");
        }
    }

    /// Sends a frame. One for a session that is gone is dropped; one that finds no room ends its session.
    pub(crate) fn send(&self, session: SessionId, lane: Lane, message: ShardMessage) {
        let mut table = self.table();
        let Some(open) = table.open.get(&session) else { return };
        match open.outbox.push(lane, message, Instant::now()) {
            Ok(Pushed::Queued | Pushed::Ended) => {}
            Ok(Pushed::Replaced) => {
                self.0.metrics.session_frames_coalesced.inc();
            }
            Err(full) => {
                tracing::warn!(cluster = %open.cluster, session = session.0, "{full}");
                table.end(session, Status::resource_exhausted(full.to_string()));
            }
        }
    }

    /// Ends a session as the core asks; nothing when it has ended already.
    pub(crate) fn close(&self, session: SessionId, reason: CloseReason) {
        let status = match reason {
            CloseReason::Replaced => Status::aborted("session replaced"),
            CloseReason::OutOfStep => Status::aborted("a roll-up was lost; connect again"),
        };
        self.table().end(session, status);
    }

    /// Ends all sessions and accepts no more.
    pub(crate) fn stop(&self) {
        let mut table = self.table();
        table.stopping = true;
        let all: Vec<_> = table.open.keys().copied().collect();
        all.into_iter().for_each(|session| table.end(session, stopping()));
    }

    /// Publishes how many frames wait.
    pub(crate) fn measure(&self) {
        let table = self.table();
        let (mut fifo, mut coalescing) = (0, 0);
        for open in table.open.values() {
            let depth = open.outbox.depth();
            fifo += depth.fifo;
            coalescing += depth.coalescing;
        }
        for (lane, frames) in [("fifo", fifo), ("coalescing", coalescing)] {
            let gauge = self.0.metrics.session_outbox_depth.get_or_create(&[("lane", lane)]);
            gauge.set(i64::try_from(frames).unwrap_or(i64::MAX));
        }
    }

    fn flapping(&self, cluster: &ClusterId) -> bool {
        let mut table = self.table();
        let Some(flaps) = table.flaps.get_mut(cluster) else { return false };
        if flaps.recent(Instant::now()) < FLAPS {
            return false;
        }
        if let Some(suppressed) = flaps.complaints.pass() {
            tracing::error!(
                %cluster, suppressed,
                "sessions of one cluster replace each other: two operators share its id, or a key was copied; each new \
                 one waits 1 s"
            );
        }
        true
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn end(&mut self, session: SessionId, status: Status) {
        if let Some(open) = self.open.get(&session) {
            open.outbox.end(status);
            open.ended.cancel();
        }
    }

    fn note_replacement(&mut self, cluster: &ClusterId, now: Instant) {
        self.flaps.retain(|_, flaps| flaps.recent(now) > 0);
        let fresh = || Flaps { at: VecDeque::new(), complaints: LogLimit::every(FLAP_WINDOW) };
        self.flaps.entry(cluster.clone()).or_insert_with(fresh).at.push_back(now);
    }
}
