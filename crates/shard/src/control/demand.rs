//! Roll-ups: what each cluster wants.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_engine::Event;
use bigfleet_types::{ClusterId, Need, UnixNanos};
use tracing::{error, warn};

use super::Control;
use super::guard::{Guard, Judgement, Size};
use super::tally::BUCKETS;
use crate::io::SessionId;

/// One cluster's demand in force.
#[derive(Debug, Default)]
pub(super) struct ClusterDemand {
    /// Ordered by key.
    pub(super) needs: Vec<Arc<Need>>,
    guard: Guard,
    /// When the roll-up in force came.
    pub(super) accepted: Option<UnixNanos>,
    pub(super) heard: bool,
    /// A first, empty roll-up that came before the inventory: whether it is suspicious cannot be told yet.
    waiting: Option<(SessionId, i64)>,
}

/// The demand of all clusters.
pub(super) type Demand = BTreeMap<ClusterId, ClusterDemand>;

impl Control {
    /// A roll-up arrived, or something that should have been one.
    pub(super) fn rollup(
        &mut self,
        now: UnixNanos,
        session: SessionId,
        timestamp: i64,
        rows: Result<Vec<Need>, String>,
    ) {
        let Some(cluster) = self.sessions.cluster_of(session).cloned() else { return };
        match rows {
            Err(reason) => {
                error!(%cluster, "roll-up refused: {reason}; the demand before stays in force");
                let labels = [("cluster", cluster.to_string())];
                self.metrics.rollups_rejected.get_or_create(&labels).inc();
                self.acknowledge(session, "rollup_rejected", timestamp, reason);
            }
            Ok(rows) => {
                let ready = self.ready();
                let demand = self.demand.entry(cluster.clone()).or_default();
                if rows.is_empty() && !ready && !demand.guard.has_baseline() {
                    demand.waiting = Some((session, timestamp));
                    return;
                }
                demand.waiting = None;
                self.ingest(now, session, timestamp, &cluster, rows);
            }
        }
    }

    /// The inventory is there: roll-ups that waited for it can be judged.
    pub(super) fn ingest_waiting(&mut self, now: UnixNanos) {
        let waiting: Vec<_> = self
            .demand
            .iter_mut()
            .filter_map(|(cluster, demand)| Some((cluster.clone(), demand.waiting.take()?)))
            .collect();
        for (cluster, (session, timestamp)) in waiting {
            self.ingest(now, session, timestamp, &cluster, Vec::new());
        }
    }

    fn ingest(
        &mut self,
        now: UnixNanos,
        session: SessionId,
        timestamp: i64,
        cluster: &ClusterId,
        rows: Vec<Need>,
    ) {
        let configured = self.fleet.configured(cluster);
        let demand = self.demand.entry(cluster.clone()).or_default();
        let judgement = match self.config.empty_rollup_guard {
            true => demand.guard.judge(Size::of(&rows), configured),
            false => Judgement::Accept,
        };
        let labels = [("cluster", cluster.to_string())];
        let quarantined = self.metrics.rollup_quarantined.get_or_create_owned(&labels);
        quarantined.set(i64::from(demand.guard.held()));
        let (accept, heard) = match judgement {
            Judgement::Accept => (true, true),
            Judgement::Confirmed => {
                warn!(%cluster, rows = rows.len(), "a suspiciously small roll-up was confirmed; taken over");
                (true, true)
            }
            Judgement::Hold { heard } => {
                warn!(
                    %cluster, rows = rows.len(), held = demand.guard.held(), configured,
                    "a suspiciously small roll-up is held; the demand before stays in force"
                );
                (false, heard)
            }
        };
        if heard && !std::mem::replace(&mut demand.heard, true) {
            self.engine.apply(Event::Heard(cluster.clone()));
        }
        if accept {
            demand.accepted = Some(now);
            demand.needs = rows.iter().cloned().map(Arc::new).collect();
            self.bootstraps.demanded(cluster, &demand.needs);
            self.engine.apply(Event::Demand { cluster: cluster.clone(), rows, at: now });
            self.dirty = true;
        }
        let held = if accept { String::new() } else { "held: far less than before".to_owned() };
        self.acknowledge(session, "rollup", timestamp, held);
    }

    /// Writes the gauges of demand.
    pub(super) fn publish_demand(&self, now: UnixNanos) {
        let mut buckets = [0i64; 28];
        let mut rows = 0;
        for (cluster, demand) in &self.demand {
            for need in &demand.needs {
                buckets[usize::from(need.profile.interruption().number())] += 1;
                rows += 1;
            }
            if let Some(accepted) = demand.accepted
                && !self.sessions.is_forgotten(cluster)
            {
                let labels = [("cluster", cluster.to_string())];
                let age = self.metrics.rollup_age_seconds.get_or_create_owned(&labels);
                age.set(now.since(accepted).as_secs_f64());
            }
        }
        for (label, count) in BUCKETS.iter().zip(buckets) {
            let labels = [("interruption_penalty_bucket", *label)];
            self.metrics.demand_machines.get_or_create(&labels).set(count);
        }
        self.metrics.demand_rows.set(rows);
        let unheard = self.fleet.holders().filter(|c| !self.demand.get(*c).is_some_and(|d| d.heard));
        self.metrics.unreported_clusters.set(i64::try_from(unheard.count()).unwrap_or(i64::MAX));
    }
}
