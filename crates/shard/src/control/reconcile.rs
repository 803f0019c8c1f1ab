//! The full List: what is at rest, and what is gone.
//!
//! It comes as a difference from the List before it. A record that says what it said then is looked at again only when our
//! own has changed since, or when it could not be judged then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{Machine, MachineId, UnixNanos};
use tracing::{error, info, warn};

use super::Control;
use super::config::{GUARD_LISTS, GUARD_REMOVALS, SETTLED_FOR};
use super::schedule::Call;
use crate::io::{CallError, Known, Listing, Output, Refused, Reported};

/// When to ask for a List, and what earlier ones said.
#[derive(Debug)]
pub(super) struct Lists {
    /// When to ask next; `None` while one is on its way.
    pub(super) at: Option<UnixNanos>,
    asked: UnixNanos,
    /// When the last good one came.
    pub(super) last: Option<UnixNanos>,
    failures: u32,
    /// What the last good one said; away while one is on its way.
    known: Box<Known>,
    /// Machines that we hold and the last good one lacked.
    absent: BTreeSet<MachineId>,
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
            known: Box::default(),
            absent: BTreeSet::new(),
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
        let known = std::mem::take(&mut self.lists.known);
        self.outputs.push_back(Output::List { call, known });
    }

    /// A List came back.
    pub(super) fn listed(
        &mut self,
        now: UnixNanos,
        generation: u64,
        known: Box<Known>,
        result: Result<Listing, CallError>,
    ) {
        let Listing { whole, changed, gone, violations } = match result {
            Ok(listing) => listing,
            Err(cause) => {
                self.lists.known = known;
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
        for kind in violations {
            self.metrics.provider_contract_violations.get_or_create(&[("kind", kind)]).inc();
        }

        let mut open = self.fleet.take_open();
        if whole {
            self.fleet.reserve(changed.len().saturating_sub(self.fleet.len()));
        }
        for Reported { id, record, violations } in &changed {
            if let Some(id) = id {
                open.remove(id);
            }
            self.listed_one(now, generation, id.as_ref(), record.as_ref(), violations);
        }
        for id in &open {
            if let Some(machine) = known.get(id) {
                self.listed_one(now, generation, Some(id), Ok(machine), &[]);
            }
        }
        let absent = &mut self.lists.absent;
        if whole {
            *absent = self.fleet.iter().map(|(id, _)| id).filter(|id| !known.contains(id)).cloned().collect();
        } else {
            absent.extend(gone);
            absent.extend(open);
            absent.retain(|id| self.fleet.get(id).is_some() && !known.contains(id));
        }
        let missing = absent.iter().filter(|id| {
            self.fleet.get(id).is_some_and(|record| record.flight.is_none() && record.inserted <= generation)
        });
        let missing: BTreeSet<MachineId> = missing.cloned().collect();
        self.lists.known = known;
        self.missing(now, missing);
        if first {
            info!(machines = self.fleet.len(), "first List applied");
            self.dirty = true;
            self.mark_all_resynced();
            self.ingest_waiting(now);
        }
    }

    /// One record, in the order of its guards.
    fn listed_one(
        &mut self,
        now: UnixNanos,
        generation: u64,
        id: Option<&MachineId>,
        theirs: Result<&Arc<Machine>, &Refused>,
        violations: &[&'static str],
    ) {
        if let Some((id, record)) = id.and_then(|id| Some((id, self.fleet.get(id)?))) {
            // Its watch sees more than a List does. When that ends, the next List is heard.
            if record.flight.is_some() {
                return;
            }
            let stale = record.changed > generation;
            let settled = record.settled.is_some_and(|at| now.since(at) < SETTLED_FOR);
            let contradicts = theirs.is_ok_and(|theirs| {
                theirs.state != record.state() || theirs.cluster != record.machine.cluster
            });
            if stale || (contradicts && settled) {
                self.fleet.reopen(id);
                if contradicts {
                    self.gets.recheck(id.clone());
                }
                return;
            }
        }
        // One that comes back would else count beside its replacement until the List notices.
        if let Some(id) = id.filter(|id| self.lists.denied.contains_key(*id)) {
            return self.fleet.reopen(id);
        }
        self.count_violations(violations);
        match theirs {
            Ok(machine) => {
                self.adopt(now, machine);
                self.fleet.settle(&machine.id);
            }
            Err(refused) => self.refuse(now, id, refused),
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
