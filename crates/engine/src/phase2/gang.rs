//! Gangs preempt all or nothing, and move to another domain where that is cheaper than not to start at all.

use super::{Pick, Taken, Victims, drains, suits};
use smallvec::SmallVec;

use crate::class::ClassIx;
use crate::demand::Row;
use crate::intern::{ClusterIx, KeyIx, Map, ValueIx};
use crate::lanes::Lanes;
use crate::matching::ProfileIx;
use crate::members::{PoolIx, Slot};
use crate::pass::{Domain, Pass};
use crate::phase1::Outcome;
use crate::place::{Place, PlaceIx};
use crate::policy::Policy;

/// A domain that preemption would complete.
struct Move {
    value: ValueIx,
    /// What the gang has there already.
    have: Vec<Slot>,
    victims: Vec<Slot>,
}

/// Victims in the gang's domain if these cover the deficit; else in the domain where the fewest complete it; else none.
pub(super) fn preempt(
    pass: &mut Pass<'_>,
    row: &Row,
    outcome: &mut Outcome,
    deficit: Lanes,
    victims: &mut Victims,
    taken: &mut Taken,
    policy: &Policy,
) {
    let recorded = outcome.choice.as_ref().and_then(|choice| choice.domain);
    if recorded.is_some() {
        let Pick { slots, left } = victims.pick(pass, row, recorded, None, deficit.clone(), taken, policy);
        if left.is_zero() {
            victims.take(pass, &slots, taken);
            outcome.relief_mut().victims = slots;
            return;
        }
    }
    let Some(key) = pass.matching.same(row.profile) else { return };
    // The domain recorded was tried with what the gang lacks there, and not with what it might have instead.
    let kind = (row.cluster, row.profile, row.min_unit.clone(), recorded.map(|domain| domain.value));
    if deficit == row.aggregate && has_nothing(pass, row) && victims.hopeless.is(&kind, row) {
        outcome.relief_mut().unresolved = Some(deficit);
        return;
    }
    match best_move(pass, row, key, recorded, victims, taken, policy) {
        Some(best) => {
            victims.hopeless = Hopeless::default();
            carry_out(pass, row, outcome, best, victims, taken);
        }
        None => {
            victims.hopeless.add(kind, row);
            outcome.relief_mut().unresolved = Some(deficit);
        }
    }
}

/// A cluster, a profile, a floor and the domain that Phase 1 recorded.
type Kind = (ClusterIx, ProfileIx, Lanes, Option<ValueIx>);

/// Sizes of gangs that could not preempt. While nothing is given back there are ever fewer victims and ever less to
/// have, so a gang of the same kind that comes later, is as large and has nothing of its own cannot, either.
#[derive(Debug, Default)]
pub(super) struct Hopeless {
    sizes: Map<Kind, SmallVec<[Lanes; 2]>>,
}

/// How many sizes of a kind are remembered.
const SIZES: usize = 16;

impl Hopeless {
    fn is(&self, kind: &Kind, row: &Row) -> bool {
        self.sizes.get(kind).is_some_and(|sizes| sizes.iter().any(|size| row.aggregate.covers(size)))
    }

    fn add(&mut self, kind: Kind, row: &Row) {
        let sizes = self.sizes.entry(kind).or_default();
        if sizes.len() < SIZES {
            sizes.push(row.aggregate.clone());
        }
    }
}

/// Whether no machine is bound, being created or draining for the gang.
fn has_nothing(pass: &Pass<'_>, row: &Row) -> bool {
    let pools = &pass.fleet.pools;
    let drains = |ix: &PoolIx| drains::part(row, true, pass.fleet.place(*ix)) == Some(drains::Part::Own);
    !pools.is_stamped(row.stamp) && !pools.draining().iter().any(drains)
}

fn best_move(
    pass: &Pass<'_>,
    row: &Row,
    key: KeyIx,
    recorded: Option<Domain>,
    victims: &mut Victims,
    taken: &Taken,
    policy: &Policy,
) -> Option<Move> {
    let mut had = had(pass, row, key, taken);
    for class in pass.matching.classes(row.profile) {
        // A domain of which the gang has nothing yet is one, too.
        if let Some(value) = pass.fleet.classes.domain(*class, key) {
            had.entry(value).or_default();
        }
    }
    let others = had.into_iter().filter(|(value, _)| Some(*value) != recorded.map(|domain| domain.value));
    let moves = others.filter_map(|(value, have)| {
        let mut gap = row.aggregate.clone();
        have.iter().for_each(|slot| gap.subtract(&row.worth(pass.fleet.capacity(*slot))));
        let pick = victims.pick(pass, row, Some(Domain { key, value }), None, gap, taken, policy);
        pick.left.is_zero().then_some(Move { value, have, victims: pick.slots })
    });
    moves.min_by_key(|to| {
        let claimed = to.victims.iter().filter(|slot| pass.is_claimed(**slot)).count();
        (claimed, to.victims.len(), pass.symbols.value_text(to.value))
    })
}

/// What is the gang's for the taking, by domain.
fn had(pass: &Pass<'_>, row: &Row, key: KeyIx, taken: &Taken) -> Map<ValueIx, Vec<Slot>> {
    let fleet = pass.fleet;
    let mut had: Map<ValueIx, Vec<Slot>> = Map::default();
    let mut look = |ix: PoolIx, is_free: &dyn Fn(Slot) -> bool| {
        let pool = fleet.pools.get(ix);
        if let Some(value) = fleet.classes.domain(pool.class, key) {
            let free = pool.members().iter().copied().filter(|slot| is_free(*slot) && !taken.has(*slot));
            had.entry(value).or_default().extend(free);
        }
    };
    let unclaimed = |slot: Slot| !pass.is_claimed(slot);
    // What an equal or higher one claims is not the gang's; a gang's own claims are elsewhere.
    let outranked = |slot: Slot| {
        let by = pass.claimant(slot).map(|by| by.precedence);
        by.is_none_or(|by| by > row.precedence)
    };
    let matches = |class: ClassIx| pass.matching.matches(row.profile, class);
    for ix in fleet.pools.bound(row.cluster) {
        let pool = fleet.pools.get(*ix);
        let Place::Bound(binding) = fleet.place(*ix) else { continue };
        let usable = binding.stamp == row.stamp || suits(pass, row, pool.class);
        if binding.creditable && usable && matches(pool.class) {
            look(*ix, &outranked);
        }
    }
    for ix in fleet.pools.own_creating(row.cluster, row.stamp) {
        let pool = fleet.pools.get(*ix);
        if fleet.place(*ix).is_creditable() && matches(pool.class) {
            look(*ix, &outranked);
        }
    }
    for class in pass.matching.classes(row.profile).iter().filter(|class| suits(pass, row, **class)) {
        for place in [PlaceIx::IDLE, PlaceIx::SPECULATIVE] {
            if let Some(ix) = fleet.pools.find(*class, place) {
                look(ix, &unclaimed);
            }
        }
    }
    for ix in fleet.pools.draining() {
        let pool = fleet.pools.get(*ix);
        if suits(pass, row, pool.class) && drains::part(row, true, fleet.place(*ix)).is_some() {
            look(*ix, &unclaimed);
        }
    }
    had
}

/// Keeps the new domain for the gang and gives back what it acquired in the old one.
fn carry_out(
    pass: &mut Pass<'_>,
    row: &Row,
    outcome: &mut Outcome,
    to: Move,
    victims: &Victims,
    taken: &mut Taken,
) {
    for slot in &to.have {
        if matches!(pass.fleet.place(pass.fleet.pool(*slot)), Place::Draining(_)) {
            pass.claim(*slot);
        }
    }
    taken.reserved.extend(&to.have);
    outcome.relief_mut().reserved = to.have;
    victims.take(pass, &to.victims, taken);
    let given_up = std::mem::take(&mut outcome.acquired);
    given_up.iter().for_each(|slot| pass.unclaim(*slot));
    outcome.relief_mut().given_up = given_up;
    outcome.residual = row.aggregate.clone();
    outcome
        .credited
        .iter()
        .for_each(|slot| outcome.residual.subtract(&row.worth(pass.fleet.capacity(*slot))));
    outcome.relief_mut().victims = to.victims;
}
