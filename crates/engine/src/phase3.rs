//! Phase 3: what no Need claims goes. Configured machines are reclaimed, Idle ones given back when their hold ends.

mod holds;

use std::cmp::Reverse;
use std::time::Duration;

use bigfleet_types::UnixNanos;

pub(crate) use self::holds::Holds;
use crate::claims::Claims;
use crate::decision::{Action, ActionKind};
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, Symbols};
use crate::members::Slot;
use crate::phase2::Taken;
use crate::place::Place;
use crate::policy::Policy;

/// What the phase found.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Reclaims by cluster and release order, then Deletes by id.
    pub(crate) actions: Vec<Action>,
    /// The earliest time after this pass at which more would go, if nothing else changed.
    pub(crate) next_deadline: Option<UnixNanos>,
    /// At how many machines the phase looked.
    pub(crate) looked_at: u64,
}

/// Configured machines of a cluster that nobody claims.
#[derive(Debug, Default)]
pub(crate) struct Excess {
    slots: Vec<Slot>,
    /// Since when the first of them waits that may go.
    earliest: Option<UnixNanos>,
}

impl Excess {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Releases {
    /// Whether a wait is over; notes its end when it is not.
    fn is_due(&mut self, since: UnixNanos, wait: Duration, now: UnixNanos) -> bool {
        let is_over = now.since(since) >= wait;
        if !is_over {
            let end = since.after(wait);
            self.next_deadline = Some(self.next_deadline.map_or(end, |earliest| earliest.min(end)));
        }
        is_over
    }
}

/// Finds the excess of a cluster: Configured machines that nobody claims, once it has spoken. Starts their clocks and
/// stops those of all others. Says at how many machines it looked.
pub(crate) fn find_excess(
    fleet: &mut Fleet,
    claims: &Claims,
    cluster: ClusterIx,
    spoken: bool,
    now: UnixNanos,
    excess: &mut Excess,
) -> u64 {
    excess.slots.clear();
    excess.earliest = None;
    let mut looked_at = 0;
    for listed in 0..fleet.pools.bound(cluster).len() {
        let ix = fleet.pools.bound(cluster)[listed];
        if !fleet.pools.has_clocks(ix) && (!spoken || claims.free(ix) == 0) {
            continue;
        }
        if matches!(fleet.place(ix), Place::Bound(binding) if binding.configuring) {
            continue;
        }
        let mut clocks = false;
        let pool = fleet.pools.get(ix);
        looked_at += pool.members().len() as u64;
        for at in 0..pool.members().len() {
            let slot = fleet.pools.get(ix).members()[at];
            // The clock stands still while demand that is not known does not make a machine excess.
            if claims.has(slot) || !spoken {
                fleet.clear_excess(slot);
                continue;
            }
            clocks = true;
            let since = fleet.start_excess(slot, now);
            excess.slots.push(slot);
            if fleet.releasable(slot) {
                excess.earliest = Some(excess.earliest.map_or(since, |earliest| earliest.min(since)));
            }
        }
        fleet.pools.set_clocks(ix, clocks);
    }
    looked_at
}

/// Runs the phase over the excess of all clusters and the Idle machines with a hold.
#[allow(clippy::too_many_arguments, reason = "all that the other phases left")]
pub(crate) fn run<'e>(
    fleet: &mut Fleet,
    symbols: &Symbols,
    claims: &Claims,
    taken: &Taken,
    excess: impl Iterator<Item = &'e Excess>,
    holds: &Holds,
    policy: &Policy,
    now: UnixNanos,
) -> Releases {
    let mut releases = Releases::default();
    let (mut reclaims, mut deletes): (Vec<Slot>, Vec<Slot>) = Default::default();
    for Excess { slots, earliest } in excess {
        let Some(earliest) = *earliest else { continue };
        // Where the first is not due no other is. Those that are taken do not wait.
        if taken.is_empty() && !releases.is_due(earliest, policy.reclaim_after, now) {
            continue;
        }
        releases.looked_at += slots.len() as u64;
        for slot in slots {
            // It runs, unless it was started at the very time that means never.
            let since = fleet.start_excess(*slot, now);
            if fleet.releasable(*slot)
                && !taken.has(*slot)
                && releases.is_due(since, policy.reclaim_after, now)
            {
                reclaims.push(*slot);
            }
        }
    }
    for slot in holds.in_order() {
        releases.looked_at += 1;
        let Some((since, hold)) = holds::hold(fleet, slot, policy) else { continue };
        if claims.has(slot) || taken.has(slot) {
            continue;
        }
        if releases.is_due(since, hold, now) {
            deletes.push(slot);
        } else if since.after(hold) > now {
            // All others end later.
            break;
        }
    }
    reclaims.sort_by_cached_key(|slot| {
        let pool = fleet.pool(*slot);
        let (cluster, reclamation) = match fleet.place(pool) {
            Place::Bound(binding) => (Some(symbols.rank(binding.cluster)), Some(binding.reclamation)),
            _ => (None, None),
        };
        (cluster, Reverse(fleet.price(pool)), reclamation, Reverse(fleet.rank(*slot)))
    });
    deletes.sort_unstable_by_key(|slot| fleet.rank(*slot));
    let reclaims = reclaims.iter().map(|slot| (ActionKind::Reclaim, *slot, policy.reclaim_grace));
    let deletes = deletes.iter().map(|slot| (ActionKind::Delete, *slot, Duration::ZERO));
    let actions =
        reclaims.chain(deletes).map(|(kind, slot, grace)| action(fleet, symbols, kind, slot, grace));
    releases.actions = actions.collect();
    releases
}

fn action(fleet: &Fleet, symbols: &Symbols, kind: ActionKind, slot: Slot, grace: Duration) -> Action {
    let cluster = fleet.cluster(slot).filter(|_| kind == ActionKind::Reclaim);
    Action {
        kind,
        machine: fleet.ids.id(slot),
        cluster: cluster.map(|cluster| symbols.name(cluster).clone()),
        need: None,
        need_key: None,
        grace,
        preemptor_priority: 0,
    }
}
