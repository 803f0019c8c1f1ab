//! Demand: requests into the aggregate, the aggregate into roll-ups, confirmed roll-ups into acknowledgements.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::gate::rollup::MAX_NEEDS;
use bigfleet_proto::v1alpha1::{Acknowledgement, ClusterCapacityNeeds};
use bigfleet_types::UnixNanos;
use prost::Message as _;

use super::Core;
use super::acks::Acks;
use super::cadence::{Cadence, Due};
use super::counters::bump;
use crate::aggregate::{Aggregate, Skip, SkipReason};
use crate::io::{CapacityRequest, Output, Uid};

/// This many roll-ups in a row without an answer: the shard is deaf.
const MISSED: u32 = 6;
/// Roll-ups without an answer that are remembered.
const REMEMBERED: usize = 64;

/// What the cluster wants.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub(super) aggregate: Aggregate,
    /// A list under way.
    listing: Option<Listing>,
    /// Whether the aggregate is the whole demand.
    pub(super) synced: bool,
    /// Numbers the events, so that it is known which of them a roll-up has seen.
    events: u64,
    pub(super) acks: Acks,
    /// Requests that contribute nothing, with the reason that was told.
    skipped: HashMap<Uid, SkipReason>,
    last_timestamp: i64,
}

#[derive(Debug, Default)]
struct Listing {
    aggregate: Aggregate,
    /// What it showed last of each request that counts and is not acknowledged, with the number of that event.
    open: HashMap<Uid, (u64, Arc<CapacityRequest>)>,
    skipped: BTreeSet<Uid>,
}

impl Listing {
    /// The list is complete: what it showed as not acknowledged, in the order of its events.
    fn open(open: HashMap<Uid, (u64, Arc<CapacityRequest>)>) -> Vec<Arc<CapacityRequest>> {
        let mut open: Vec<_> = open.into_values().collect();
        open.sort_unstable_by_key(|(event, _)| *event);
        open.into_iter().map(|(_, request)| request).collect()
    }
}

/// One session, from Hello to its end.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) since: UnixNanos,
    pub(super) cadence: Cadence,
    sent: VecDeque<Sent>,
    /// Whether the shard answers roll-ups at all.
    answers: bool,
    missed: u32,
    dropped: bool,
    /// Whether the shard marked the end of its replay: then it is one that also refreshes its hints.
    pub(super) resynced: bool,
    /// The epoch of the shard's process, once it said it.
    pub(super) epoch: i64,
}

#[derive(Debug)]
struct Sent {
    timestamp: i64,
    /// The last event that it has seen.
    counted: u64,
    written: bool,
}

impl Session {
    pub(super) fn new(now: UnixNanos, interval: Duration) -> Self {
        Self {
            since: now,
            cadence: Cadence::new(now, interval),
            sent: VecDeque::new(),
            answers: false,
            missed: 0,
            dropped: false,
            resynced: false,
            epoch: 0,
        }
    }
}

impl Core {
    pub(super) fn on_request(&mut self, now: UnixNanos, request: &Arc<CapacityRequest>) {
        self.demand.events += 1;
        let target = match &mut self.demand.listing {
            Some(listing) => &mut listing.aggregate,
            None => &mut self.demand.aggregate,
        };
        let change = target.apply(request);
        if change.saturated && change.changed {
            self.counters.amounts_saturated += 1;
            tracing::warn!(name = request.name, "an amount is larger than can be stated and was cut");
        }
        match &change.skip {
            Some(skip) => self.skip(request, skip),
            None => {
                self.demand.skipped.remove(&request.uid);
            }
        }
        let demand = &mut self.demand;
        match &mut demand.listing {
            // The same request may come more than once before the list is complete: the last word counts.
            Some(listing) => {
                listing.open.remove(&request.uid);
                listing.skipped.remove(&request.uid);
                if change.skip.is_some() {
                    listing.skipped.insert(request.uid.clone());
                } else if request.acknowledged {
                    demand.acks.forget(&request.uid);
                } else {
                    listing.open.insert(request.uid.clone(), (demand.events, request.clone()));
                }
            }
            None if change.skip.is_some() => demand.acks.forget(&request.uid),
            None => {
                demand.acks.want(request, demand.events, change.changed);
                if change.grew {
                    self.grew(now);
                }
            }
        }
    }

    /// Tells of a request that contributes nothing, once a reason.
    fn skip(&mut self, request: &CapacityRequest, skip: &Skip) {
        if self.demand.skipped.insert(request.uid.clone(), skip.reason) == Some(skip.reason) {
            return;
        }
        bump(&mut self.counters.requests_skipped, skip.reason.label());
        if skip.reason != SkipReason::Deleted {
            let name = format!("{}/{}", request.namespace, request.name);
            tracing::warn!(
                request = name,
                detail = skip.detail,
                "a CapacityRequest is left out of the roll-up"
            );
            self.event(("CapacityRequest", &name), true, "InvalidCapacityRequest", skip.detail.clone());
        }
    }

    /// A list names a request that cannot be read: it is there, so that what it contributed is not withdrawn.
    pub(super) fn on_request_unreadable(&mut self, uid: &Uid) {
        if let Some(listing) = &mut self.demand.listing {
            listing.aggregate.adopt(&self.demand.aggregate, uid);
        }
    }

    pub(super) fn on_request_gone(&mut self, uid: &Uid) {
        let demand = &mut self.demand;
        demand.events += 1;
        match &mut demand.listing {
            Some(listing) => {
                listing.aggregate.remove(uid);
                listing.open.remove(uid);
                listing.skipped.remove(uid);
            }
            None => {
                demand.aggregate.remove(uid);
                demand.acks.forget(uid);
                demand.skipped.remove(uid);
            }
        }
    }

    pub(super) fn on_listing(&mut self) {
        self.demand.listing = Some(Listing::default());
        self.demand.acks.listing();
    }

    pub(super) fn on_synced(&mut self, now: UnixNanos) {
        let demand = &mut self.demand;
        if let Some(listing) = demand.listing.take() {
            let grew = listing.aggregate.grew_over(&demand.aggregate);
            demand.aggregate = listing.aggregate;
            let fresh = &demand.aggregate;
            demand.acks.retain(|uid| fresh.contains(uid));
            demand.skipped.retain(|uid, _| listing.skipped.contains(uid));
            for request in Listing::open(listing.open) {
                demand.events += 1;
                demand.acks.want(&request, demand.events, true);
            }
            if grew && demand.synced {
                self.grew(now);
            }
        }
        self.demand.synced = true;
    }

    /// Whether what a roll-up would say is all that there is to say.
    pub(super) fn demand_is_known(&self) -> bool {
        self.demand.synced && (self.overhead.known || !self.config.daemonset_overhead)
    }

    pub(super) fn grew(&mut self, now: UnixNanos) {
        if let Some(session) = self.session.as_mut().filter(|_| self.config.rollup_on_increase) {
            session.cadence.grew(now);
        }
    }

    /// Sends a roll-up if one is due.
    pub(super) fn rollup_if_due(&mut self, now: UnixNanos) {
        if !self.demand_is_known() {
            return;
        }
        let Some(session) = self.session.as_mut() else {
            return;
        };
        let Some(due) = session.cadence.due(now) else {
            return;
        };
        session.cadence.went(now, due);
        if due == Due::Tick && session.answers && session.sent.iter().any(|sent| sent.written) {
            session.missed += 1;
            if session.missed >= MISSED && !session.dropped {
                session.dropped = true;
                self.counters.sessions_dropped += 1;
                let reason = format!("the shard has left {MISSED} roll-ups in a row without an answer");
                tracing::error!(reason, "the session is dead");
                self.outputs.push(Output::DropSession { reason });
                return;
            }
        }
        self.send_rollup(now);
    }

    fn send_rollup(&mut self, now: UnixNanos) {
        let rows = self.demand.aggregate.raised_rows(self.overhead.raise);
        if rows.saturated > 0 {
            self.counters.amounts_saturated += rows.saturated;
            tracing::warn!(sums = rows.saturated, "sums are larger than can be stated and were cut");
        }
        let timestamp = now.0.max(self.demand.last_timestamp.saturating_add(1));
        let rollup = ClusterCapacityNeeds {
            cluster_id: self.config.cluster.to_string(),
            timestamp_unix_nanos: timestamp,
            needs: rows.needs,
        };
        let (bytes, needs, most) = (rollup.encoded_len(), rollup.needs.len(), self.config.max_rollup_bytes);
        self.counters.rollup_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.counters.rollup_needs = u64::try_from(needs).unwrap_or(u64::MAX);
        if bytes > most || needs > MAX_NEEDS {
            self.counters.rollups_too_large += 1;
            tracing::error!(
                bytes,
                needs,
                "the roll-up is not sent: at most {most} bytes and {MAX_NEEDS} needs go; the shard keeps the last demand; \
                 let more pods share their constraints"
            );
            return;
        }
        if bytes > most / 4 {
            tracing::warn!(bytes, "the roll-up is above a quarter of the {most} bytes that go");
        }
        self.demand.last_timestamp = timestamp;
        if let Some(session) = &mut self.session {
            if session.sent.len() == REMEMBERED {
                session.sent.pop_front();
            }
            session.sent.push_back(Sent { timestamp, counted: self.demand.events, written: false });
        }
        self.counters.rollups += 1;
        self.outputs.push(Output::Rollup(Box::new(rollup)));
    }

    pub(super) fn on_rollup_written(&mut self, timestamp: i64) {
        let sent = self.session.iter_mut().flat_map(|session| &mut session.sent);
        sent.filter(|sent| sent.timestamp == timestamp).for_each(|sent| sent.written = true);
    }

    /// The shard took a roll-up. What stands in `reason` says that it holds it back: then its table is the old one.
    pub(super) fn on_rollup_acked(&mut self, now: UnixNanos, ack: &Acknowledgement) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        session.answers = true;
        session.missed = 0;
        let position = match ack.rollup_timestamp_unix_nanos {
            // A shard that names none: the newest that has left for it.
            0 => session.sent.iter().rposition(|sent| sent.written),
            named => session.sent.iter().position(|sent| sent.timestamp == named),
        };
        let Some(confirmed) = position.and_then(|at| session.sent.drain(..=at).next_back()) else {
            return;
        };
        if !ack.reason.is_empty() {
            tracing::warn!(
                reason = ack.reason,
                "the shard holds a roll-up back and keeps the demand before it"
            );
            return;
        }
        self.counters.rollup_confirmed_unix_nanos = now.0;
        self.demand.acks.confirm(confirmed.counted, now);
    }

    /// The shard refused a roll-up and keeps the demand that it had.
    pub(super) fn on_rollup_rejected(&mut self, ack: &Acknowledgement) {
        self.counters.rollups_rejected += 1;
        tracing::error!(reason = ack.reason, "the shard refused the roll-up and keeps the demand before it");
        if let Some(session) = self.session.as_mut() {
            session.answers = true;
            session.missed = 0;
            match ack.rollup_timestamp_unix_nanos {
                0 => session.sent.retain(|sent| !sent.written),
                named => session.sent.retain(|sent| sent.timestamp != named),
            }
        }
    }
}
