//! Enforced topology spread: no domain gets further ahead of the emptiest one than the Need allows.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::queue::{Aside, Order, Queue};
use super::{Work, lookout};
use crate::class::ClassIx;
use crate::cost::AcquireKey;
use crate::demand::Row;
use crate::intern::{Map, Set, ValueIx};
use crate::lanes::LaneSet;
use crate::matching::SpreadRule;
use crate::members::Slot;
use crate::pass::{Pass, Tier};

/// How a Need's machines lie in the domains of every rule.
#[derive(Debug)]
pub(crate) struct Spread {
    rules: SmallVec<[Tally; 1]>,
}

#[derive(Debug)]
struct Tally {
    rule: SpreadRule,
    counts: Map<ValueIx, usize>,
    /// The domains that must not fall behind.
    universe: Set<ValueIx>,
    /// The smallest count of the universe.
    fewest: usize,
}

impl Tally {
    fn count(&self, value: ValueIx) -> usize {
        self.counts.get(&value).copied().unwrap_or(0)
    }

    fn measure(&mut self) {
        self.fewest = self.universe.iter().map(|value| self.count(*value)).min().unwrap_or(usize::MAX);
    }
}

impl Spread {
    /// The spread of machines that a Need has already.
    pub(crate) fn of(pass: &Pass<'_>, row: &Row, machines: impl Iterator<Item = Slot>) -> Self {
        let rules = pass.matching.spread(row.profile).iter().map(|rule| Tally {
            rule: *rule,
            counts: Map::default(),
            universe: Set::default(),
            fewest: 0,
        });
        let mut spread = Self { rules: rules.collect() };
        let free = free_universe(pass, row);
        for (tally, free) in spread.rules.iter_mut().zip(free.iter()) {
            let home = home(pass, row).filter_map(|class| pass.fleet.classes.domain(class, tally.rule.key));
            tally.universe = free.iter().copied().chain(home).collect();
            tally.measure();
        }
        machines.for_each(|slot| spread.add(pass, pass.fleet.class(slot), false));
        spread
    }

    /// Counts one machine more. `opens`: its domains exist even if no machine that could serve the Need is there.
    pub(crate) fn add(&mut self, pass: &Pass<'_>, class: ClassIx, opens: bool) {
        for tally in &mut self.rules {
            if let Some(value) = pass.fleet.classes.domain(class, tally.rule.key) {
                *tally.counts.entry(value).or_default() += 1;
                if opens {
                    tally.universe.insert(value);
                }
                tally.measure();
            }
        }
    }

    /// Whether one machine more of this class keeps every rule.
    pub(crate) fn allows(&self, pass: &Pass<'_>, class: ClassIx) -> bool {
        self.rules.iter().all(|tally| {
            let value = pass.fleet.classes.domain(class, tally.rule.key);
            value.is_some_and(|value| {
                let count = tally.count(value);
                count < tally.fewest.min(count).saturating_add(tally.rule.skew)
            })
        })
    }
}

/// By rule: the domains of a Need's free machines.
pub(crate) type Universe = Rc<[Box<[ValueIx]>]>;

/// The domains with a free machine that could serve the Need, claimed or not: the same for all Needs of its profile
/// and floor, in all of a pass.
fn free_universe(pass: &Pass<'_>, row: &Row) -> Universe {
    let key = (row.profile, row.min_unit.clone());
    if let Some(known) = pass.universes.borrow().get(&key) {
        return known.clone();
    }
    let classes = &pass.fleet.classes;
    let free: Vec<ClassIx> = pass
        .matching
        .classes(row.profile)
        .iter()
        .copied()
        .filter(|class| {
            let class = classes.get(*class);
            class.supply.is_free() && class.traits.capacity.covers(&row.min_unit)
        })
        .collect();
    let domains = |rule: &SpreadRule| {
        let values: Set<ValueIx> = free.iter().filter_map(|class| classes.domain(*class, rule.key)).collect();
        values.into_iter().collect()
    };
    let universe: Universe = pass.matching.spread(row.profile).iter().map(domains).collect();
    pass.universes.borrow_mut().insert(key, universe.clone());
    universe
}

/// The classes with a machine that could serve the Need and is bound to its cluster or being created for it, claimed
/// or not.
fn home(pass: &Pass<'_>, row: &Row) -> impl Iterator<Item = ClassIx> {
    let (pools, classes) = (&pass.fleet.pools, &pass.fleet.classes);
    let all = pools.bound(row.cluster).iter().chain(pools.own_creating(row.cluster, row.stamp));
    all.map(|ix| pools.get(*ix).class).filter(|class| {
        pass.matching.matches(row.profile, *class) && classes.capacity(*class).covers(&row.min_unit)
    })
}

/// The order of candidates of a tier: the usual one, then the texts of the domains, one per rule. Ids break ties.
pub(crate) type Key<'a> = (AcquireKey, SmallVec<[Option<&'a str>; 1]>);

/// Claims free machines one by one, each the first that the spread allows, until the Need is covered or nothing goes.
/// Gives them in the order taken.
pub(super) fn acquire<'a>(pass: &mut Pass<'a>, row: &Row, work: &mut Work) -> Vec<Slot> {
    let mut taken = Vec::new();
    if work.remaining.is_zero() {
        return taken;
    }
    let mut spread = Spread::of(pass, row, work.credited.iter().copied());
    let requested = pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit);
    let key = (row.profile, requested);
    let known = pass.spread_candidates.remove(&key);
    let mut candidates = known.unwrap_or_else(|| collect(pass, row, &key.1));
    candidates.refresh(pass, |pass, pool| {
        let (tier, cost) = lookout::key_of(pass, row, &key.1, pool)?;
        Some((tier, (cost, texts(pass, row, pass.fleet.class_of(pool)))))
    });
    let mut aside = Aside::default();
    while !work.remaining.is_zero() {
        let allows = |pass: &Pass<'_>, class: ClassIx| spread.allows(pass, class);
        let helps = |pass: &Pass<'_>, class: ClassIx| {
            let capacity = pass.fleet.classes.capacity(class);
            capacity.covers(&row.min_unit) && row.worth(capacity).reduces(&work.remaining)
        };
        let Some(slot) = candidates.first(pass, allows, helps, &mut aside) else { break };
        pass.claim(slot);
        spread.add(pass, pass.fleet.class(slot), false);
        work.remaining.subtract(&row.worth(pass.fleet.capacity(slot)));
        taken.push(slot);
    }
    candidates.take_back(aside);
    pass.spread_candidates.insert(key, candidates);
    taken
}

/// All free pools that match, in order. Pools of equal keys lie in the same domains.
fn collect<'a>(pass: &mut Pass<'a>, row: &Row, requested: &LaneSet) -> Queue<Key<'a>> {
    let order = lookout::in_order(pass, row, requested);
    let key = |(tier, cost): &(Tier, AcquireKey), class| (*tier, (*cost, texts(pass, row, class)));
    let mut sorted: Vec<_> = order.iter().map(|(place, class)| (key(place, class), class)).collect();
    sorted.sort_unstable();
    Queue::new(pass, Arc::new(Order::of(sorted)))
}

fn texts<'a>(pass: &Pass<'a>, row: &Row, class: ClassIx) -> SmallVec<[Option<&'a str>; 1]> {
    let (symbols, fleet) = (pass.symbols, pass.fleet);
    let text = |rule: &SpreadRule| {
        let value = fleet.classes.domain(class, rule.key)?;
        symbols.value_text(value).map(|text| &**text)
    };
    pass.matching.spread(row.profile).iter().map(text).collect()
}
