//! Acquisition: free machines, Idle ones before any that must be bought, cheapest first.

use super::queue::Queue;
use super::{Work, lookout, terrain, trim};
use crate::cost::AcquireKey;
use crate::demand::Row;
use crate::lanes::LaneSet;
use crate::matching::ProfileIx;
use crate::members::{PoolIx, Slot};
use crate::pass::{Domain, Pass, Step, Tier};

/// What an acquisition is confined to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within {
    /// A gang's domain.
    pub(super) domain: Option<Domain>,
    /// Whether machines may be bought. Nobody but gangs goes without.
    pub(super) buys: bool,
}

impl Within {
    /// Anywhere, Speculative machines included.
    pub(super) const ANYWHERE: Self = Self { domain: None, buys: true };

    fn tiers(self) -> &'static [Tier] {
        if self.buys { &Tier::ALL } else { &[Tier::Idle] }
    }
}

/// Claims free machines until the Need is covered or nothing helps. Gives them in the order taken.
pub(super) fn acquire(pass: &mut Pass<'_>, row: &Row, work: &mut Work, within: Within) -> Vec<Slot> {
    let mut taken = Vec::new();
    if work.remaining.is_zero() {
        return taken;
    }
    let missing = work.remaining.clone();
    let visit = |pass: &mut Pass<'_>, slot: Slot, pool: PoolIx| {
        if work.remaining.is_zero() {
            return Step::Stop;
        }
        let capacity = pass.fleet.classes.capacity(pass.fleet.class_of(pool));
        let worth = row.worth(capacity);
        if !capacity.covers(&row.min_unit) || !worth.reduces(&work.remaining) {
            return Step::SkipPool;
        }
        work.remaining.subtract(&worth);
        pass.claim_in(slot, pool);
        taken.push(slot);
        Step::Claimed
    };
    if let Some(domain) = within.domain {
        let (sight, terrain) = terrain::borrow(pass, row, domain.key);
        let inside = terrain.candidates(pass, row, domain.value, within.tiers());
        terrain::give_back(pass, sight, terrain);
        pass.walk(&inside, visit);
    } else {
        let (key, mut candidates) = candidates(pass, row);
        candidates.walk(pass, visit);
        // For the next Need that sees the same order.
        pass.candidates.insert(key, candidates);
    }
    if work.remaining.is_zero() {
        for slot in trim::surplus(pass, row, &missing, &mut taken) {
            pass.unclaim(slot);
        }
    }
    taken
}

/// All free pools that match, in the order of acquisition.
fn candidates(pass: &mut Pass<'_>, row: &Row) -> ((ProfileIx, LaneSet), Queue<AcquireKey>) {
    let key = (row.profile, pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit));
    let known = pass.candidates.remove(&key);
    let mut queue = known.unwrap_or_else(|| {
        let order = lookout::in_order(pass, row, &key.1);
        Queue::new(pass, order)
    });
    queue.refresh(pass, |pass, pool| lookout::key_of(pass, row, &key.1, pool));
    (key, queue)
}
