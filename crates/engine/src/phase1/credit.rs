//! The credit walk: machines that the cluster has or gets anyway, its five parts each in keep order.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Work;
use crate::claims::Few;
use crate::class::CapacityIx;
use crate::cost::{KeepKey, keep_key};
use crate::demand::Row;
use crate::lanes::Lanes;
use crate::lines::Standing;
use crate::members::{PoolIx, Slot};
use crate::pass::{Domain, Pass, Step};

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

/// The pools of a part with unclaimed machines that match, in no particular order.
pub(super) fn unordered(pass: &mut Pass<'_>, row: &Row, part: Part) -> Few {
    let fleet = pass.fleet;
    let pools = &fleet.pools;
    let is_useful = |pass: &Pass<'_>, ix: PoolIx| {
        pass.free(ix) > 0
            && pass.matching.matches(row.profile, pools.get(ix).class)
            && fleet.place(ix).is_creditable()
    };
    let listed = match part {
        Part::OwnBound => pools.own_bound(row.cluster, row.stamp),
        Part::OwnCreating => pools.own_creating(row.cluster, row.stamp),
        Part::CreatingForAnyone => pools.creating_for_anyone(),
        Part::Orphans => {
            pass.wake_behind(row);
            return pass.orphans(row);
        }
        Part::Siblings => {
            pass.wake_behind(row);
            return pass.siblings(row);
        }
    };
    listed.iter().copied().filter(|ix| is_useful(pass, *ix)).collect()
}

/// The pools of a part that a row may be credited with, in keep order.
pub(super) fn pools(
    pass: &mut Pass<'_>,
    row: &Row,
    part: Part,
    domain: Option<Domain>,
) -> SmallVec<[(KeepKey, PoolIx); 4]> {
    let found = unordered(pass, row, part);
    let pools = &pass.fleet.pools;
    let mut keyed: SmallVec<[_; 4]> = found
        .into_iter()
        .filter(|ix| {
            let class = pools.get(*ix).class;
            domain.is_none_or(|domain| domain.has(&pass.fleet.classes, class))
                && (part.is_own() || pass.fleet.classes.capacity(class).covers(&row.min_unit))
        })
        .map(|ix| (keep_key(pass.fleet.place(ix), pass.fleet.price(ix)), ix))
        .collect();
    keyed.sort_unstable();
    keyed
}

/// Credits the Need's own bound machines until they cover it. Says whether nobody had taken one of those passed.
pub(super) fn own_bound(pass: &mut Pass<'_>, row: &Row, work: &mut Work) -> bool {
    line(pass, row, work, None)
}

/// Credits machines with the Need's stamps, in the order of their line. Says whether nobody had taken one of those
/// passed.
fn line(pass: &mut Pass<'_>, row: &Row, work: &mut Work, domain: Option<Domain>) -> bool {
    let fleet = pass.fleet;
    let mut undisturbed = true;
    let line = fleet.pools.line(row.cluster, row.stamp);
    // The machines of a line are of few capacities, and those of one mostly stand together.
    let mut worths: SmallVec<[(CapacityIx, Cow<'_, Lanes>, bool); 4]> = SmallVec::new();
    for run in line.chunk_by(|a, b| a.capacity == b.capacity) {
        if work.remaining.is_zero() {
            break;
        }
        let known = worths.iter().position(|(known, ..)| *known == run[0].capacity).unwrap_or_else(|| {
            let capacity = fleet.classes.amounts(run[0].capacity);
            worths.push((run[0].capacity, row.worth(capacity), capacity.covers(&row.min_unit)));
            worths.len() - 1
        });
        let (_, worth, is_large) = &worths[known];
        let most = match run {
            [_] => usize::from(worth.reduces(&work.remaining)),
            _ => work.remaining.units(worth),
        };
        if work.credited.is_empty() {
            work.credited.reserve(most.min(line.len()));
        }
        let before = work.credited.len();
        undisturbed &= pass.claim_first(row, domain, run, most, &mut work.credited);
        let taken = work.credited.len() - before;
        if taken > 0 {
            work.remaining.subtract_times(worth, taken);
            work.floor_met |= *is_large;
        }
    }
    undisturbed
}

/// The first of the Need's own bound machines that nobody claimed and that is as large as its largest pod.
pub(super) fn first_large(pass: &Pass<'_>, row: &Row) -> Option<(Slot, PoolIx)> {
    let is_it = |standing: &&Standing| {
        !pass.is_claimed(standing.slot)
            && pass.matching.matches(row.profile, standing.class)
            && pass.fleet.classes.amounts(standing.capacity).covers(&row.min_unit)
    };
    let found = pass.fleet.pools.line(row.cluster, row.stamp).iter().find(is_it);
    found.map(|standing| (standing.slot, standing.pool))
}

/// Credits the other parts. Nothing of the first can help any more: what was missing then can only have shrunk.
pub(super) fn others(pass: &mut Pass<'_>, row: &Row, work: &mut Work) {
    for part in Part::ALL.into_iter().skip(1) {
        credit(pass, row, work, part, None);
    }
}

/// Credits all parts inside one domain.
pub(super) fn inside(pass: &mut Pass<'_>, row: &Row, work: &mut Work, domain: Domain) {
    for part in Part::ALL {
        credit(pass, row, work, part, Some(domain));
    }
}

fn credit(pass: &mut Pass<'_>, row: &Row, work: &mut Work, part: Part, domain: Option<Domain>) {
    if work.remaining.is_zero() {
        return;
    }
    if part == Part::OwnBound {
        line(pass, row, work, domain);
        return;
    }
    let pools = pools(pass, row, part, domain);
    let fleet = pass.fleet;
    let mut last: Option<(PoolIx, Cow<'_, Lanes>, bool)> = None;
    pass.walk(&pools, |pass, slot, pool| {
        if work.remaining.is_zero() {
            return Step::Stop;
        }
        // The members of a pool are worth the same, and a walk stays in one most of the time.
        let (worth, is_large) = match &last {
            Some((known, worth, is_large)) if *known == pool => (worth, *is_large),
            _ => {
                let capacity = fleet.classes.capacity(fleet.class_of(pool));
                let (_, worth, is_large) =
                    last.insert((pool, row.worth(capacity), capacity.covers(&row.min_unit)));
                (&*worth, *is_large)
            }
        };
        if !worth.reduces(&work.remaining) {
            return Step::SkipPool;
        }
        pass.claim_in(slot, pool);
        work.remaining.subtract(worth);
        work.floor_met |= is_large;
        work.credited.push(slot);
        Step::Claimed
    });
}
