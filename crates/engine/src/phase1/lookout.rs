//! What is seen of the free machines and kept from one pass to the next: the order of classes, and terrains.

use std::sync::Arc;

use super::queue::Order;
use super::terrain::{Moment, Sight, Terrain};
use crate::class::ClassIx;
use crate::cost::{AcquireKey, acquire_key};
use crate::demand::Row;
use crate::intern::Map;
use crate::lanes::LaneSet;
use crate::matching::Serial;
use crate::members::{PoolIx, Pools};
use crate::pass::{Pass, Tier};

/// How many notes are kept for terrains that did not read them yet.
const NOTES: usize = 1 << 16;
/// How many orders, and how many terrains, are kept.
const KEPT: usize = 1 << 10;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// Boxed, because they are taken out and put back for every gang.
    pub(super) terrains: Map<Sight, Box<Terrain>>,
    /// By profile and requested devices.
    orders: Map<(Serial, LaneSet), Matched>,
    /// The classes of which a free machine was claimed or given back, came or went, in the order of events.
    notes: Vec<ClassIx>,
    /// How many notes were dropped.
    dropped: u64,
    /// How many terrains there ever were.
    surveys: u64,
}

/// The classes that match a profile.
#[derive(Debug)]
struct Matched {
    /// How many there were when they were put in order.
    number: usize,
    /// In the order of acquisition.
    order: Arc<Order<AcquireKey>>,
}

impl Lookout {
    /// Forgets everything.
    pub(crate) fn forget(&mut self) {
        *self = Self { surveys: self.surveys, ..Self::default() };
    }

    /// The first moment of a new terrain.
    pub(super) fn next_terrain(&mut self) -> Moment {
        self.surveys += 1;
        Moment::first_of(self.surveys)
    }

    /// Notes that machines of a pool are in other hands than before, if they are for the taking.
    pub(crate) fn note(&mut self, pools: &Pools, ix: PoolIx) {
        let pool = pools.get(ix);
        if pool.is_for_the_taking() && !self.terrains.is_empty() {
            self.notes.push(pool.class);
        }
    }

    /// How many notes there were so far.
    pub(super) fn noted(&self) -> u64 {
        self.dropped + self.notes.len() as u64
    }

    /// The notes from the given one on.
    pub(super) fn notes_from(&self, read: u64) -> &[ClassIx] {
        let from = usize::try_from(read.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.notes.get(from..).unwrap_or_default()
    }

    /// Drops what nobody asked for in a long time. Call it after each pass.
    pub(crate) fn tidy(&mut self) {
        if self.orders.len() > KEPT {
            self.orders.clear();
        }
        if self.terrains.len() > KEPT {
            self.terrains.clear();
        }
        if self.notes.len() > NOTES {
            let cut = self.noted() - (NOTES / 2) as u64;
            self.terrains.retain(|_, terrain| terrain.has_read(cut));
            self.notes.drain(..self.notes.len() - NOTES / 2);
            self.dropped = cut;
        }
    }
}

/// The classes that match a row, in the order of acquisition.
pub(super) fn in_order(pass: &mut Pass<'_>, row: &Row, requested: &LaneSet) -> Arc<Order<AcquireKey>> {
    let key = (pass.matching.serial(row.profile), requested.clone());
    let classes = pass.matching.classes(row.profile);
    let known = pass.lookout.orders.get(&key);
    // Classes are only ever added.
    let new = classes.get(known.map_or(0, |known| known.number)..).unwrap_or_default();
    if let Some(known) = known.filter(|_| new.is_empty()) {
        return known.order.clone();
    }
    let interruption = pass.matching.interruption(row.profile);
    let place = |ix: &ClassIx| {
        let class = pass.fleet.classes.get(*ix);
        (acquire_key(class, interruption, requested, &pass.symbols.dimensions), *ix)
    };
    let known = known.into_iter().flat_map(|known| known.order.iter());
    let known = known.filter(|((tier, _), _)| *tier == Tier::Idle).map(|((_, key), ix)| (*key, ix));
    let mut sorted: Vec<(AcquireKey, ClassIx)> = known.chain(new.iter().map(place)).collect();
    sorted.sort_unstable();
    let of_tier = |tier: Tier| sorted.iter().map(move |(key, ix)| ((tier, *key), *ix));
    let order = Arc::new(Order::of(Tier::ALL.into_iter().flat_map(of_tier)));
    let matched = Matched { number: classes.len(), order: order.clone() };
    pass.lookout.orders.insert(key, matched);
    order
}

/// The place of a free pool in the order; `None` if it does not match.
pub(super) fn key_of(
    pass: &Pass<'_>,
    row: &Row,
    requested: &LaneSet,
    pool: PoolIx,
) -> Option<(Tier, AcquireKey)> {
    let tier = pass.tier(pool)?;
    let class = pass.fleet.class_of(pool);
    pass.matching.matches(row.profile, class).then(|| {
        let interruption = pass.matching.interruption(row.profile);
        let class = pass.fleet.classes.get(class);
        (tier, acquire_key(class, interruption, requested, &pass.symbols.dimensions))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(number: usize) -> Sight {
        (0, Default::default(), LaneSet::from_slice(&[number]))
    }

    #[test]
    fn half_of_the_notes_are_dropped_when_they_are_too_many_and_who_did_not_read_those_looks_anew() {
        for (more, kept, stay) in [(0, NOTES, 3), (1, NOTES / 2, 2)] {
            let notes = (0..NOTES + more).map(ClassIx::new).collect();
            let mut lookout = Lookout { notes, dropped: 5, ..Lookout::default() };
            let noted = lookout.noted();
            assert_eq!(noted, 5 + (NOTES + more) as u64);
            let cut = noted - (NOTES / 2) as u64;
            for (number, read) in [noted, cut, cut - 1].into_iter().enumerate() {
                lookout.terrains.insert(sight(number), Box::new(Terrain::that_read(read)));
            }
            lookout.tidy();
            assert_eq!((lookout.notes.len(), lookout.noted()), (kept, noted));
            let expected: Vec<ClassIx> = (NOTES / 2 + more..NOTES + more).map(ClassIx::new).collect();
            assert_eq!(lookout.notes_from(cut), expected, "those that are left keep their numbers");
            let stays = |number| lookout.terrains.contains_key(&sight(number));
            assert_eq!((0..3).filter(|number| stays(*number)).count(), stay);
            assert!(stays(0) && stays(1));
        }
    }

    #[test]
    fn orders_and_terrains_are_forgotten_when_they_are_too_many() {
        for (number, kept) in [(KEPT, KEPT), (KEPT + 1, 0)] {
            let mut lookout = Lookout::default();
            for at in 0..number {
                lookout.terrains.insert(sight(at), Box::default());
                let none = Matched { number: 0, order: Arc::new(Order::of([])) };
                lookout.orders.insert((0, LaneSet::from_slice(&[at])), none);
            }
            lookout.tidy();
            assert_eq!((lookout.terrains.len(), lookout.orders.len()), (kept, kept));
        }
    }
}
