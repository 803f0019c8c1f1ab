//! Pools: the machines of one class in one place, in the byte order of their ids.
//!
//! A pool is what a phase walks. All members of a pool are equal to every Need but for the id, so a test that fails
//! for one fails for all, and one cursor a pass tells which of them are taken.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::class::{ClassIx, Classes};
use crate::intern::{ClusterIx, Map, StampIx, index};
use crate::lines::{Lines, Standing};
use crate::place::{Binding, Place, PlaceIx, Places};

index! {
    /// A pool.
    PoolIx;
    /// A machine's place in the columns.
    Slot;
}

impl PoolIx {
    /// In no pool: nobody may claim the machine.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Slot {
    /// No machine.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) class: ClassIx,
    pub(crate) place: PlaceIx,
    /// Sorted by rank once settled.
    members: SmallVec<[Slot; 4]>,
    /// Where this pool is in the list of its cluster or kind, and in that of its Need.
    listed: [u32; 2],
    dirty: bool,
    /// Some member left since the last settling.
    shrunk: bool,
}

impl Pool {
    /// Whether its machines are for any Need that matches.
    pub(crate) fn is_for_the_taking(&self) -> bool {
        tier(self.place).is_some()
    }

    /// The members in the order of their ids.
    pub(crate) fn members(&self) -> &[Slot] {
        &self.members
    }
}

/// What a list of pools has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Listing {
    Draining,
    CreatingForAnyone,
    Bound(ClusterIx),
    OwnBound(ClusterIx, StampIx),
    Creating(ClusterIx),
    OwnCreating(ClusterIx, StampIx),
}

impl Listing {
    /// The lists that a pool is in.
    fn of(place: Place) -> [Option<Self>; 2] {
        match place {
            Place::Idle | Place::Held | Place::Speculative => [None, None],
            Place::Bound(b) => [Some(Self::Bound(b.cluster)), Some(Self::OwnBound(b.cluster, b.stamp))],
            Place::CreatingFor { cluster, stamp, .. } => {
                [Some(Self::Creating(cluster)), Some(Self::OwnCreating(cluster, stamp))]
            }
            Place::CreatingForAnyone => [Some(Self::CreatingForAnyone), None],
            Place::Draining(_) => [Some(Self::Draining), None],
        }
    }
}

/// All pools with the ways to find them. Lists are in no particular order.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    all: Vec<Pool>,
    free: Vec<PoolIx>,
    /// By class: its pool of Idle and its pool of Speculative machines, or [`PoolIx::NONE`].
    free_of: Vec<[PoolIx; 2]>,
    /// All others by class and place.
    index: HashTable<PoolIx>,
    lists: Map<Listing, SmallVec<[PoolIx; 4]>>,
    /// By stamp: how many pools of any cluster are stamped, or created, so. Most gangs have none.
    stamped: Vec<u32>,
    dirty: Vec<PoolIx>,
    /// By pool: of some Configured member it may be known since when it is excess.
    clocks: Vec<bool>,
    lines: Lines,
    /// Pools brought in order since somebody asked.
    settled: Vec<PoolIx>,
}

impl Pools {
    pub(crate) fn get(&self, ix: PoolIx) -> &Pool {
        &self.all[ix.at()]
    }

    /// An upper bound of the indices in use.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many machines each pool has, by index.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|pool| u32::try_from(pool.members.len()).unwrap_or(u32::MAX))
    }

    pub(crate) fn find(&self, class: ClassIx, place: PlaceIx) -> Option<PoolIx> {
        if let Some(tier) = tier(place) {
            return self.free_of.get(class.at()).map(|of| of[tier]).filter(|ix| *ix != PoolIx::NONE);
        }
        let is_it = |ix: &PoolIx| (self.all[ix.at()].class, self.all[ix.at()].place) == (class, place);
        self.index.find(hash(class, place), is_it).copied()
    }

    /// Whether some machine is stamped, or created, for a Need of this fingerprint and group, whatever its cluster.
    pub(crate) fn is_stamped(&self, stamp: StampIx) -> bool {
        self.stamped.get(stamp.at()).is_some_and(|pools| *pools > 0)
    }

    fn count_stamp(&mut self, place: Place, change: i32) {
        let (Place::Bound(Binding { stamp, .. }) | Place::CreatingFor { stamp, .. }) = place else { return };
        if stamp.at() >= self.stamped.len() {
            self.stamped.resize(stamp.at() + 1, 0);
        }
        let pools = &mut self.stamped[stamp.at()];
        *pools = pools.saturating_add_signed(change);
    }

    fn list(&self, listing: Listing) -> &[PoolIx] {
        self.lists.get(&listing).map_or(&[], |list| list)
    }

    /// The bound pools of a cluster.
    pub(crate) fn bound(&self, cluster: ClusterIx) -> &[PoolIx] {
        self.list(Listing::Bound(cluster))
    }

    /// The bound pools with a Need's stamps.
    pub(crate) fn own_bound(&self, cluster: ClusterIx, stamp: StampIx) -> &[PoolIx] {
        self.list(Listing::OwnBound(cluster, stamp))
    }

    /// The pools that are created for any Need of a cluster.
    pub(crate) fn creating(&self, cluster: ClusterIx) -> &[PoolIx] {
        self.list(Listing::Creating(cluster))
    }

    /// The pools that are created for a Need.
    pub(crate) fn own_creating(&self, cluster: ClusterIx, stamp: StampIx) -> &[PoolIx] {
        self.list(Listing::OwnCreating(cluster, stamp))
    }

    /// The pools that drain for a preemption, or for a reason that nobody knows.
    pub(crate) fn draining(&self) -> &[PoolIx] {
        self.list(Listing::Draining)
    }

    /// The pools that are created for nobody known.
    pub(crate) fn creating_for_anyone(&self) -> &[PoolIx] {
        self.list(Listing::CreatingForAnyone)
    }

    /// Every pool with machines, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PoolIx, &Pool)> {
        let pools = self.all.iter().enumerate().filter(|(_, pool)| !pool.members.is_empty());
        pools.map(|(position, pool)| (PoolIx::new(position), pool))
    }

    /// Adds a machine. The caller records the pool it goes to, and settles before the next pass.
    pub(crate) fn join(&mut self, slot: Slot, class: ClassIx, place: PlaceIx, places: &Places) -> PoolIx {
        let ix = self.find(class, place).unwrap_or_else(|| self.open(class, place, places));
        self.all[ix.at()].members.push(slot);
        self.touch(ix);
        ix
    }

    /// Says whether clocks of excess may run in a pool.
    pub(crate) fn set_clocks(&mut self, ix: PoolIx, clocks: bool) {
        self.clocks[ix.at()] = clocks;
    }

    /// Whether clocks of excess may run in a pool.
    pub(crate) fn has_clocks(&self, ix: PoolIx) -> bool {
        self.clocks[ix.at()]
    }

    /// Notes that a member is leaving.
    pub(crate) fn leave(&mut self, ix: PoolIx) {
        if ix != PoolIx::NONE {
            self.all[ix.at()].shrunk = true;
            self.touch(ix);
        }
    }

    fn touch(&mut self, ix: PoolIx) {
        let pool = &mut self.all[ix.at()];
        if !pool.dirty {
            pool.dirty = true;
            self.dirty.push(ix);
        }
    }

    fn open(&mut self, class: ClassIx, place: PlaceIx, places: &Places) -> PoolIx {
        let mut pool =
            Pool { class, place, members: SmallVec::new(), listed: [0; 2], dirty: false, shrunk: false };
        let ix = self.free.pop().unwrap_or_else(|| PoolIx::new(self.all.len()));
        self.count_stamp(places.get(place), 1);
        for (which, listing) in Listing::of(places.get(place)).into_iter().enumerate() {
            if let Some(listing) = listing {
                let list = self.lists.entry(listing).or_default();
                pool.listed[which] = u32::try_from(list.len()).unwrap_or(u32::MAX);
                list.push(ix);
            }
        }
        if ix.at() == self.all.len() {
            self.all.push(pool);
            self.clocks.push(false);
        } else {
            self.all[ix.at()] = pool;
            self.clocks[ix.at()] = false;
        }
        if let Some(tier) = tier(place) {
            if class.at() >= self.free_of.len() {
                self.free_of.resize(class.at() + 1, [PoolIx::NONE; 2]);
            }
            self.free_of[class.at()][tier] = ix;
        } else {
            let all = &self.all;
            self.index
                .insert_unique(hash(class, place), ix, |ix| hash(all[ix.at()].class, all[ix.at()].place));
        }
        ix
    }

    fn close(&mut self, ix: PoolIx, places: &Places) {
        let Pool { class, place, listed, .. } = self.all[ix.at()];
        self.count_stamp(places.get(place), -1);
        if let Some(tier) = tier(place) {
            self.free_of[class.at()][tier] = PoolIx::NONE;
        } else if let Ok(entry) = self.index.find_entry(hash(class, place), |other| *other == ix) {
            entry.remove();
        }
        for (which, listing) in Listing::of(places.get(place)).into_iter().enumerate() {
            let Some(listing) = listing else { continue };
            let Some(list) = self.lists.get_mut(&listing) else { continue };
            let position = listed[which] as usize;
            list.swap_remove(position);
            if let Some(moved) = list.get(position) {
                self.all[moved.at()].listed[which] = listed[which];
            } else if list.is_empty() {
                self.lists.remove(&listing);
            }
        }
        self.free.push(ix);
    }

    /// The creditable bound machines with a Need's stamps, in keep order.
    pub(crate) fn line(&self, cluster: ClusterIx, stamp: StampIx) -> &[Standing] {
        self.lines.of((cluster, stamp))
    }

    /// Brings every changed pool and line in order; empty ones go. `pool_of` and `rank` are columns by [`Slot`].
    pub(crate) fn settle(&mut self, pool_of: &[PoolIx], rank: &[u32], places: &Places, classes: &Classes) {
        let mut dirty = std::mem::take(&mut self.dirty);
        self.settled.extend(&dirty);
        for ix in dirty.drain(..) {
            let pool = &mut self.all[ix.at()];
            pool.dirty = false;
            self.lines.touch(places.get(pool.place));
            if std::mem::take(&mut pool.shrunk) {
                pool.members.retain(|slot| pool_of[slot.at()] == ix);
            }
            if !pool.members.is_sorted_by_key(|slot| rank[slot.at()]) {
                pool.members.sort_unstable_by_key(|slot| rank[slot.at()]);
            }
            // A slot may have left and come back: it is then listed twice.
            pool.members.dedup();
            if pool.members.is_empty() {
                self.close(ix, places);
            }
        }
        self.dirty = dirty;
        let Self { lines, lists, all, .. } = self;
        let pools =
            |(cluster, stamp)| lists.get(&Listing::OwnBound(cluster, stamp)).map_or(&[][..], |list| list);
        lines.settle(pools, |ix| &all[ix.at()], rank, places, classes);
    }

    /// The pools, closed ones included, whose members changed since the last call. Perhaps repeatedly.
    pub(crate) fn take_settled(&mut self) -> Vec<PoolIx> {
        std::mem::take(&mut self.settled)
    }

    /// Gives the list back, to be filled again.
    pub(crate) fn reuse(&mut self, mut settled: Vec<PoolIx>) {
        settled.clear();
        self.settled = settled;
    }
}

/// Which of a class's two free pools a place is.
fn tier(place: PlaceIx) -> Option<usize> {
    match place {
        PlaceIx::IDLE => Some(0),
        PlaceIx::SPECULATIVE => Some(1),
        _ => None,
    }
}

fn hash(class: ClassIx, place: PlaceIx) -> u64 {
    FxBuildHasher.hash_one((class, place))
}
