//! Acquisition: free machines, Idle ones before any that must be bought, cheapest first.

use super::queue::Queue;
use super::{Work, terrain, trim};
use crate::class::ClassIx;
use crate::cost::{AcquireKey, acquire_key};
use crate::demand::Row;
use crate::lanes::LaneSet;
use crate::matching::ProfileIx;
use crate::members::Slot;
use crate::pass::{Candidates, Domain, Pass, Step, Tier};
use crate::place::PlaceIx;

/// What an acquisition is confined to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within {
    /// A gang's domain.
    pub(super) domain: Option<Domain>,
    /// Whether machines may be bought.
    pub(super) buys: bool,
}

impl Within {
    /// Anywhere, Speculative machines included.
    pub(super) const ANYWHERE: Self = Self { domain: None, buys: true };

    pub(super) fn tiers(self) -> &'static [Tier] {
        if self.buys { &[Tier::Idle, Tier::Speculative] } else { &[Tier::Idle] }
    }
}

/// Claims free machines until the Need is covered or nothing helps. Gives them in the order taken.
pub(super) fn acquire(pass: &mut Pass<'_>, row: &Row, work: &mut Work, within: Within) -> Vec<Slot> {
    let mut taken = Vec::new();
    if work.remaining.is_zero() {
        return taken;
    }
    let missing = work.remaining.clone();
    for tier in within.tiers() {
        let visit = |pass: &mut Pass<'_>, slot: Slot, class: ClassIx| {
            if work.remaining.is_zero() {
                return Step::Stop;
            }
            let capacity = pass.fleet.classes.capacity(class);
            let worth = row.worth(capacity);
            if !capacity.covers(&row.min_unit) || !worth.reduces(&work.remaining) {
                return Step::SkipPool;
            }
            work.remaining.subtract(&worth);
            pass.claim(slot);
            taken.push(slot);
            Step::Claimed
        };
        if let Some(domain) = within.domain {
            let (sight, terrain) = terrain::borrow(pass, row, domain.key);
            let inside = terrain.candidates(pass, row, domain.value, *tier);
            pass.terrains.insert(sight, terrain);
            pass.walk(&inside, visit);
        } else {
            let mut all = candidates(pass, row, *tier);
            all.queue.walk(pass, visit);
            all.give_back(pass);
        }
        if work.remaining.is_zero() {
            for slot in trim::surplus(pass, row, &missing, &mut taken) {
                pass.unclaim(slot);
            }
            break;
        }
    }
    taken
}

/// Candidates on loan from the pass.
pub(super) struct Loan {
    key: (ProfileIx, Tier, LaneSet),
    pub(super) queue: Queue<AcquireKey>,
}

impl Loan {
    /// Keeps the candidates for the next Need that sees the same order.
    pub(super) fn give_back(self, pass: &mut Pass<'_>) {
        pass.candidates.insert(self.key, self.queue);
    }
}

/// The pools of a tier that match, in the order of acquisition.
pub(super) fn candidates(pass: &mut Pass<'_>, row: &Row, tier: Tier) -> Loan {
    let requested = pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit);
    let key = (row.profile, tier, requested);
    let mut queue = match pass.candidates.remove(&key) {
        Some(queue) => queue,
        None => {
            let all = collect(pass, row, tier, &key.2);
            Queue::new(pass, all)
        }
    };
    queue.refresh(pass);
    Loan { key, queue }
}

fn collect(pass: &Pass<'_>, row: &Row, tier: Tier, requested: &[usize]) -> Candidates {
    let place = match tier {
        Tier::Idle => PlaceIx::IDLE,
        Tier::Speculative => PlaceIx::SPECULATIVE,
    };
    let interruption = pass.matching.interruption(row.profile);
    let candidate = |class: &ClassIx| {
        let pool = pass.fleet.pools.find(*class, place)?;
        let class = pass.fleet.classes.get(*class);
        Some((acquire_key(class, interruption, requested, &pass.symbols.dimensions), pool))
    };
    pass.matching.classes(row.profile).iter().filter_map(candidate).collect()
}
