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
            let inside = terrain.candidates(pass, row, domain.value, *tier);
            terrain::give_back(pass, sight, terrain);
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
struct Loan {
    key: (ProfileIx, Tier, LaneSet),
    queue: Queue<AcquireKey>,
}

impl Loan {
    /// Keeps the candidates for the next Need that sees the same order.
    fn give_back(self, pass: &mut Pass<'_>) {
        pass.candidates.insert(self.key, self.queue);
    }
}

/// The pools of a tier that match, in the order of acquisition.
fn candidates(pass: &mut Pass<'_>, row: &Row, tier: Tier) -> Loan {
    let requested = pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit);
    let key = (row.profile, tier, requested);
    let known = pass.candidates.remove(&key);
    let mut queue = known.unwrap_or_else(|| {
        lookout::in_order(pass, row, &key.2, |pass, order| Queue::new(pass, pools(pass, order, tier)))
    });
    queue.refresh(pass, |pass, pool| {
        (pass.fleet.pools.get(pool).place == tier.place())
            .then(|| lookout::key_of(pass, row, &key.2, pool))
            .flatten()
    });
    Loan { key, queue }
}

/// The pools of a tier, in order.
pub(super) fn pools<'p>(
    pass: &'p Pass<'_>,
    order: &'p lookout::Order,
    tier: Tier,
) -> impl Iterator<Item = (AcquireKey, PoolIx)> {
    let pool = move |class| pass.fleet.pools.find(class, tier.place());
    order.classes.iter().filter_map(move |(key, class)| Some((*key, pool(*class)?)))
}
