//! The credit walk: machines that the cluster has or gets anyway, its five parts each in keep order.

use super::Work;
use crate::cost::{KeepKey, keep_key};
use crate::demand::Row;
use crate::members::{Place, PoolIx};
use crate::pass::{Pass, Step};

/// A part of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Bound machines stamped for this Need.
    OwnBound,
    /// Bound machines of the cluster whose stamp names no Need of today.
    Orphans,
    /// Machines being created for this Need. After the orphans, so that none of those looks like excess because of
    /// a machine that is not here yet.
    OwnCreating,
    /// Bound machines stamped for another Need of the cluster. After the purchases, which would otherwise be
    /// dropped for a neighbour's machine and bought again by the neighbour.
    Siblings,
    /// Machines being created for nobody known.
    CreatingForAnyone,
}

impl Part {
    pub(super) const ALL: [Self; 5] =
        [Self::OwnBound, Self::Orphans, Self::OwnCreating, Self::Siblings, Self::CreatingForAnyone];

    /// A machine of its own serves a Need even when it is smaller than the largest pod of today.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::OwnBound | Self::OwnCreating)
    }
}

/// The pools of a part that a row may be credited with, in keep order.
pub(super) fn pools(pass: &mut Pass<'_>, row: &Row, part: Part) -> Vec<(KeepKey, PoolIx)> {
    let pools = &pass.fleet.pools;
    let found: Vec<PoolIx> = match part {
        Part::OwnBound => pools.own_bound(row.cluster, row.stamp).to_vec(),
        Part::OwnCreating => pools.own_creating(row.cluster, row.stamp).to_vec(),
        Part::CreatingForAnyone => pools.creating_for_anyone().to_vec(),
        Part::Orphans | Part::Siblings => {
            let demand = pass.demand;
            let wanted = |ix: &PoolIx| match pools.get(*ix).place {
                Place::Bound(binding) => {
                    let live = demand.is_live(binding.cluster, binding.stamp);
                    binding.stamp != row.stamp && live == (part == Part::Siblings)
                }
                _ => false,
            };
            pass.open_pools(row.cluster).iter().copied().filter(wanted).collect()
        }
    };
    let mut keyed: Vec<_> = found
        .into_iter()
        .filter(|ix| {
            let class = pools.get(*ix).class;
            pass.matching.matches(row.profile, class)
                && (part.is_own() || pass.fleet.classes.capacity(class).covers(&row.min_unit))
        })
        .map(|ix| (keep_key(pools.get(ix), &pass.fleet.classes), ix))
        .collect();
    keyed.sort_unstable();
    keyed
}

/// Credits the Need's own bound machines until they cover it.
pub(super) fn own_bound(pass: &mut Pass<'_>, row: &Row, work: &mut Work) {
    credit(pass, row, work, Part::OwnBound);
}

/// Credits the other parts. Nothing of the first can help any more: what was missing then can only have shrunk.
pub(super) fn others(pass: &mut Pass<'_>, row: &Row, work: &mut Work) {
    for part in Part::ALL.into_iter().skip(1) {
        credit(pass, row, work, part);
    }
}

fn credit(pass: &mut Pass<'_>, row: &Row, work: &mut Work, part: Part) {
    if work.remaining.is_zero() {
        return;
    }
    let pools = pools(pass, row, part);
    pass.walk(&pools, |pass, slot, class| {
        if work.remaining.is_zero() {
            return Step::Stop;
        }
        if !pass.fleet.classes.capacity(class).reduces(&work.remaining) {
            return Step::SkipPool;
        }
        work.credit(pass, row, slot);
        Step::Claimed
    });
}
