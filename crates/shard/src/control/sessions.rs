//! Operators: who is connected, what they were asked, and which endings they may have missed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::{Acknowledgement, ShardMessage, shard_message::Payload};
use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, UnixNanos};
use tracing::info;

use super::Control;
use super::flight::Stage;
use crate::io::{CloseReason, Lane, Output, SessionId};

const ENDINGS_PER_CLUSTER: usize = 10_000;
const ENDINGS_LAST: Duration = Duration::from_secs(24 * 3600);
/// A frame that an open session has had for this long was written, or the session would have been closed.
const SURELY_WRITTEN: Duration = Duration::from_secs(120);

/// The connected operators.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_cluster: BTreeMap<ClusterId, SessionId>,
    by_session: BTreeMap<SessionId, ClusterId>,
    /// Bootstrap requests that wait for an answer.
    pub(super) requests: BTreeMap<String, MachineId>,
    /// Reclaim instructions that wait for an acknowledgement.
    pub(super) instructions: BTreeMap<String, MachineId>,
    pub(super) endings: Endings,
}

impl Sessions {
    pub(super) fn of(&self, cluster: &ClusterId) -> Option<SessionId> {
        self.by_cluster.get(cluster).copied()
    }

    /// The cluster that a session speaks for, as long as it is the newest of that cluster.
    pub(super) fn cluster_of(&self, session: SessionId) -> Option<&ClusterId> {
        self.by_session.get(&session)
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = (&ClusterId, SessionId)> {
        self.by_cluster.iter().map(|(cluster, session)| (cluster, *session))
    }

    fn install(&mut self, session: SessionId, cluster: &ClusterId) -> Option<SessionId> {
        let before = self.by_cluster.insert(cluster.clone(), session);
        if let Some(before) = before {
            self.by_session.remove(&before);
        }
        self.by_session.insert(session, cluster.clone());
        before
    }

    fn uninstall(&mut self, session: SessionId) -> Option<ClusterId> {
        let cluster = self.by_session.remove(&session)?;
        self.by_cluster.remove(&cluster);
        Some(cluster)
    }
}

#[derive(Debug)]
struct Ending {
    at: UnixNanos,
    machine: Arc<Machine>,
    state: MachineState,
}

/// Bindings that ended, for operators that may not have heard of it.
#[derive(Debug, Default)]
pub(super) struct Endings(BTreeMap<ClusterId, BTreeMap<MachineId, Ending>>);

impl Endings {
    pub(super) fn remember(
        &mut self,
        now: UnixNanos,
        cluster: &ClusterId,
        machine: Arc<Machine>,
        state: MachineState,
    ) {
        let endings = self.0.entry(cluster.clone()).or_default();
        if endings.len() >= ENDINGS_PER_CLUSTER {
            endings.retain(|_, ending| now.since(ending.at) < ENDINGS_LAST);
        }
        if endings.len() < ENDINGS_PER_CLUSTER {
            endings.insert(machine.id.clone(), Ending { at: now, machine, state });
        }
    }

    /// The machine serves the cluster again.
    pub(super) fn forget(&mut self, cluster: &ClusterId, id: &MachineId) {
        if let Some(endings) = self.0.get_mut(cluster) {
            endings.remove(id);
        }
    }

    /// The session ended: what it had for long enough was written.
    fn written(&mut self, now: UnixNanos, cluster: &ClusterId) {
        if let Some(endings) = self.0.get_mut(cluster) {
            endings.retain(|_, ending| now.since(ending.at) < SURELY_WRITTEN);
        }
    }

    fn of(&self, now: UnixNanos, cluster: &ClusterId) -> Vec<(Arc<Machine>, MachineState)> {
        let endings = self.0.get(cluster).into_iter().flat_map(BTreeMap::values);
        let fresh = endings.filter(|ending| now.since(ending.at) < ENDINGS_LAST);
        fresh.map(|ending| (ending.machine.clone(), ending.state)).collect()
    }
}

impl Control {
    /// An operator said Hello: it is greeted and told of all its machines.
    pub(super) fn session_opened(&mut self, now: UnixNanos, session: SessionId, cluster: &ClusterId) {
        let before = self.sessions.install(session, cluster);
        let event = if before.is_some() { "replaced" } else { "installed" };
        self.metrics.session_lifecycle.get_or_create(&[("event", event)]).inc();
        info!(%cluster, event, "session");
        // First of all, whatever the end of the older session sets off.
        self.acknowledge(session, "hello", 0, String::new());
        if let Some(before) = before {
            self.outputs.push_back(Output::Close { session: before, reason: CloseReason::Replaced });
            self.operator_gone(now, cluster, "session replaced");
        } else {
            self.metrics.active_sessions.inc();
        }
        let ids: Vec<MachineId> = self.fleet.of(cluster).cloned().collect();
        for id in ids {
            let Some(machine) = self.fleet.get(&id).map(|record| record.machine.clone()) else { continue };
            // An Idle machine that is meant for the cluster was shown as Creating, and will be shown as Configuring.
            if machine.state != MachineState::Idle {
                self.send_node(cluster, &machine, machine.state);
            }
        }
        for (machine, state) in self.sessions.endings.of(now, cluster) {
            self.send_node(cluster, &machine, state);
        }
        // Before the first List there is more to tell; the marker follows it then.
        if self.ready() {
            self.mark_resynced(session);
        }
        // Drains may have waited for it.
        self.dirty = true;
    }

    /// The first List has been applied: every connected operator has been told of all its machines.
    pub(super) fn mark_all_resynced(&mut self) {
        let sessions: Vec<SessionId> = self.sessions.clusters().map(|(_, session)| session).collect();
        sessions.into_iter().for_each(|session| self.mark_resynced(session));
    }

    /// Tells an operator that the replay is complete, in the lane of the replay so that it comes after it.
    fn mark_resynced(&mut self, session: SessionId) {
        let message = self.acknowledgement("resync", 0, String::new());
        self.outputs.push_back(Output::Send {
            session,
            lane: Lane::Coalescing("resync".to_owned()),
            message,
        });
    }

    /// Hello once more on an open stream.
    pub(super) fn hello_again(&mut self, session: SessionId) {
        if self.sessions.cluster_of(session).is_some() {
            self.acknowledge(session, "hello", 0, String::new());
        }
    }

    /// A stream ended.
    pub(super) fn session_closed(&mut self, now: UnixNanos, session: SessionId) {
        let Some(cluster) = self.sessions.uninstall(session) else { return };
        self.metrics.session_lifecycle.get_or_create(&[("event", "removed")]).inc();
        self.metrics.active_sessions.dec();
        info!(%cluster, event = "removed", "session");
        self.operator_gone(now, &cluster, "session closed");
    }

    /// What a cluster's operator was asked will not be answered.
    fn operator_gone(&mut self, now: UnixNanos, cluster: &ClusterId, detail: &str) {
        self.hints.forget(cluster);
        self.sessions.endings.written(now, cluster);
        let waiting: Vec<MachineId> = self
            .fleet
            .in_flight()
            .filter(|(_, flight)| {
                let theirs = flight.work.as_ref().and_then(|work| work.action.cluster.as_ref());
                matches!(flight.stage, Stage::Blob { .. }) && theirs == Some(cluster)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            self.lost_blob(now, &id, detail);
        }
    }

    /// Answers a frame.
    pub(super) fn acknowledge(&mut self, session: SessionId, echo: &str, timestamp: i64, reason: String) {
        let message = self.acknowledgement(echo, timestamp, reason);
        self.outputs.push_back(Output::Send { session, lane: Lane::Fifo, message });
    }

    fn acknowledgement(&self, echo: &str, timestamp: i64, reason: String) -> Box<ShardMessage> {
        let ack = Acknowledgement {
            echo: echo.to_owned(),
            coordinator_term: 0,
            shard_epoch: self.config.epoch,
            rollup_timestamp_unix_nanos: timestamp,
            reason,
        };
        Box::new(ShardMessage { payload: Some(Payload::Ack(ack)) })
    }
}
