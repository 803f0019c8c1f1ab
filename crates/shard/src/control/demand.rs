//! Roll-ups: what each cluster wants.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bigfleet_engine::Event;
use bigfleet_proto::gate::rollup::{Change, RowKey, row_key};
use bigfleet_types::{ClusterId, Fingerprint, Need, Profile, UnixNanos};
use tracing::{error, warn};

use super::Control;
use super::guard::{Guard, Judgement, Size};
use super::tally::BUCKETS;
use crate::io::{CloseReason, Output, SessionId};
use crate::metrics::FloatGauge;

/// One cluster's demand.
#[derive(Debug, Default)]
pub(super) struct ClusterDemand {
    /// In force, by key.
    pub(super) needs: BTreeMap<RowKey, Arc<Need>>,
    /// The profiles of these, and how many rows each has.
    pub(super) profiles: BTreeMap<Fingerprint, (Arc<Profile>, usize)>,
    /// How the last roll-up differs from what is in force; `None` takes a row out. Empty unless it is held.
    held: BTreeMap<RowKey, Option<Arc<Need>>>,
    /// The last roll-up, held or not: its stream and its number there.
    last: Option<(SessionId, u64)>,
    size: Size,
    guard: Guard,
    /// When the roll-up in force came.
    pub(super) accepted: Option<UnixNanos>,
    pub(super) heard: bool,
    /// A first, empty roll-up that came before the inventory: whether it is suspicious cannot be told yet.
    waiting: Option<(SessionId, i64)>,
    /// The series of its age, once there is one.
    age: Option<FloatGauge>,
}

impl ClusterDemand {
    /// Takes in what a roll-up says. `false`: it builds on one that was never here.
    fn offer(&mut self, session: SessionId, change: Change) -> bool {
        let Change { number, whole, changed, removed } = change;
        if !whole && self.last != Some((session, number.wrapping_sub(1))) {
            return false;
        }
        self.last = Some((session, number));
        if whole {
            self.held.clear();
            self.size = Size::default();
            let mut gone = self.needs.clone();
            for need in changed {
                self.size.add(&need, 1);
                let key = row_key(&need);
                if gone.remove(&key).is_none_or(|known| known != need) {
                    self.held.insert(key, Some(need));
                }
            }
            self.held.extend(gone.into_keys().map(|key| (key, None)));
            return true;
        }
        let after = changed.into_iter().map(|need| (row_key(&need), Some(need)));
        for (key, need) in after.chain(removed.into_iter().map(|key| (key, None))) {
            let in_force = self.needs.get(&key);
            let before = self.held.get(&key).map_or(in_force, Option::as_ref);
            before.into_iter().for_each(|before| self.size.add(before, -1));
            need.iter().for_each(|need| self.size.add(need, 1));
            if need.as_ref() == in_force {
                self.held.remove(&key);
            } else {
                self.held.insert(key, need);
            }
        }
        true
    }

    /// Puts the last roll-up in force; gives what that changed.
    fn take_over(&mut self, tally: &mut Rows) -> (Vec<Arc<Need>>, Vec<RowKey>) {
        let (mut changed, mut removed) = (Vec::new(), Vec::new());
        for (key, need) in std::mem::take(&mut self.held) {
            if let Some(need) = &need {
                tally.count(need, 1);
                let profile = self.profiles.entry(key.0).or_insert_with(|| (need.profile.clone(), 0));
                profile.1 += 1;
            }
            let before = match &need {
                Some(need) => self.needs.insert(key.clone(), need.clone()),
                None => self.needs.remove(&key),
            };
            if let Some(before) = before {
                tally.count(&before, -1);
                if let Entry::Occupied(mut profile) = self.profiles.entry(key.0) {
                    profile.get_mut().1 -= 1;
                    if profile.get().1 == 0 {
                        profile.remove();
                    }
                }
            }
            match need {
                Some(need) => changed.push(need),
                None => removed.push(key),
            }
        }
        (changed, removed)
    }
}

/// How many rows there are in force.
#[derive(Debug, Default)]
pub(super) struct Rows {
    all: i64,
    by_interruption: [i64; 28],
}

impl Rows {
    fn count(&mut self, need: &Need, sign: i64) {
        self.all += sign;
        self.by_interruption[usize::from(need.profile.interruption().number())] += sign;
    }
}

/// The demand of all clusters.
#[derive(Debug, Default)]
pub(super) struct Demand {
    clusters: BTreeMap<ClusterId, ClusterDemand>,
    rows: Rows,
}

impl Demand {
    pub(super) fn get(&self, cluster: &ClusterId) -> Option<&ClusterDemand> {
        self.clusters.get(cluster)
    }

    /// All clusters that have sent anything, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ClusterId, &ClusterDemand)> {
        self.clusters.iter()
    }

    /// The series of a cluster are taken out.
    pub(super) fn forget_series(&mut self, cluster: &ClusterId) {
        if let Some(demand) = self.clusters.get_mut(cluster) {
            demand.age = None;
        }
    }
}

impl Control {
    /// A roll-up arrived, or something that should have been one.
    pub(super) fn rollup(
        &mut self,
        now: UnixNanos,
        session: SessionId,
        timestamp: i64,
        rows: Result<Change, String>,
    ) {
        let Some(cluster) = self.sessions.cluster_of(session).cloned() else { return };
        match rows {
            Err(reason) => {
                error!(%cluster, "roll-up refused: {reason}; the demand before stays in force");
                let labels = [("cluster", cluster.to_string())];
                self.metrics.rollups_rejected.get_or_create(&labels).inc();
                self.acknowledge(session, "rollup_rejected", timestamp, reason);
            }
            Ok(change) => {
                let ready = self.ready();
                let demand = self.demand.clusters.entry(cluster.clone()).or_default();
                let number = change.number;
                if !demand.offer(session, change) {
                    error!(%cluster, number, "a roll-up builds on one that never came; the session ends, a whole one follows");
                    self.outputs.push_back(Output::Close { session, reason: CloseReason::OutOfStep });
                    return;
                }
                if demand.size.rows() == 0 && !ready && !demand.guard.has_baseline() {
                    demand.waiting = Some((session, timestamp));
                    return;
                }
                demand.waiting = None;
                self.ingest(now, session, timestamp, &cluster);
            }
        }
    }

    /// The inventory is there: roll-ups that waited for it can be judged.
    pub(super) fn ingest_waiting(&mut self, now: UnixNanos) {
        let waiting: Vec<_> = self
            .demand
            .clusters
            .iter_mut()
            .filter_map(|(cluster, demand)| Some((cluster.clone(), demand.waiting.take()?)))
            .collect();
        for (cluster, (session, timestamp)) in waiting {
            self.ingest(now, session, timestamp, &cluster);
        }
    }

    /// Judges the last roll-up of a cluster.
    fn ingest(&mut self, now: UnixNanos, session: SessionId, timestamp: i64, cluster: &ClusterId) {
        let configured = self.fleet.configured(cluster);
        let Demand { clusters, rows: tally } = &mut self.demand;
        let demand = clusters.entry(cluster.clone()).or_default();
        let (size, rows) = (demand.size, demand.size.rows());
        let judgement = match self.config.empty_rollup_guard {
            true => demand.guard.judge(size, configured),
            false => Judgement::Accept,
        };
        let labels = [("cluster", cluster.to_string())];
        let quarantined = self.metrics.rollup_quarantined.get_or_create_owned(&labels);
        quarantined.set(i64::from(demand.guard.held()));
        let (accept, heard) = match judgement {
            Judgement::Accept => (true, true),
            Judgement::Confirmed => {
                warn!(%cluster, rows, "a suspiciously small roll-up was confirmed; taken over");
                (true, true)
            }
            Judgement::Hold { heard } => {
                warn!(
                    %cluster, rows, held = demand.guard.held(), configured,
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
            let age = || self.metrics.rollup_age_seconds.get_or_create_owned(&labels).clone();
            demand.age.get_or_insert_with(age);
            let (changed, removed) = demand.take_over(tally);
            if !(changed.is_empty() && removed.is_empty()) {
                self.bootstraps.demanded(cluster, &demand.profiles);
                let cluster = cluster.clone();
                self.engine.apply(Event::DemandChanged { cluster, changed, removed, at: now });
            }
            self.dirty = true;
        }
        let held = if accept { String::new() } else { "held: far less than before".to_owned() };
        self.acknowledge(session, "rollup", timestamp, held);
    }

    /// Writes the gauges of demand.
    pub(super) fn publish_demand(&self, now: UnixNanos) {
        for (cluster, demand) in &self.demand.clusters {
            if let (Some(accepted), Some(age)) = (demand.accepted, &demand.age)
                && !self.sessions.is_forgotten(cluster)
            {
                age.set(now.since(accepted).as_secs_f64());
            }
        }
        let Rows { all, by_interruption } = &self.demand.rows;
        for (label, count) in BUCKETS.iter().zip(by_interruption) {
            let labels = [("interruption_penalty_bucket", *label)];
            self.metrics.demand_machines.get_or_create(&labels).set(*count);
        }
        self.metrics.demand_rows.set(*all);
        let unheard = self.fleet.holders().filter(|c| !self.demand.get(c).is_some_and(|d| d.heard));
        self.metrics.unreported_clusters.set(i64::try_from(unheard.count()).unwrap_or(i64::MAX));
    }
}
