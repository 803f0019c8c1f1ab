//! Phase 3: what no Need claims goes. Configured machines are reclaimed, Idle ones given back when their hold ends.

use std::cmp::Reverse;
use std::time::Duration;

use bigfleet_types::{MachineState, UnixNanos};

use crate::decision::{Action, ActionKind};
use crate::fleet::Fleet;
use crate::intern::ClusterIx;
use crate::members::Slot;
use crate::phase2::Taken;
use crate::place::stamped_reclamation;
use crate::policy::Policy;

/// What the phase found.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Reclaims by cluster and release order, then Deletes by id.
    pub(crate) actions: Vec<Action>,
    /// The earliest time after this pass at which more would go, if nothing else changed.
    pub(crate) next_deadline: Option<UnixNanos>,
}

impl Releases {
    /// Whether a wait is over; notes its end when it is not.
    fn is_due(&mut self, since: UnixNanos, wait: Duration, now: UnixNanos) -> bool {
        let end = since.after(wait);
        if end > now {
            self.next_deadline = Some(self.next_deadline.map_or(end, |earliest| earliest.min(end)));
        }
        end <= now
    }
}

/// Runs the phase. `claimed` is by slot, `heard` by cluster: it has spoken.
pub(crate) fn run(
    fleet: &mut Fleet,
    claimed: &[bool],
    taken: &Taken,
    heard: &[bool],
    cluster_ranks: &[u32],
    policy: &Policy,
    now: UnixNanos,
) -> Releases {
    let mut releases = Releases::default();
    let (mut excess, mut deletes): (Vec<(ClusterIx, Slot)>, Vec<Slot>) = Default::default();
    for position in 0..fleet.in_id_order().len() {
        let slot = fleet.in_id_order()[position];
        match (fleet.state(slot), fleet.cluster(slot)) {
            (MachineState::Configured, Some(cluster)) => {
                // The clock stands still while demand that is not known does not make a machine excess.
                if claimed[slot.at()] || !heard[cluster.at()] {
                    fleet.clear_excess(slot);
                    continue;
                }
                let since = fleet.start_excess(slot, now);
                if fleet.releasable(slot)
                    && !taken.has(slot)
                    && releases.is_due(since, policy.reclaim_after, now)
                {
                    excess.push((cluster, slot));
                }
            }
            (MachineState::Idle, _) if !claimed[slot.at()] && !taken.has(slot) && fleet.releasable(slot) => {
                let hold = policy.idle_hold(fleet.capacity_type(slot));
                if let (Some(hold), Some(since)) = (hold, fleet.idle_since(slot))
                    && releases.is_due(since, hold, now)
                {
                    deletes.push(slot);
                }
            }
            _ => {}
        }
    }
    excess.sort_by_cached_key(|(cluster, slot)| {
        let reclamation = fleet.machine(*slot).map(|machine| stamped_reclamation(machine));
        (cluster_ranks[cluster.at()], Reverse(fleet.price(*slot)), reclamation, Reverse(fleet.rank(*slot)))
    });
    let reclaims = excess.iter().map(|(_, slot)| (ActionKind::Reclaim, *slot, policy.reclaim_grace));
    let deletes = deletes.iter().map(|slot| (ActionKind::Delete, *slot, Duration::ZERO));
    releases.actions =
        reclaims.chain(deletes).filter_map(|(kind, slot, grace)| action(fleet, kind, slot, grace)).collect();
    releases
}

fn action(fleet: &Fleet, kind: ActionKind, slot: Slot, grace: Duration) -> Option<Action> {
    let machine = fleet.machine(slot)?;
    let cluster = machine.cluster.clone().filter(|_| kind == ActionKind::Reclaim);
    Some(Action {
        kind,
        machine: machine.id.clone(),
        cluster,
        need: None,
        need_key: None,
        grace,
        preemptor_priority: 0,
    })
}
