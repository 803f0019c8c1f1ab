//! What became of every machine of the fleet from where one Need stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_types::{EffectiveCost, MachineState, NeedKey, keys};

use super::{ClassExplanation, Fate, NeedExplanation, RIVALS, Rival, Rule, Shape};
use crate::class::ClassIx;
use crate::cost::{AcquireKey, acquire_key};
use crate::demand::Row;
use crate::event::Eligibility;
use crate::intern::{KeyIx, Map, Set};
use crate::lanes::{LaneSet, Lanes};
use crate::members::{PoolIx, Slot};
use crate::pass::Pass;
use crate::phase1::Outcome;
use crate::phase2;
use crate::place::{Binding, Place};

/// How far machines of a class get: they could serve, are too small, or do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Fits,
    BelowFloor,
    Mismatch,
}

/// Sorts classes; machines with equal keys look the same to the Need.
type ClassKey = (Standing, AcquireKey, [Arc<str>; 2], u8, Vec<(String, String)>, Vec<Option<Arc<str>>>, u32);

/// By rule and number of the state.
type FatesOfClass = BTreeMap<(Rule, u8), Fate>;

/// One Need and what the phases left.
pub(super) struct Fates<'p, 'a> {
    pass: &'p Pass<'a>,
    claims: &'p [Option<usize>],
    heard: &'p [bool],
    position: usize,
    row: &'a Row,
    outcome: &'p Outcome,
    /// What the phases did for this Need.
    taken: Map<Slot, Rule>,
    /// What Phase 2 took for Needs that go first.
    taken_before: Set<Slot>,
    /// All that was wanted of Phase 1, after a raise to the floor.
    wanted: Lanes,
    /// What Phase 1 left, before anything was withdrawn.
    left: Lanes,
    /// What drains did not cover of that.
    deficit: Lanes,
    requested: LaneSet,
    /// The keys that the Need mentions and that are not told anyway.
    labels: Vec<(Arc<str>, KeyIx)>,
}

impl<'p, 'a> Fates<'p, 'a> {
    pub(super) fn new(
        pass: &'p Pass<'a>,
        claims: &'p [Option<usize>],
        outcomes: &'p [Outcome],
        heard: &'p [bool],
        position: usize,
    ) -> Self {
        let (row, outcome): (&'a Row, _) = (pass.rows[position], &outcomes[position]);
        let mut taken: Map<Slot, Rule> = Map::default();
        let mut note = |slots: &[Slot], rule: &Rule| {
            slots.iter().for_each(|slot| {
                taken.insert(*slot, rule.clone());
            });
        };
        note(&outcome.credited, &Rule::Credited);
        note(outcome.victims(), &Rule::Preempted);
        note(outcome.reserved(), &Rule::ReservedForMove);
        note(outcome.drains(), &Rule::DrainCounted);
        for slot in &outcome.acquired {
            let idle = pass.fleet.state(*slot) == MachineState::Idle;
            note(&[*slot], if idle { &Rule::Bootstrapped } else { &Rule::Provisioned });
        }
        let missing = super::orders::missing(pass, row, outcome);
        let mut wanted = row.aggregate.clone();
        wanted.raise(&missing);
        let mut left = missing;
        let acquired = pass.fleet.ids.in_order().iter().filter(|slot| {
            claims[slot.at()] == Some(position)
                && matches!(pass.fleet.state(**slot), MachineState::Idle | MachineState::Speculative)
        });
        acquired.for_each(|slot| left.subtract(&row.worth(pass.fleet.capacity(*slot))));
        let mut deficit = left.clone();
        outcome.drains().iter().for_each(|slot| deficit.subtract(&row.worth(pass.fleet.capacity(*slot))));
        let before = outcomes[..position].iter();
        let mentioned = pass.symbols.mentioned_keys();
        let asked: std::collections::BTreeSet<&Arc<str>> = {
            let profile = &row.need.profile;
            let spread = profile.spread().iter().map(|term| &term.topology_key);
            profile.requirements().iter().map(|requirement| &requirement.key).chain(spread).collect()
        };
        let told =
            [keys::INSTANCE_TYPE, keys::INSTANCE_TYPE_BETA, keys::ZONE, keys::ZONE_BETA, keys::CAPACITY_TYPE];
        let labels = asked.into_iter().filter(|key| !told.contains(&&***key)).filter_map(|key| {
            let at = mentioned.iter().position(|known| known == key)?;
            Some((key.clone(), KeyIx::new(at)))
        });
        Self {
            pass,
            claims,
            heard,
            position,
            row,
            outcome,
            taken_before: before.flat_map(|o| o.victims().iter().chain(o.reserved())).copied().collect(),
            taken,
            wanted,
            left,
            deficit,
            requested: pass.symbols.dimensions.extended_in(&row.aggregate, &row.min_unit),
            labels: labels.collect(),
        }
    }

    pub(super) fn explain(&self) -> NeedExplanation {
        let fleet = self.pass.fleet;
        let mut standings: Map<ClassIx, (Option<usize>, ClassKey)> = Map::default();
        let mut classes: BTreeMap<ClassKey, (ClassIx, FatesOfClass)> = BTreeMap::new();
        let mut rivals: BTreeMap<usize, u32> = BTreeMap::new();
        for slot in fleet.ids.in_order() {
            let (class, state) = (fleet.class(*slot), fleet.state(*slot));
            let (failing, key) = standings.entry(class).or_insert_with(|| self.class_key(class));
            let rule = self.rule(*slot, *failing);
            if matches!(rule, Rule::Claimed | Rule::PriorityNotLower)
                && let Some(by) = self.claims[slot.at()]
            {
                *rivals.entry(by).or_default() += 1;
            }
            let (_, fates) = classes.entry(key.clone()).or_insert_with(|| (class, BTreeMap::new()));
            let fate = fates.entry((rule.clone(), state.number())).or_insert_with(|| Fate {
                rule,
                state,
                machines: 0,
                first: fleet.ids.id(*slot),
            });
            fate.machines += 1;
        }
        let mut rivals: Vec<Rival> =
            rivals.into_iter().map(|(by, machines)| self.rival(by, machines)).collect();
        rivals.sort_by(|a, b| (b.machines, &a.key).cmp(&(a.machines, &b.key)));
        rivals.truncate(RIVALS);
        let classes = classes.into_iter().map(|((_, (cost, unrequested), ..), (class, fates))| {
            let fates: Vec<Fate> = fates.into_values().collect();
            ClassExplanation {
                shape: self.shape(class),
                cost,
                unrequested,
                machines: fates.iter().map(|fate| fate.machines).sum(),
                fates,
            }
        });
        NeedExplanation { verdict: self.position, classes: classes.collect(), rivals }
    }

    fn rival(&self, by: usize, machines: u32) -> Rival {
        let row = self.pass.rows[by];
        let key: NeedKey = row.key(self.pass.symbols);
        Rival { key, priority: row.need.profile.priority(), machines }
    }

    /// The first requirement that a class fails, and where the class stands.
    fn class_key(&self, ix: ClassIx) -> (Option<usize>, ClassKey) {
        let class = self.pass.fleet.classes.get(ix);
        let failing = self.pass.matching.failing(self.row.profile, &class.traits);
        let standing = if failing.is_some() {
            Standing::Mismatch
        } else if class.traits.capacity.covers(&self.row.min_unit) {
            Standing::Fits
        } else {
            Standing::BelowFloor
        };
        let interruption = self.row.need.profile.interruption();
        let cost = acquire_key(class, interruption, &self.requested, &self.pass.symbols.dimensions);
        let shape = self.shape(ix);
        let capacity = shape.capacity.to_strings().into_iter().collect();
        let labels = shape.labels.into_iter().map(|(_, value)| value).collect();
        let names = [shape.instance_type, shape.zone];
        let chance = shape.interruption_probability.nano();
        (failing, (standing, cost, names, shape.capacity_type as u8, capacity, labels, chance))
    }

    fn shape(&self, ix: ClassIx) -> Shape {
        let symbols = self.pass.symbols;
        let traits = &self.pass.fleet.classes.get(ix).traits;
        let text = |value| symbols.value_text(value).cloned();
        let label = |key: KeyIx| traits.attributes.get(key.at()).and_then(|value| text(*value));
        Shape {
            instance_type: text(traits.instance_type).unwrap_or_default(),
            zone: text(traits.zone).unwrap_or_default(),
            capacity_type: traits.capacity_type,
            capacity: symbols.dimensions.resources(&traits.capacity),
            price: traits.price,
            interruption_probability: traits.probability,
            labels: self.labels.iter().map(|(key, ix)| (key.clone(), label(*ix))).collect(),
        }
    }

    /// The first rule on the way of a machine to the Need. `failing`: the requirement that its class fails.
    fn rule(&self, slot: Slot, failing: Option<usize>) -> Rule {
        if let Some(rule) = self.taken.get(&slot) {
            return rule.clone();
        }
        if self.claims[slot.at()] == Some(self.position) {
            return Rule::Withdrawn;
        }
        let fleet = self.pass.fleet;
        let pool = fleet.pool(slot);
        if pool == PoolIx::NONE || fleet.place(pool) == Place::Held {
            let state = fleet.state(slot);
            let draining =
                state == MachineState::Draining && fleet.eligibility(slot) != Eligibility::WITHHELD;
            let dead = matches!(state, MachineState::Failed | MachineState::Deleting);
            return if draining || dead { Rule::NotUsable } else { Rule::Withheld };
        }
        if let Some(at) = failing {
            let requirement = self.row.need.profile.requirements().get(at);
            return Rule::Requirement(
                requirement.map(|requirement| requirement.key.clone()).unwrap_or_default(),
            );
        }
        let place = fleet.place(pool);
        if !self.is_own(place) && !fleet.capacity(slot).covers(&self.row.min_unit) {
            return Rule::BelowMinUnit;
        }
        match place {
            Place::Bound(binding) if binding.cluster != self.row.cluster => {
                self.bound_elsewhere(slot, binding)
            }
            Place::CreatingFor { .. } if !self.is_own(place) => Rule::ForAnotherNeed,
            Place::Bound(_) | Place::CreatingFor { .. } if !place.is_creditable() => Rule::Withheld,
            Place::Draining(_) => self.draining(slot, place),
            _ => self.phase1(slot, place),
        }
    }

    /// Whether a machine is stamped, or being created, for this very Need.
    fn is_own(&self, place: Place) -> bool {
        let own = (self.row.cluster, self.row.stamp);
        match place {
            Place::Bound(Binding { cluster, stamp, .. }) | Place::CreatingFor { cluster, stamp, .. } => {
                (cluster, stamp) == own
            }
            _ => false,
        }
    }

    /// Why Phase 1 left a machine that it could have claimed.
    fn phase1(&self, slot: Slot, place: Place) -> Rule {
        let worth = self.row.worth(self.pass.fleet.capacity(slot));
        let is_free = matches!(place, Place::Idle | Place::Speculative);
        // Only what is acquired has to make up for the floor.
        let wanted = if is_free { &self.wanted } else { &self.row.aggregate };
        if self.is_claimed_before(slot, place) {
            Rule::Claimed
        } else if self.row.aggregate.is_zero() {
            Rule::NotNeeded
        } else if !worth.reduces(wanted) {
            Rule::NoProgress
        } else if self.is_in_other_domain(slot, self.outcome.choice.as_ref().and_then(|c| c.domain)) {
            Rule::OtherDomain
        } else if self.left.is_zero() {
            Rule::NotNeeded
        } else if !is_free || !worth.reduces(&self.left) {
            Rule::NoProgress
        } else if self.outcome.choice.is_some() {
            Rule::GangIncomplete
        } else {
            Rule::Skew
        }
    }

    /// Whether the machine was gone when the Need looked. Equals keep their own before any of them looks further.
    fn is_claimed_before(&self, slot: Slot, place: Place) -> bool {
        let Some(by) = self.claims[slot.at()] else { return false };
        let other = self.pass.rows[by];
        let equal = other.precedence == self.row.precedence;
        let own = matches!(place, Place::Bound(binding)
            if (binding.cluster, binding.stamp) == (other.cluster, other.stamp));
        by < self.position || equal && own
    }

    fn is_in_other_domain(&self, slot: Slot, domain: Option<crate::pass::Domain>) -> bool {
        domain.is_some_and(|domain| !domain.has(&self.pass.fleet.classes, self.pass.fleet.class(slot)))
    }

    /// Why a machine of another cluster was not preempted.
    fn bound_elsewhere(&self, slot: Slot, binding: Binding) -> Rule {
        let pass = self.pass;
        if self.left.is_zero() || binding.configuring {
            return Rule::BoundElsewhere;
        }
        let claimant = self.claims[slot.at()].map(|by| pass.rows[by]);
        let priority = phase2::effective_priority(pass, slot, claimant);
        let worth = self.row.worth(pass.fleet.capacity(slot));
        let is_gang = self.outcome.choice.is_some();
        let target = self.outcome.victims().first().and_then(|victim| {
            let key = pass.matching.same(self.row.profile)?;
            let value = pass.fleet.classes.domain(pass.fleet.class(*victim), key)?;
            Some(crate::pass::Domain { key, value })
        });
        if !binding.preemptible {
            Rule::Withheld
        } else if priority >= self.row.need.profile.priority() {
            Rule::PriorityNotLower
        } else if !binding.attributed && !self.heard[binding.cluster.at()] {
            Rule::ClusterSilent
        } else if self.taken_before.contains(&slot) {
            Rule::TakenInPhase2
        } else if self.deficit.is_zero() {
            Rule::NotNeeded
        } else if is_gang && self.outcome.unresolved().is_some() {
            Rule::GangIncomplete
        } else if self.is_in_other_domain(slot, target) {
            Rule::OtherDomain
        } else if !worth.reduces(if is_gang { &self.row.aggregate } else { &self.deficit }) {
            Rule::NoProgress
        } else {
            match self.outcome.unresolved() {
                None => Rule::NotNeeded,
                Some(unresolved) if worth.reduces(unresolved) => Rule::Skew,
                Some(_) => Rule::NoProgress,
            }
        }
    }

    /// Why a draining machine does not count.
    fn draining(&self, slot: Slot, place: Place) -> Rule {
        let is_gang = self.outcome.choice.is_some();
        let worth = self.row.worth(self.pass.fleet.capacity(slot));
        if !phase2::may_count_on(self.row, is_gang, place) {
            Rule::ForAnotherNeed
        } else if self.left.is_zero() {
            Rule::NotNeeded
        } else if self.is_in_other_domain(slot, self.outcome.choice.as_ref().and_then(|c| c.domain)) {
            Rule::OtherDomain
        } else if self.pass.is_claimed(slot) {
            Rule::TakenInPhase2
        } else if !worth.reduces(&self.left) {
            Rule::NoProgress
        } else {
            Rule::NotNeeded
        }
    }
}

/// What a machine of a class costs a Need an hour.
pub(super) fn cost(pass: &Pass<'_>, row: &Row, class: ClassIx) -> EffectiveCost {
    let traits = &pass.fleet.classes.get(class).traits;
    EffectiveCost::new(traits.price, traits.probability, row.need.profile.interruption())
}
