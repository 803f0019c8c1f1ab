//! Phase 3: what no Need claims goes. Configured machines are reclaimed, Idle ones given back when their hold ends.

use std::cmp::Reverse;
use std::time::Duration;

use bigfleet_types::UnixNanos;

use crate::decision::{Action, ActionKind};
use crate::fleet::Fleet;
use crate::intern::Symbols;
use crate::members::{PoolIx, Slot};
use crate::pass::Claims;
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

/// Runs the phase. `heard` is by cluster: it has spoken.
pub(crate) fn run(
    fleet: &mut Fleet,
    symbols: &Symbols,
    claims: &Claims,
    taken: &Taken,
    heard: &[bool],
    policy: &Policy,
    now: UnixNanos,
) -> Releases {
    let mut releases = Releases::default();
    let (mut excess, mut deletes): (Vec<Slot>, Vec<Slot>) = Default::default();
    for position in 0..fleet.pools.len() {
        let ix = PoolIx::new(position);
        match fleet.place(ix) {
            Place::Bound(binding) if !binding.configuring => {
                let spoken = heard[binding.cluster.at()];
                if !fleet.pools.get(ix).clocks && (!spoken || claims.free(ix) == 0) {
                    continue;
                }
                let mut clocks = false;
                releases.looked_at += fleet.pools.get(ix).members().len() as u64;
                for at in 0..fleet.pools.get(ix).members().len() {
                    let slot = fleet.pools.get(ix).members()[at];
                    // The clock stands still while demand that is not known does not make a machine excess.
                    if claims.has(slot) || !spoken {
                        fleet.clear_excess(slot);
                        continue;
                    }
                    clocks = true;
                    let since = fleet.start_excess(slot, now);
                    if fleet.releasable(slot)
                        && !taken.has(slot)
                        && releases.is_due(since, policy.reclaim_after, now)
                    {
                        excess.push(slot);
                    }
                }
                fleet.pools.set_clocks(ix, clocks);
            }
            Place::Idle | Place::Held if claims.free(ix) > 0 => {
                let Some(hold) = policy.idle_hold(fleet.capacity_type(ix)) else { continue };
                releases.looked_at += fleet.pools.get(ix).members().len() as u64;
                for slot in fleet.pools.get(ix).members() {
                    if !claims.has(*slot)
                        && fleet.releasable(*slot)
                        && !taken.has(*slot)
                        && fleet.idle_since(*slot).is_some_and(|since| releases.is_due(since, hold, now))
                    {
                        deletes.push(*slot);
                    }
                }
            }
            _ => {}
        }
    }
    let ranks = symbols.cluster_ranks();
    excess.sort_by_cached_key(|slot| {
        let pool = fleet.pool(*slot);
        let (cluster, reclamation) = match fleet.place(pool) {
            Place::Bound(binding) => (Some(ranks[binding.cluster.at()]), Some(binding.reclamation)),
            _ => (None, None),
        };
        (cluster, Reverse(fleet.price(pool)), reclamation, Reverse(fleet.rank(*slot)))
    });
    deletes.sort_unstable_by_key(|slot| fleet.rank(*slot));
    let reclaims = excess.iter().map(|slot| (ActionKind::Reclaim, *slot, policy.reclaim_grace));
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
