//! What is free in each domain of a key, for all gangs that see the same machines.
//!
//! Thousands of domains look alike: so many machines of the same worth. A gang compares looks, not domains, and takes
//! the first domain of the best look. Claims are noted in the pass; a terrain catches up when it is used again.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

use smallvec::SmallVec;

use super::gang::{Offer, Rank};
use crate::class::ClassIx;
use crate::cost::{AcquireKey, acquire_key};
use crate::demand::Row;
use crate::intern::{KeyIx, Map, ValueIx};
use crate::lanes::{LaneSet, Lanes};
use crate::matching::Serial;
use crate::members::PoolIx;
use crate::pass::{Pass, Tier};

/// What tells terrains apart: the profile, the floor, and the lanes in which machines are to help.
pub(super) type Sight = (Serial, Lanes, LaneSet);

/// For how many deficits views are kept.
const VIEWS: usize = 256;

/// A state of a terrain. It is another one whenever some domain looks otherwise than before, and those of different
/// terrains are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before all others.
    pub(crate) const NEVER: Self = Self(0);
    /// Between the first moments of two terrains.
    const APART: u64 = 1 << 32;

    /// The first one of the terrain with this number, from 1 on.
    pub(super) fn first_of(terrain: u64) -> Self {
        Self(terrain * Self::APART)
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One domain.
#[derive(Debug)]
struct Domain {
    value: ValueIx,
    classes: SmallVec<[ClassIx; 2]>,
    look: usize,
    /// It looks like this since then.
    since: Moment,
}

/// Domains that offer the same.
#[derive(Debug)]
struct Look {
    offer: Offer,
    /// Positions of domains, which are in the order of their texts.
    domains: BTreeSet<usize>,
    /// Tells apart the looks that had the same place in the list.
    age: u64,
}

/// A look with the eyes of a gang of some size.
#[derive(Debug, Clone)]
struct View {
    age: u64,
    rank: Rank,
    per_mille: u16,
}

/// All looks with the eyes of a gang of some size.
#[derive(Debug, Default)]
struct Views {
    of_looks: Vec<View>,
    /// The first domains by coverage, with what they have.
    covered: Vec<(u16, usize)>,
    /// Those are all.
    complete: bool,
    /// They are the first since then.
    covered_since: Moment,
    /// They were found to be the first then.
    covered_at: Moment,
    /// Looks were looked at then.
    seen: Moment,
}

/// All domains of one sight.
#[derive(Debug, Default)]
pub(crate) struct Terrain {
    /// In the order of their texts.
    domains: Vec<Domain>,
    of_value: Map<ValueIx, usize>,
    of_class: Map<ClassIx, usize>,
    /// How many of the classes that match the profile were looked at.
    seen: usize,
    looks: Vec<Look>,
    by_offer: Map<Offer, usize>,
    unused: Vec<usize>,
    ages: u64,
    views: Map<Lanes, Views>,
    now: Moment,
    /// How many of the notes were read.
    read: u64,
}

/// The terrain that a gang sees, on loan from the pass.
pub(super) fn borrow(pass: &mut Pass<'_>, row: &Row, key: KeyIx) -> (Sight, Box<Terrain>) {
    let serial = pass.matching.serial(row.profile);
    let sight = (serial, row.min_unit.clone(), row.aggregate.positive().collect());
    let mut known = pass.lookout.terrains.remove(&sight);
    if let Some(terrain) = &mut known
        && !terrain.catch_up(pass, row, key)
    {
        known = None;
    }
    (sight, known.unwrap_or_else(|| Box::new(Terrain::survey(pass, row, key))))
}

/// Whether a row of the same profile sees the same terrain.
pub(super) fn is_that_of((_, min_unit, lanes): &Sight, row: &Row) -> bool {
    row.min_unit == *min_unit && row.aggregate.positive().eq(lanes.iter().copied())
}

/// Keeps the terrain for the gangs that follow.
pub(super) fn give_back(pass: &mut Pass<'_>, sight: Sight, terrain: Box<Terrain>) {
    pass.lookout.terrains.insert(sight, terrain);
}

/// The domain of a class, if its machines help.
fn domain(pass: &Pass<'_>, row: &Row, key: KeyIx, class: ClassIx) -> Option<ValueIx> {
    let capacity = pass.fleet.classes.capacity(class);
    let helps = capacity.covers(&row.min_unit) && capacity.reduces(&row.aggregate);
    pass.fleet.classes.domain(class, key).filter(|_| helps)
}

impl Terrain {
    fn survey(pass: &mut Pass<'_>, row: &Row, key: KeyIx) -> Self {
        let now = pass.lookout.next_terrain();
        let classes = pass.matching.classes(row.profile);
        let mut terrain = Self { read: pass.lookout.noted(), seen: classes.len(), now, ..Self::default() };
        let mut found: Map<ValueIx, SmallVec<[ClassIx; 2]>> = Map::default();
        for class in classes {
            if let Some(value) = domain(pass, row, key, *class) {
                found.entry(value).or_default().push(*class);
            }
        }
        let domain = |(value, classes)| Domain { value, classes, look: usize::MAX, since: now };
        terrain.domains = found.into_iter().map(domain).collect();
        terrain.domains.sort_unstable_by_key(|domain| pass.symbols.value_text(domain.value));
        for position in 0..terrain.domains.len() {
            let domain = &terrain.domains[position];
            terrain.of_value.insert(domain.value, position);
            terrain.of_class.extend(domain.classes.iter().map(|class| (*class, position)));
            terrain.look_at(pass, position);
        }
        terrain
    }

    /// Looks again at the domains in which something was claimed or given back, came or went. `false`: there is a new
    /// domain.
    fn catch_up(&mut self, pass: &Pass<'_>, row: &Row, key: KeyIx) -> bool {
        let mut changed: SmallVec<[usize; 16]> = SmallVec::new();
        let classes = pass.matching.classes(row.profile);
        for class in classes.get(self.seen..).unwrap_or_default() {
            let Some(value) = domain(pass, row, key, *class) else { continue };
            let Some(position) = self.of_value.get(&value).copied() else { return false };
            self.domains[position].classes.push(*class);
            self.of_class.insert(*class, position);
            changed.push(position);
        }
        self.seen = classes.len();
        let notes = pass.lookout.notes_from(self.read);
        changed.extend(notes.iter().filter_map(|class| self.of_class.get(class).copied()));
        self.read = pass.lookout.noted();
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().for_each(|position| self.look_at(pass, position));
        true
    }

    /// Whether all notes up to there were read.
    pub(super) fn has_read(&self, notes: u64) -> bool {
        self.read >= notes
    }

    fn look_at(&mut self, pass: &Pass<'_>, position: usize) {
        let mut offer = Offer::default();
        for class in &self.domains[position].classes {
            for tier in Tier::ALL {
                let free = pass.fleet.pools.find(*class, tier.place()).map(|pool| pass.free(pool));
                offer.add_free(pass.fleet.classes.capacity(*class), free.unwrap_or(0), tier);
            }
        }
        let before = self.domains[position].look;
        if let Some(look) = self.looks.get_mut(before) {
            if look.offer == offer {
                return;
            }
            look.domains.remove(&position);
            if look.domains.is_empty() {
                self.by_offer.remove(&look.offer);
                self.unused.push(before);
            }
            self.change(position);
        }
        self.domains[position].look = usize::MAX;
        if offer.count == 0 {
            return;
        }
        self.change(position);
        let look = match self.by_offer.get(&offer) {
            Some(look) => *look,
            None => self.open(offer),
        };
        self.domains[position].look = look;
        self.looks[look].domains.insert(position);
    }

    fn change(&mut self, position: usize) {
        self.now = self.now.next();
        self.domains[position].since = self.now;
    }

    /// The present moment.
    pub(super) fn moment(&self) -> Moment {
        self.now
    }

    fn open(&mut self, offer: Offer) -> usize {
        self.ages += 1;
        let look = Look { offer: offer.clone(), domains: BTreeSet::new(), age: self.ages };
        let place = match self.unused.pop() {
            Some(place) => {
                self.looks[place] = look;
                place
            }
            None => {
                self.looks.push(look);
                self.looks.len() - 1
            }
        };
        self.by_offer.insert(offer, place);
        place
    }

    /// What is free in one domain.
    pub(super) fn free(&self, value: ValueIx) -> Option<&Offer> {
        let domain = &self.domains[*self.of_value.get(&value)?];
        self.looks.get(domain.look).map(|look| &look.offer)
    }

    /// Makes ready to compare for a deficit. Call it before any comparison with that deficit.
    pub(super) fn prepare(&mut self, deficit: &Lanes) {
        if self.views.len() > VIEWS {
            self.views.clear();
        }
        let Views { of_looks: views, seen, .. } = self.views.entry(deficit.clone()).or_default();
        if std::mem::replace(seen, self.now) == self.now {
            return;
        }
        let view = |look: &Look| View {
            age: look.age,
            rank: look.offer.rank(deficit),
            per_mille: look.offer.total.per_mille(deficit),
        };
        for (place, look) in self.looks.iter().enumerate() {
            match views.get_mut(place) {
                Some(known) if known.age == look.age => {}
                Some(known) => *known = view(look),
                None => views.push(view(look)),
            }
        }
    }

    fn views(&self, deficit: &Lanes) -> impl Iterator<Item = (&Look, &View)> {
        let views = self.views.get(deficit).map_or(&[][..], |views| &views.of_looks);
        self.looks.iter().zip(views).filter(|(look, _)| !look.domains.is_empty())
    }

    /// The best domain but for those left out, with what it offers.
    pub(super) fn best(
        &self,
        deficit: &Lanes,
        left_out: &Map<ValueIx, Offer>,
    ) -> Option<(&Rank, ValueIx, &Offer)> {
        let mut best: Option<(&Rank, Reverse<usize>, &Offer)> = None;
        for (look, view) in self.views(deficit) {
            if best.as_ref().is_some_and(|(rank, ..)| *rank > &view.rank) {
                continue;
            }
            let first = look.domains.iter().find(|at| !left_out.contains_key(&self.domains[**at].value));
            if let Some(first) = first {
                let candidate = (&view.rank, Reverse(*first), &look.offer);
                if best.as_ref().is_none_or(|best| (best.0, best.1) < (candidate.0, candidate.1)) {
                    best = Some(candidate);
                }
            }
        }
        best.map(|(rank, at, offer)| (rank, self.domains[at.0].value, offer))
    }

    /// The best covered domains but for those left out, at most so many.
    pub(super) fn best_covered(
        &mut self,
        deficit: &Lanes,
        left_out: &[ValueIx],
        most: usize,
    ) -> impl Iterator<Item = (ValueIx, u16, &Offer)> {
        self.find_covered(deficit, most + left_out.len());
        let covered = self.views.get(deficit).map_or(&[][..], |views| &views.covered);
        let told = covered.iter().filter_map(|(per_mille, at)| {
            let domain = &self.domains[*at];
            let look = self.looks.get(domain.look)?;
            (!left_out.contains(&domain.value)).then_some((domain.value, *per_mille, &look.offer))
        });
        told.take(most)
    }

    /// Whether what a gang is told of the best covered domains, its own ones among them, is what it was told then.
    pub(super) fn is_as_of(
        &mut self,
        moment: Moment,
        deficit: &Lanes,
        own: impl ExactSizeIterator<Item = ValueIx>,
        most: usize,
    ) -> bool {
        let same = self.find_covered(deficit, most + own.len()).is_some_and(|since| since <= moment);
        let is_same = |value| self.of_value.get(&value).is_none_or(|at| self.domains[*at].since <= moment);
        same && { own }.all(is_same)
    }

    /// Finds the first domains by coverage, unless they are known. Says since when they are the first; `None`: nothing is ready for this deficit.
    fn find_covered(&mut self, deficit: &Lanes, most: usize) -> Option<Moment> {
        let known = self.views.get(deficit)?;
        if known.covered_at == self.now && (known.complete || known.covered.len() >= most) {
            return Some(known.covered_since);
        }
        let most = most.max(known.covered.len());
        let heads = self.views(deficit).filter_map(|(look, view)| {
            let first = *look.domains.first()?;
            Some((view.per_mille, Reverse(first)))
        });
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut covered = Vec::with_capacity(most);
        while covered.len() < most
            && let Some((per_mille, Reverse(at))) = heads.pop()
        {
            covered.push((per_mille, at));
            let look = &self.looks[self.domains[at].look];
            let rest = look.domains.range((Bound::Excluded(at), Bound::Unbounded)).next();
            heads.extend(rest.map(|next| (per_mille, Reverse(*next))));
        }
        let (complete, now) = (heads.is_empty(), self.now);
        let views = self.views.get_mut(deficit)?;
        if views.covered != covered || views.complete != complete {
            (views.covered, views.complete, views.covered_since) = (covered, complete, now);
        }
        views.covered_at = now;
        Some(views.covered_since)
    }

    /// The free pools of a domain in the order of acquisition, those of some tiers.
    pub(super) fn candidates(
        &self,
        pass: &Pass<'_>,
        row: &Row,
        value: ValueIx,
        tiers: &[Tier],
    ) -> Vec<((Tier, AcquireKey), PoolIx)> {
        let dimensions = &pass.symbols.dimensions;
        let requested = dimensions.extended_in(&row.aggregate, &row.min_unit);
        let interruption = pass.matching.interruption(row.profile);
        let classes = self.of_value.get(&value).map_or(&[][..], |at| &self.domains[*at].classes);
        let places = tiers.iter().flat_map(|tier| classes.iter().map(|class| (*tier, *class)));
        let free = places.filter_map(|(tier, class)| {
            let pool = pass.fleet.pools.find(class, tier.place()).filter(|pool| pass.free(*pool) > 0)?;
            let class = pass.fleet.classes.get(class);
            Some(((tier, acquire_key(class, interruption, &requested, dimensions)), pool))
        });
        let mut candidates: Vec<_> = free.collect();
        candidates.sort_unstable();
        candidates
    }
}

#[cfg(test)]
impl Terrain {
    /// One without domains that read so many notes.
    pub(super) fn that_read(notes: u64) -> Self {
        Self { read: notes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gangs of ever new sizes ask for ever new views.
    #[test]
    fn views_are_forgotten_when_they_are_too_many() {
        let mut dimensions = crate::lanes::Dimensions::default();
        let mut terrain = Terrain::default();
        for (asked, kept) in (1..=VIEWS + 1).chain(1..3).enumerate() {
            let size = [(bigfleet_types::ResourceName::new("cpu"), 1 + i64::try_from(asked).unwrap_or(0))];
            terrain.prepare(&dimensions.lanes(&bigfleet_types::Resources::from_amounts(size)));
            assert_eq!(terrain.views.len(), kept);
        }
    }
}
