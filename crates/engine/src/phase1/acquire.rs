//! Acquisition: free machines, Idle ones before any that must be bought, cheapest first.

use super::{Work, trim};
use crate::cost::acquire_key;
use crate::demand::Row;
use crate::members::{Place, Slot};
use crate::pass::{Candidates, Pass, Step, Tier};

/// Claims free machines until the Need is covered or nothing helps. Gives them in the order taken.
pub(super) fn acquire(pass: &mut Pass<'_>, row: &Row, work: &mut Work) -> Vec<Slot> {
    let mut taken = Vec::new();
    if work.remaining.is_zero() {
        return taken;
    }
    let missing = work.remaining.clone();
    let requested = pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit);
    for tier in [Tier::Idle, Tier::Speculative] {
        let key = (row.profile, tier, requested.clone());
        let mut candidates = match pass.candidates.remove(&key) {
            Some(candidates) => candidates,
            None => collect(pass, row, tier, &requested),
        };
        // What the Needs before used up is gone for good: a Need gives back only what it took itself.
        candidates.retain(|(_, pool)| pass.head(*pool).is_some());
        pass.walk(&candidates, |pass, slot, class| {
            if work.remaining.is_zero() {
                return Step::Stop;
            }
            let capacity = pass.fleet.classes.capacity(class);
            if !capacity.covers(&row.min_unit) || !capacity.reduces(&work.remaining) {
                return Step::SkipPool;
            }
            work.remaining.subtract(capacity);
            pass.claim(slot);
            taken.push(slot);
            Step::Claimed
        });
        pass.candidates.insert(key, candidates);
        if work.remaining.is_zero() {
            trim::drop_surplus(pass, &missing, &mut taken);
            break;
        }
    }
    taken
}

fn collect(pass: &Pass<'_>, row: &Row, tier: Tier, requested: &[usize]) -> Candidates {
    let place = match tier {
        Tier::Idle => Place::Idle,
        Tier::Speculative => Place::Speculative,
    };
    let interruption = pass.matching.interruption(row.profile);
    let mut candidates: Candidates = pass
        .matching
        .classes(row.profile)
        .iter()
        .filter_map(|class| {
            let pool = pass.fleet.pools.find(*class, place)?;
            let class = pass.fleet.classes.get(*class);
            Some((acquire_key(class, interruption, requested, &pass.symbols.dimensions), pool))
        })
        .collect();
    candidates.sort_unstable();
    candidates
}
