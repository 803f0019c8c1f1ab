//! Pending drains: what was preempted before and is not Idle yet is not asked for again.

use crate::demand::Row;
use crate::lanes::Lanes;
use crate::members::{PoolIx, Slot};
use crate::pass::{Pass, Step};
use crate::phase1::Outcome;
use crate::place::{Drain, Place};

/// Whose drains come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Own,
    /// Of a Need that mattered as much. It may be gone, and the machine is free for whoever is first.
    AsHigh,
    Unknown,
}

/// Which part of a row's pending drains a place belongs to.
pub(super) fn part(row: &Row, is_gang: bool, place: Place) -> Option<Part> {
    let Place::Draining(drain) = place else { return None };
    match drain {
        Drain::For { cluster, stamp, .. } if (cluster, stamp) == (row.cluster, row.stamp) => Some(Part::Own),
        Drain::For { priority, .. } => {
            (!is_gang && priority >= row.need.profile.priority()).then_some(Part::AsHigh)
        }
        Drain::Unknown => Some(Part::Unknown),
    }
}

/// Takes what drains for the row off its deficit; no other row counts on the same machines. Gives them.
pub(super) fn count_on(pass: &mut Pass<'_>, row: &Row, outcome: &Outcome, deficit: &mut Lanes) -> Vec<Slot> {
    let is_gang = outcome.choice.is_some();
    let domain = outcome.choice.as_ref().and_then(|choice| choice.domain);
    let mut counted = Vec::new();
    if is_gang && domain.is_none() {
        return counted;
    }
    let mut pools: Vec<(Part, PoolIx)> = Vec::new();
    for ix in pass.fleet.pools.draining() {
        let pool = pass.fleet.pools.get(*ix);
        let inside = domain.is_none_or(|domain| domain.has(&pass.fleet.classes, pool.class));
        if let (Some(part), true) =
            (part(row, is_gang, pass.fleet.place(*ix)), inside && super::suits(pass, row, pool.class))
        {
            pools.push((part, *ix));
        }
    }
    pools.sort_unstable();
    pass.walk(&pools, |pass, slot, pool| {
        let worth = row.worth(pass.fleet.classes.capacity(pass.fleet.class_of(pool)));
        if deficit.is_zero() {
            return Step::Stop;
        }
        if !worth.reduces(deficit) {
            return Step::SkipPool;
        }
        deficit.subtract(&worth);
        pass.claim_in(slot, pool);
        counted.push(slot);
        Step::Claimed
    });
    counted
}
