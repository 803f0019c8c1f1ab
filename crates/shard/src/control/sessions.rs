//! Operators: who is connected, what they were asked, and which endings they may have missed.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_engine::ActionKind;
use bigfleet_proto::v1alpha1::{Acknowledgement, ShardMessage, shard_message::Payload};
use bigfleet_types::{ClusterId, MachineId, MachineState, UnixNanos};
use tracing::info;

use super::Control;
use super::endings::Endings;
use super::flight::Stage;
use crate::io::{CloseReason, Lane, Output, SessionId};

/// The series of a cluster that has been away for this long are taken out.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The connected operators.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_cluster: BTreeMap<ClusterId, (SessionId, UnixNanos)>,
    by_session: BTreeMap<SessionId, ClusterId>,
    /// Bootstrap requests that wait for an answer.
    pub(super) requests: BTreeMap<String, MachineId>,
    /// Reclaim instructions that wait for an acknowledgement.
    pub(super) instructions: BTreeMap<String, MachineId>,
    pub(super) endings: Endings,
    /// Clusters without a session, since when, and whether their series have been taken out.
    gone: BTreeMap<ClusterId, (UnixNanos, bool)>,
}

impl Sessions {
    pub(super) fn of(&self, cluster: &ClusterId) -> Option<SessionId> {
        self.by_cluster.get(cluster).map(|(session, _)| *session)
    }

    /// Since when the cluster's session has been open.
    pub(super) fn opened(&self, cluster: &ClusterId) -> Option<UnixNanos> {
        self.by_cluster.get(cluster).map(|(_, at)| *at)
    }

    /// The cluster that a session speaks for, as long as it is the newest of that cluster.
    pub(super) fn cluster_of(&self, session: SessionId) -> Option<&ClusterId> {
        self.by_session.get(&session)
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = (&ClusterId, SessionId)> {
        self.by_cluster.iter().map(|(cluster, (session, _))| (cluster, *session))
    }

    /// Whether the series of a cluster have been taken out because it has been away for so long.
    pub(super) fn is_forgotten(&self, cluster: &ClusterId) -> bool {
        self.gone.get(cluster).is_some_and(|(_, forgotten)| *forgotten)
    }

    /// What the stage waits for is not waited for any more: an answer comes to nobody.
    pub(super) fn forget_question(&mut self, stage: &Stage) {
        match stage {
            Stage::Blob { request, .. } => drop(self.requests.remove(request)),
            Stage::Instructed { instruction } => drop(self.instructions.remove(instruction)),
            Stage::Call { .. } | Stage::Watch(_) => {}
        }
    }

    fn install(
        &mut self,
        now: UnixNanos,
        session: SessionId,
        cluster: &ClusterId,
    ) -> Option<(SessionId, UnixNanos)> {
        self.gone.remove(cluster);
        let before = self.by_cluster.insert(cluster.clone(), (session, now));
        if let Some((before, _)) = before {
            self.by_session.remove(&before);
        }
        self.by_session.insert(session, cluster.clone());
        before
    }

    fn uninstall(&mut self, now: UnixNanos, session: SessionId) -> Option<(ClusterId, UnixNanos)> {
        let cluster = self.by_session.remove(&session)?;
        let (_, opened) = self.by_cluster.remove(&cluster)?;
        self.gone.insert(cluster.clone(), (now, false));
        Some((cluster, opened))
    }
}

impl Control {
    /// An operator said Hello: it is greeted and told of all its machines.
    pub(super) fn session_opened(&mut self, now: UnixNanos, session: SessionId, cluster: &ClusterId) {
        let before = self.sessions.install(now, session, cluster);
        let event = if before.is_some() { "replaced" } else { "installed" };
        self.metrics.session_lifecycle.get_or_create(&[("event", event)]).inc();
        info!(%cluster, event, "session");
        // First of all, whatever the end of the older session sets off.
        self.acknowledge(session, "hello", 0, String::new());
        if let Some((before, opened)) = before {
            self.outputs.push_back(Output::Close { session: before, reason: CloseReason::Replaced });
            self.operator_gone(now, cluster, opened, "session replaced");
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
        let Some((cluster, opened)) = self.sessions.uninstall(now, session) else { return };
        self.metrics.session_lifecycle.get_or_create(&[("event", "removed")]).inc();
        self.metrics.active_sessions.dec();
        info!(%cluster, event = "removed", "session");
        self.operator_gone(now, &cluster, opened, "session closed");
    }

    /// What a cluster's operator was asked will not be answered.
    fn operator_gone(&mut self, now: UnixNanos, cluster: &ClusterId, opened: UnixNanos, detail: &str) {
        self.hints.forget(cluster);
        self.sessions.endings.written(now, cluster, opened);
        let waiting: Vec<MachineId> = self
            .fleet
            .in_flight()
            .filter(|(_, flight)| {
                let theirs = flight.work.as_ref().and_then(|work| work.action.cluster.as_ref());
                !matches!(flight.stage, Stage::Call { .. } | Stage::Watch(_)) && theirs == Some(cluster)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            let Some(flight) = self.fleet.flight_mut(&id) else { continue };
            let kind = flight.work.as_ref().map(|work| work.kind());
            match (&flight.stage, kind) {
                (Stage::Blob { .. }, _) => self.lost_blob(now, &id, detail),
                // Never urgent, and nobody is there to see to disruption budgets.
                (Stage::Instructed { .. }, Some(ActionKind::Reclaim)) => {
                    self.metrics.reclaims_deferred_no_session.inc();
                    self.abandon(now, &id, "no_session", detail);
                }
                (Stage::Instructed { .. }, _) => self.drain(now, &id),
                _ => {}
            }
        }
    }

    /// Takes out the series of clusters that have been away for a day.
    pub(super) fn forget_the_long_gone(&mut self, now: UnixNanos) {
        for (cluster, (since, forgotten)) in &mut self.sessions.gone {
            if !*forgotten && now.since(*since) >= FORGOTTEN_AFTER {
                *forgotten = true;
                let labels = [("cluster", cluster.to_string())];
                self.metrics.rollup_quarantined.remove(&labels);
                self.metrics.rollups_rejected.remove(&labels);
                self.metrics.rollup_age_seconds.remove(&labels);
                self.demand.forget_series(cluster);
            }
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
