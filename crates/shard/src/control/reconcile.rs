//! The full List: what is at rest, and what is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bigfleet_types::{MachineId, UnixNanos};
use tracing::{error, info, warn};

use super::Control;
use super::config::{GUARD_LISTS, GUARD_REMOVALS, SETTLED_FOR};
use super::schedule::Call;
use crate::io::{CallError, Output, Reported};

/// When to ask for a List, and what earlier ones said.
#[derive(Debug)]
pub(super) struct Lists {
    /// When to ask next; `None` while one is on its way.
    pub(super) at: Option<UnixNanos>,
    asked: UnixNanos,
    /// When the last good one came.
    pub(super) last: Option<UnixNanos>,
    failures: u32,
    held: Option<Held>,
    /// Machines that are gone for the provider's Gets, and since when. A List that still shows one is behind.
    pub(super) denied: BTreeMap<MachineId, UnixNanos>,
}

/// Removals that wait for more Lists to agree.
#[derive(Debug)]
struct Held {
    missing: BTreeSet<MachineId>,
    lists: u32,
}

impl Default for Lists {
    fn default() -> Self {
        let long_ago = UnixNanos(i64::MIN);
        Self {
            at: Some(long_ago),
            asked: long_ago,
            last: None,
            failures: 0,
            held: None,
            denied: BTreeMap::new(),
        }
    }
}

impl Control {
    /// Asks for a List, if it is time.
    pub(super) fn ask_for_list(&mut self, now: UnixNanos) {
        if self.stopping || self.lists.at.is_none_or(|at| at > now) {
            return;
        }
        self.lists.at = None;
        self.lists.asked = now;
        let call = self.calls.open(Call::List { generation: self.fleet.generation() });
        self.outputs.push_back(Output::List { call });
    }

    /// A List came back.
    pub(super) fn listed(
        &mut self,
        now: UnixNanos,
        generation: u64,
        result: Result<Vec<Reported>, CallError>,
    ) {
        let records = match result {
            Ok(records) => records,
            Err(cause) => {
                self.lists.failures = self.lists.failures.saturating_add(1);
                let pause =
                    Duration::from_secs(1 << self.lists.failures.min(4)).min(self.config.cycle_interval);
                self.lists.at = Some(now.after(pause));
                warn!(
                    ?cause,
                    ready = self.ready(),
                    "the provider's List failed; the last known inventory stays"
                );
                return;
            }
        };
        self.lists.failures = 0;
        let next = self.lists.asked.after(self.config.cycle_interval);
        self.lists.at = Some(next.max(now));
        let first = self.lists.last.is_none();
        self.lists.last = Some(now);
        self.lists.denied.retain(|_, since| now.since(*since) < SETTLED_FOR);

        let mut last: HashMap<&MachineId, usize> = HashMap::with_capacity(records.len());
        for (i, id) in records.iter().enumerate().filter_map(|(i, r)| Some((i, r.id.as_ref()?))) {
            if last.insert(id, i).is_some() {
                self.metrics.provider_contract_violations.get_or_create(&[("kind", "duplicate_id")]).inc();
            }
        }
        for (i, reported) in records.iter().enumerate() {
            if reported.id.as_ref().is_none_or(|id| last.get(id) == Some(&i)) {
                self.listed_one(now, generation, reported);
            }
        }
        let missing: BTreeSet<MachineId> = self
            .fleet
            .iter()
            .filter(|(id, record)| {
                !last.contains_key(id) && record.flight.is_none() && record.inserted <= generation
            })
            .map(|(id, _)| id.clone())
            .collect();
        self.missing(now, missing);
        if first {
            info!(machines = self.fleet.len(), "first List applied");
            self.dirty = true;
            self.mark_all_resynced();
            self.ingest_waiting(now);
        }
    }

    /// One record, in the order of its guards.
    fn listed_one(&mut self, now: UnixNanos, generation: u64, reported: &Reported) {
        let ours = reported.id.as_ref().and_then(|id| Some((id, self.fleet.get(id)?)));
        if let Some((id, record)) = ours {
            // Its watch sees more than a List does.
            if record.flight.is_some() {
                return;
            }
            let stale = record.changed > generation;
            let settled = record.settled.is_some_and(|at| now.since(at) < SETTLED_FOR);
            let contradicts = reported.record.as_ref().is_ok_and(|theirs| {
                theirs.state != record.state() || theirs.cluster != record.machine.cluster
            });
            if contradicts && (stale || settled) {
                return self.gets.recheck(id.clone());
            }
            if stale {
                return;
            }
        }
        // One that comes back would else count beside its replacement until the List notices.
        if reported.id.as_ref().is_some_and(|id| self.lists.denied.contains_key(id)) {
            return;
        }
        self.count_violations(reported);
        match &reported.record {
            Ok(machine) => self.adopt(now, machine),
            Err(refused) => self.refuse(now, reported.id.as_ref(), refused),
        }
    }

    /// Machines that this List lacks: gone, unless so many are missing at once that the List is the likelier fault.
    fn missing(&mut self, now: UnixNanos, missing: BTreeSet<MachineId>) {
        let suspicious = missing.len() >= GUARD_REMOVALS && missing.len() * 10 > self.fleet.len();
        let gone = if suspicious {
            let (missing, lists) = match self.lists.held.take() {
                Some(held) => {
                    let both: BTreeSet<_> = held.missing.intersection(&missing).cloned().collect();
                    if both.is_empty() { (missing, 1) } else { (both, held.lists + 1) }
                }
                None => (missing, 1),
            };
            if lists < GUARD_LISTS {
                error!(
                    missing = missing.len(),
                    inventory = self.fleet.len(),
                    lists,
                    "the List lacks many machines; they stay until {GUARD_LISTS} Lists in a row agree"
                );
                self.metrics.removals_quarantined.set(i64::try_from(missing.len()).unwrap_or(i64::MAX));
                self.lists.held = Some(Held { missing, lists });
                return;
            }
            warn!(
                missing = missing.len(),
                "{GUARD_LISTS} Lists in a row lack these machines; they are removed"
            );
            missing
        } else {
            self.lists.held = None;
            missing
        };
        self.metrics.removals_quarantined.set(0);
        for id in gone {
            warn!(machine = %id, "the provider lists this machine no more; removed");
            self.remove(now, &id);
        }
    }
}
