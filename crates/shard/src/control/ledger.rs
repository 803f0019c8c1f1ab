//! What stays unmet, for how long, and how long it takes to meet it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Shortfall, UnmetReason};
use bigfleet_types::{ClusterId, Fingerprint, Need, NeedKey, Resources, UnixNanos};

use super::inventory::Inventory;
use super::open::Open;
use crate::metrics::Metrics;

/// A deficit that lasts.
#[derive(Debug, Clone)]
pub struct Deficit {
    /// The Need.
    pub need: Arc<Need>,
    /// How much is missing.
    pub deficit: Resources,
    /// When it was first seen.
    pub since: UnixNanos,
    /// Its age in cycle intervals, from 1.
    pub age: u32,
}

/// How many deficits a report tells.
const REPORTED: usize = 100;
/// A deficit of a greater age is not a passing one.
const ESCALATED_ABOVE: u32 = 5;

/// A profile's deficits, of all clusters and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileDeficit {
    /// A Need of the profile.
    pub need: Arc<Need>,
    /// The sum of its deficits.
    pub deficit: Resources,
    /// The age of the oldest, in cycle intervals, from 1.
    pub age: u32,
}

impl ProfileDeficit {
    /// Whether it has lasted so long that somebody should look.
    #[must_use]
    pub fn is_escalated(&self) -> bool {
        self.age > ESCALATED_ABOVE
    }
}

/// Ages and stamps. Nothing here decides anything.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    shortfalls: BTreeMap<NeedKey, Deficit>,
    /// For how many cycle intervals Needs have been unmet. Shared with readers.
    unmet: Arc<BTreeMap<NeedKey, u32>>,
    /// Since when a profile of a cluster waits for a machine.
    waits: BTreeMap<(ClusterId, Fingerprint), UnixNanos>,
    tick: Option<UnixNanos>,
    resources: BTreeSet<String>,
}

impl Ledger {
    /// The shortfalls, by key.
    pub(super) fn shortfalls(&self) -> impl Iterator<Item = (&NeedKey, &Deficit)> {
        self.shortfalls.iter()
    }

    /// The shortfalls by profile: the most important first, of these the oldest, then by fingerprint; at most 100.
    pub(super) fn report(&self) -> Vec<ProfileDeficit> {
        let mut profiles: BTreeMap<Fingerprint, ProfileDeficit> = BTreeMap::new();
        for (key, entry) in &self.shortfalls {
            let reported = profiles.entry(key.fingerprint).or_insert_with(|| ProfileDeficit {
                need: entry.need.clone(),
                deficit: Resources::EMPTY,
                age: 0,
            });
            reported.deficit = reported.deficit.add(&entry.deficit);
            reported.age = reported.age.max(entry.age);
        }
        let mut report: Vec<ProfileDeficit> = profiles.into_values().collect();
        // Profiles came by fingerprint, and this sort keeps that order among equals.
        report.sort_by_key(|reported| Reverse((reported.need.profile.priority(), reported.age)));
        report.truncate(REPORTED);
        report
    }

    /// Takes in a decision. `refused` are deficits that the engine does not know of, or not
    /// all of.
    pub(super) fn update(
        &mut self,
        now: UnixNanos,
        interval: Duration,
        found: &[Shortfall],
        refused: Vec<Shortfall>,
        open: &Open,
        fleet: &Inventory,
    ) -> Arc<BTreeMap<NeedKey, u32>> {
        let ticks = self.ticks(now, interval);
        let mut before = std::mem::take(&mut self.shortfalls);
        let overruled: BTreeSet<NeedKey> = refused.iter().map(|shortfall| shortfall.key.clone()).collect();
        let found = found.iter().filter(|shortfall| !overruled.contains(&shortfall.key));
        for shortfall in found.cloned().chain(refused) {
            let old = before.remove(&shortfall.key);
            let (since, age) = old.map_or((now, 1), |old| (old.since, old.age.saturating_add(ticks)));
            let entry = Deficit { need: shortfall.need, deficit: shortfall.deficit, since, age };
            self.shortfalls.insert(shortfall.key, entry);
        }

        let unmet = open.iter().filter(|verdict| !verdict.satisfied).map(|verdict| verdict.key.clone());
        let ages = unmet.chain(overruled).map(|key| {
            let age = self.unmet.get(&key).map_or(1, |age| age.saturating_add(ticks));
            (key, age)
        });
        self.unmet = Arc::new(ages.collect());
        self.stamp(now, open, fleet);
        self.unmet.clone()
    }

    fn ticks(&mut self, now: UnixNanos, interval: Duration) -> u32 {
        let Some(tick) = self.tick else {
            self.tick = Some(now);
            return 0;
        };
        let nanos = interval.as_nanos().max(1);
        let passed = u32::try_from(now.since(tick).as_nanos() / nanos).unwrap_or(u32::MAX);
        self.tick = Some(tick.after(interval.saturating_mul(passed)));
        passed
    }

    /// Stamps profiles that begin to wait, and forgets those that do not wait any more.
    fn stamp(&mut self, now: UnixNanos, open: &Open, fleet: &Inventory) {
        let mut waiting: BTreeSet<(ClusterId, Fingerprint)> = BTreeSet::new();
        for verdict in open.iter() {
            let key = (verdict.key.cluster.clone(), verdict.key.fingerprint);
            self.waits.entry(key.clone()).or_insert(now);
            waiting.insert(key);
        }
        for (_, flight) in fleet.in_flight() {
            if let Some(key) = flight.work.as_ref().and_then(|work| work.action.need_key.as_ref()) {
                waiting.insert((key.cluster.clone(), key.fingerprint));
            }
        }
        self.waits.retain(|key, _| waiting.contains(key));
    }

    /// A machine joined for a profile. Gives how long the profile waited, once.
    pub(super) fn bound(&mut self, now: UnixNanos, cluster: &ClusterId, stamp: &str) -> Option<Duration> {
        let key = (cluster.clone(), Fingerprint::parse(stamp)?);
        Some(now.since(self.waits.remove(&key)?))
    }

    /// Writes the gauges.
    pub(super) fn publish(&mut self, now: UnixNanos, open: &Open, metrics: &Metrics) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        metrics.shortfalls.set(count(self.shortfalls.len()));
        let mut ages = [("1-9", 0), ("10-59", 0), ("60-299", 0), ("300+", 0)];
        let mut classes = [("critical", 0), ("service", 0), ("batch", 0), ("other", 0)];
        let mut total = Resources::EMPTY;
        for entry in self.shortfalls.values() {
            ages[[10, 60, 300].iter().filter(|bound| entry.age >= **bound).count()].1 += 1;
            let priority = entry.need.profile.priority();
            classes[[1_000_000, 1_000, 100].iter().filter(|bound| priority < **bound).count()].1 += 1;
            total = total.add(&entry.deficit);
        }
        for (bucket, n) in ages {
            metrics.shortfalls_aged.get_or_create(&[("bucket", bucket)]).set(n);
        }
        for (class, n) in classes {
            metrics.shortfalls_by_priority.get_or_create(&[("priority_class", class)]).set(n);
        }
        let oldest = self.shortfalls.values().map(|entry| now.since(entry.since)).max().unwrap_or_default();
        metrics.shortfall_oldest_seconds.set(oldest.as_secs_f64());

        self.resources.extend(total.iter().map(|(name, _)| name.to_string()));
        for name in &self.resources {
            #[allow(clippy::cast_precision_loss, reason = "a gauge; nothing decides by it")]
            let amount = Resources::quantity(name, total.get(name)).nano() as f64 / 1e9;
            metrics.deficit.get_or_create_owned(&[("resource", name.clone())]).set(amount);
        }
        for reason in [
            UnmetReason::Unspecified,
            UnmetReason::PriorityStarved,
            UnmetReason::NoMatchingSupply,
            UnmetReason::TopologyUnsatisfiable,
            UnmetReason::PreemptionExhausted,
        ] {
            let unmet = open.iter().filter(|v| !v.satisfied && v.reason == reason).count();
            metrics.unmet_needs.get_or_create(&[("reason", reason_label(reason))]).set(count(unmet));
        }
    }
}

fn reason_label(reason: UnmetReason) -> &'static str {
    match reason {
        UnmetReason::Unspecified => "unspecified",
        UnmetReason::PriorityStarved => "priority_starved",
        UnmetReason::NoMatchingSupply => "no_matching_supply",
        UnmetReason::TopologyUnsatisfiable => "topology_unsatisfiable",
        UnmetReason::PreemptionExhausted => "preemption_exhausted",
    }
}
