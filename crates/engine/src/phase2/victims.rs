//! Who may be preempted: machines of other clusters that matter less, in heaps of equals.

use std::cmp::Reverse;

use bigfleet_types::StampedPenalty;

use super::{Pick, Taken, score, suits};
use crate::class::ClassIx;
use crate::demand::Row;
use crate::intern::{ClusterIx, Map};
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::{Domain, Pass};
use crate::phase1::{Outcome, Spread, trim};
use crate::place::Place;
use crate::policy::Policy;

/// What makes victims equal, but for the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    class: ClassIx,
    cluster: ClusterIx,
    /// The stamped one or, if higher, that of the Need that claims the machine.
    priority: i32,
    interruption: StampedPenalty,
    reclamation: StampedPenalty,
    /// Nobody claims it, and its cluster has spoken.
    excess: bool,
}

/// Victims of one kind, in the order of ids.
#[derive(Debug)]
struct Heap {
    kind: Kind,
    slots: Vec<Slot>,
    /// Every slot before this one is taken.
    next: usize,
}

/// Excess first, then by score, then the less valuable. Ids break ties.
type Order = (bool, Reverse<i128>, StampedPenalty, StampedPenalty);

/// All victims of a pass, the lowest priority first.
#[derive(Debug)]
pub(super) struct Victims {
    heaps: Vec<Heap>,
}

/// Where one search stands in a heap.
struct Cursor {
    order: Order,
    heap: usize,
    at: usize,
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
        Self { heaps }
    }

    /// Starts anew, after machines that were taken no longer are.
    pub(super) fn rewind(&mut self) {
        self.heaps.iter_mut().for_each(|heap| heap.next = 0);
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
            outcome.drains.iter().for_each(|slot| spread.add(pass, pass.fleet.class(*slot), true));
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
        let mut cursors = self.cursors(pass, row, domain, &deficit, taken, policy);
        while !pick.left.is_zero() {
            cursors.retain_mut(|cursor| {
                let heap = &self.heaps[cursor.heap];
                let rest = heap.slots.get(cursor.at..).unwrap_or_default();
                cursor.at += rest.iter().take_while(|slot| taken.has(**slot)).count();
                cursor.at < heap.slots.len()
                    && row.worth(pass.fleet.classes.capacity(heap.kind.class)).reduces(&pick.left)
            });
            let Some(best) = self.first_allowed(pass, &cursors, spread.as_ref()) else { break };
            let heap = &self.heaps[cursors[best].heap];
            let slot = heap.slots[cursors[best].at];
            cursors[best].at += 1;
            pick.left.subtract(&row.worth(pass.fleet.classes.capacity(heap.kind.class)));
            if let Some(spread) = &mut spread {
                spread.add(pass, heap.kind.class, true);
            }
            pick.slots.push(slot);
        }
        if pick.left.is_zero() && spread.is_none() {
            trim::surplus(pass, row, &deficit, &mut pick.slots);
        }
        pick
    }

    /// The heaps that a row may prey on, in order.
    fn cursors(
        &mut self,
        pass: &Pass<'_>,
        row: &Row,
        domain: Option<Domain>,
        deficit: &Lanes,
        taken: &Taken,
        policy: &Policy,
    ) -> Vec<Cursor> {
        let preemptor = row.need.profile.priority();
        let below = self.heaps.partition_point(|heap| heap.kind.priority < preemptor);
        let mut cursors = Vec::new();
        for (position, heap) in self.heaps[..below].iter_mut().enumerate() {
            let kind = heap.kind;
            let rest = heap.slots.get(heap.next..).unwrap_or_default();
            heap.next += rest.iter().take_while(|slot| taken.has(**slot)).count();
            let wanted = heap.next < heap.slots.len()
                && kind.cluster != row.cluster
                && suits(pass, row, kind.class)
                && domain.is_none_or(|domain| domain.has(pass, kind.class))
                && row.worth(pass.fleet.classes.capacity(kind.class)).reduces(deficit);
            if wanted {
                let points = score::score(
                    &policy.victims,
                    preemptor,
                    kind.priority,
                    kind.interruption,
                    kind.reclamation,
                );
                let order = (!kind.excess, Reverse(points), kind.reclamation, kind.interruption);
                cursors.push(Cursor { order, heap: position, at: heap.next });
            }
        }
        cursors.sort_by_key(|cursor| cursor.order);
        cursors
    }

    /// The cursor of the first machine that the spread allows.
    fn first_allowed(&self, pass: &Pass<'_>, cursors: &[Cursor], spread: Option<&Spread>) -> Option<usize> {
        let mut start = 0;
        for equals in cursors.chunk_by(|a, b| a.order == b.order) {
            let allowed = equals.iter().enumerate().filter(|(_, cursor)| {
                spread.is_none_or(|spread| spread.allows(pass, self.heaps[cursor.heap].kind.class))
            });
            let rank = |cursor: &Cursor| pass.fleet.rank(self.heaps[cursor.heap].slots[cursor.at]);
            if let Some((offset, _)) = allowed.min_by_key(|(_, cursor)| rank(cursor)) {
                return Some(start + offset);
            }
            start += equals.len();
        }
        None
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
