//! Who may be preempted: machines of other clusters that matter less, in heaps of equals.

use std::cmp::Reverse;

use bigfleet_types::StampedPenalty;

use super::gang::Hopeless;
use super::hunt::{Domains, Hunt, Search};
use super::{Pick, Taken, score, suits};
use crate::class::ClassIx;
use crate::demand::Row;
use crate::intern::{ClusterIx, Map, ValueIx};
use crate::lanes::{LaneSet, Lanes};
use crate::matching::ProfileIx;
use crate::members::Slot;
use crate::pass::{Domain, Pass};
use crate::phase1::{Outcome, Spread, trim};
use crate::place::Place;
use crate::policy::Policy;

/// What makes victims equal, but for the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) class: ClassIx,
    pub(super) cluster: ClusterIx,
    /// The stamped one or, if higher, that of the Need that claims the machine.
    priority: i32,
    interruption: StampedPenalty,
    reclamation: StampedPenalty,
    /// Nobody claims it, and its cluster has spoken.
    excess: bool,
}

/// Victims of one kind, in the order of ids.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) kind: Kind,
    pub(super) slots: Vec<Slot>,
    /// Every slot before this one is taken.
    pub(super) next: usize,
}

/// Excess first, then by score, then the less valuable. Ids break ties.
pub(super) type Order = (bool, Reverse<i128>, StampedPenalty, StampedPenalty);

/// What rows that look for the same victims have in common: profile, floor, the lanes in which machines are to help,
/// and whether these count in whole gangs.
type Prey = (ProfileIx, Lanes, LaneSet, bool);

/// All victims of a pass, the lowest priority first.
#[derive(Debug)]
pub(super) struct Victims {
    heaps: Vec<Heap>,
    of_class: Map<ClassIx, Vec<usize>>,
    /// By prey and, for gangs, domain.
    hunts: Map<Prey, Map<Option<ValueIx>, Hunt>>,
    /// Gangs that found no domain to preempt in: no larger one will, either.
    pub(super) hopeless: Hopeless,
    /// How many heaps and machines rows looked at.
    pub(super) looked: usize,
}

impl Victims {
    /// Finds every machine that a Need of priority `highest` might preempt.
    pub(super) fn below(pass: &Pass<'_>, highest: i32, heard: &[bool]) -> Self {
        let mut by_kind: Map<Kind, Vec<Slot>> = Map::default();
        for (ix, pool) in pass.fleet.pools.all() {
            let Place::Bound(binding) = pass.fleet.place(ix) else { continue };
            let spoken = heard[binding.cluster.at()];
            // A machine that lost its stamps is nobody's prey before its cluster has spoken.
            if !binding.preemptible || binding.priority >= highest || !(binding.attributed || spoken) {
                continue;
            }
            for slot in pool.members() {
                let claiming = pass.claimant(*slot).map(|row| row.need.profile.priority());
                let kind = Kind {
                    class: pool.class,
                    cluster: binding.cluster,
                    priority: claiming.map_or(binding.priority, |claiming| claiming.max(binding.priority)),
                    interruption: binding.interruption,
                    reclamation: binding.reclamation,
                    excess: claiming.is_none() && spoken,
                };
                if kind.priority < highest {
                    by_kind.entry(kind).or_default().push(*slot);
                }
            }
        }
        let heaps = by_kind.into_iter().map(|(kind, mut slots)| {
            // Pools that differ only in stamps that do not matter here come together.
            slots.sort_by_key(|slot| pass.fleet.rank(*slot));
            Heap { kind, slots, next: 0 }
        });
        let mut heaps: Vec<Heap> = heaps.collect();
        heaps.sort_by_key(|heap| heap.kind.priority);
        let mut of_class: Map<ClassIx, Vec<usize>> = Map::default();
        for (at, heap) in heaps.iter().enumerate() {
            of_class.entry(heap.kind.class).or_default().push(at);
        }
        Self { heaps, of_class, hunts: Map::default(), hopeless: Hopeless::default(), looked: 0 }
    }

    /// Starts anew, after machines that were taken no longer are.
    pub(super) fn rewind(&mut self) {
        self.heaps.iter_mut().for_each(|heap| heap.next = 0);
        self.hunts.clear();
    }

    /// Victims of a plain Need: those that the pass can find, be it enough or not.
    #[allow(clippy::too_many_arguments, reason = "a search names what it must respect")]
    pub(super) fn pick_plain(
        &mut self,
        pass: &Pass<'_>,
        row: &Row,
        outcome: &Outcome,
        deficit: Lanes,
        taken: &Taken,
        policy: &Policy,
    ) -> Pick {
        let spread = (!pass.matching.spread(row.profile).is_empty()).then(|| {
            let mut spread = Spread::of(pass, row, outcome.claimed());
            outcome.drains().iter().for_each(|slot| spread.add(pass, pass.fleet.class(*slot), true));
            spread
        });
        self.pick(pass, row, None, spread, deficit, taken, policy)
    }

    /// Victims in the order of their score until they cover the deficit, then without those that the others make
    /// superfluous.
    #[allow(clippy::too_many_arguments, reason = "a search names what it must respect")]
    pub(super) fn pick(
        &mut self,
        pass: &Pass<'_>,
        row: &Row,
        domain: Option<Domain>,
        mut spread: Option<Spread>,
        deficit: Lanes,
        taken: &Taken,
        policy: &Policy,
    ) -> Pick {
        let mut pick = Pick { slots: Vec::new(), left: deficit.clone() };
        if deficit.is_zero() {
            return pick;
        }
        let lanes = deficit.positive().collect();
        let prey = (row.profile, row.min_unit.clone(), lanes, row.gangs.is_some());
        let mut hunts = match self.hunts.remove(&prey) {
            Some(hunts) => hunts,
            None => self.survey(pass, row, &deficit, policy),
        };
        if let Some(hunt) = hunts.get_mut(&domain.map(|domain| domain.value)) {
            let mut search = Search::new(pass, row, taken, &mut self.heaps);
            while !pick.left.is_zero() {
                let Some((slot, class)) = search.next(hunt, spread.as_ref(), &pick.left) else { break };
                pick.left.subtract(&row.worth(pass.fleet.classes.capacity(class)));
                if let Some(spread) = &mut spread {
                    spread.add(pass, class, true);
                }
                pick.slots.push(slot);
            }
            self.looked += search.looked;
            search.finish(hunt);
        }
        self.hunts.insert(prey, hunts);
        if pick.left.is_zero() && spread.is_none() {
            trim::surplus(pass, row, &deficit, &mut pick.slots);
        }
        pick
    }

    /// The heaps that a row may prey on, those of its own cluster included, in order.
    fn survey(
        &mut self,
        pass: &Pass<'_>,
        row: &Row,
        deficit: &Lanes,
        policy: &Policy,
    ) -> Map<Option<ValueIx>, Hunt> {
        let preemptor = row.need.profile.priority();
        let classes = &pass.fleet.classes;
        let (same, spread) = (pass.matching.same(row.profile), pass.matching.spread(row.profile));
        let mut found: Map<Option<ValueIx>, Vec<(Order, Domains, usize)>> = Map::default();
        for class in pass.matching.classes(row.profile) {
            let Some(heaps) = self.of_class.get(class) else { continue };
            if !suits(pass, row, *class) || !row.worth(classes.capacity(*class)).reduces(deficit) {
                continue;
            }
            let domain = same.and_then(|key| classes.domain(*class, key));
            if same.is_some() && domain.is_none() {
                continue;
            }
            let domains: Domains = spread.iter().map(|rule| classes.domain(*class, rule.key)).collect();
            for at in heaps {
                let kind = self.heaps[*at].kind;
                if kind.priority < preemptor {
                    let points = score::score(
                        &policy.victims,
                        preemptor,
                        kind.priority,
                        kind.interruption,
                        kind.reclamation,
                    );
                    let order = (!kind.excess, Reverse(points), kind.reclamation, kind.interruption);
                    found.entry(domain).or_default().push((order, domains.clone(), *at));
                }
            }
        }
        self.looked += found.values().map(Vec::len).sum::<usize>();
        let hunt = |found: Vec<_>| Hunt::new(found, &self.heaps, |slot| pass.fleet.rank(slot));
        found.into_iter().map(|(domain, found)| (domain, hunt(found))).collect()
    }

    /// Makes picked machines victims.
    pub(super) fn take(&self, pass: &Pass<'_>, slots: &[Slot], taken: &mut Taken) {
        let priority = |slot: &Slot| effective_priority(pass, *slot, pass.claimant(*slot));
        taken.victims.extend(slots.iter().map(|slot| (*slot, priority(slot))));
    }
}

/// The stamped priority or, if higher, that of the row that claims the machine.
pub(crate) fn effective_priority(pass: &Pass<'_>, slot: Slot, claiming: Option<&Row>) -> i32 {
    let stamped = match pass.fleet.place(pass.fleet.pool(slot)) {
        Place::Bound(binding) => binding.priority,
        _ => 0,
    };
    let claiming = claiming.map(|row| row.need.profile.priority());
    claiming.map_or(stamped, |claiming| claiming.max(stamped))
}
