//! Who claims which machine, from one pass to the next.

use smallvec::SmallVec;

use crate::ahead;
use crate::class::ClassIx;
use crate::demand::RowIx;
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, Map, Set, StampIx};
use crate::members::{PoolIx, Slot};
use crate::place::{Binding, Place};

/// Who has claimed a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim(u32);

impl Claim {
    pub(crate) const NOBODY: Self = Self(u32::MAX);
    /// A Need counts on a draining machine without having it.
    pub(crate) const COUNTED: Self = Self(u32::MAX - 1);

    pub(crate) fn of(row: RowIx) -> Self {
        Self(u32::try_from(row.at()).unwrap_or(u32::MAX))
    }

    pub(crate) fn row(self) -> Option<RowIx> {
        (self.0 < Self::COUNTED.0).then(|| RowIx::new(self.0 as usize))
    }
}

/// Creditable bound pools of one cluster that may have unclaimed members.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Stamped for no Need of today.
    orphans: Vec<(ClassIx, PoolIx)>,
    /// Stamped for Needs of today, in ascending order.
    named: Vec<Block>,
}

/// Pools of up to 64 classes, so that a profile is compared with all of them at once.
#[derive(Debug)]
struct Block {
    /// Which word of a set of classes this is.
    word: usize,
    /// The classes that have a shelf.
    bits: u64,
    /// By class.
    shelves: Vec<SmallVec<[(StampIx, PoolIx); 2]>>,
}

impl Block {
    /// Where the shelf of a class is, given by its bit.
    fn place(&self, bit: u64) -> usize {
        (self.bits & (bit - 1)).count_ones() as usize
    }
}

impl Stock {
    /// Adds a pool. `named`: the Need of today that it is stamped for.
    pub(crate) fn enter(&mut self, class: ClassIx, pool: PoolIx, named: Option<StampIx>) {
        let Some(stamp) = named else {
            self.orphans.push((class, pool));
            return;
        };
        let (word, bit) = (class.at() / 64, 1 << (class.at() % 64));
        let at = self.named.binary_search_by_key(&word, |block| block.word).unwrap_or_else(|at| {
            self.named.insert(at, Block { word, bits: 0, shelves: Vec::new() });
            at
        });
        let block = &mut self.named[at];
        let shelf = block.place(bit);
        if block.bits & bit == 0 {
            block.bits |= bit;
            block.shelves.insert(shelf, SmallVec::new());
        }
        block.shelves[shelf].push((stamp, pool));
    }

    /// The orphans of classes that match. Those that are not to be kept go out of stock.
    pub(crate) fn orphans(
        &mut self,
        matches: impl Fn(ClassIx) -> bool,
        mut keep: impl FnMut(PoolIx) -> bool,
    ) -> Few {
        let mut found = Few::new();
        self.orphans.retain(|(class, pool)| {
            if !matches(*class) {
                return true;
            }
            let stays = keep(*pool);
            if stays {
                found.push(*pool);
            }
            stays
        });
        found
    }

    /// The pools of the classes of a set, one bit each, that are stamped for other Needs than this one. Those that are not
    /// to be kept go out of stock.
    pub(crate) fn siblings(
        &mut self,
        classes: &[u64],
        own: StampIx,
        mut keep: impl FnMut(PoolIx) -> bool,
    ) -> Few {
        let mut found = Few::new();
        for block in &mut self.named {
            let mut hits = block.bits & classes.get(block.word).copied().unwrap_or(0);
            while hits != 0 {
                let bit = hits & hits.wrapping_neg();
                hits ^= bit;
                let shelf = block.place(bit);
                let pools = &mut block.shelves[shelf];
                pools.retain(|(_, pool)| keep(*pool));
                found.extend(pools.iter().filter(|(stamp, _)| *stamp != own).map(|(_, pool)| *pool));
            }
        }
        found
    }
}

/// A few pools, in no particular order.
pub(crate) type Few = SmallVec<[PoolIx; 8]>;

/// All claims, from one pass to the next.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) by_slot: Vec<Claim>,
    /// What machines may be stamped with that is not dead.
    pub(crate) live: Set<(ClusterIx, StampIx)>,
    /// By pool: how many members nobody claimed.
    pub(crate) free: Vec<u32>,
    /// By pool: every member before this position is claimed.
    pub(crate) cursor: Vec<u32>,
    /// By cluster.
    pub(crate) open: Map<ClusterIx, Stock>,
    /// By pool: dropped from `open` because nothing was left.
    pub(crate) exhausted: Vec<bool>,
    /// Draining machines that some Need counts on.
    pub(crate) counted: Vec<Slot>,
}

impl Claims {
    /// Nobody claims anything.
    pub(crate) fn none(fleet: &Fleet) -> Self {
        let mut claims = Self::default();
        claims.start_over(fleet);
        claims
    }

    /// Gives every claim back and takes in the fleet as it is now.
    pub(crate) fn start_over(&mut self, fleet: &Fleet) {
        let pools = fleet.pools.len();
        self.by_slot.clear();
        self.by_slot.resize(fleet.slots(), Claim::NOBODY);
        self.live.clear();
        self.free.clear();
        self.free.extend(fleet.pools.sizes());
        self.cursor.clear();
        self.cursor.resize(pools, 0);
        self.open.clear();
        self.exhausted.clear();
        self.exhausted.resize(pools, false);
        self.counted.clear();
    }

    /// Takes in what became of the fleet: these machines left their pools, and these pools have other members now.
    pub(crate) fn catch_up(&mut self, fleet: &Fleet, moved: &[Slot], settled: &[PoolIx]) {
        self.by_slot.resize(fleet.slots(), Claim::NOBODY);
        moved.iter().for_each(|slot| self.by_slot[slot.at()] = Claim::NOBODY);
        let pools = fleet.pools.len();
        self.free.resize(pools, 0);
        self.cursor.resize(pools, 0);
        self.exhausted.resize(pools, false);
        for ix in settled {
            let members = fleet.pools.get(*ix).members().iter();
            let free = members.filter(|slot| self.by_slot[slot.at()] == Claim::NOBODY).count();
            self.free[ix.at()] = u32::try_from(free).unwrap_or(u32::MAX);
            self.cursor[ix.at()] = 0;
            self.exhausted[ix.at()] = false;
        }
    }

    /// Which row claims a machine.
    pub(crate) fn claimer(&self, slot: Slot) -> Option<RowIx> {
        self.by_slot.get(slot.at())?.row()
    }

    /// Whether some Need has claimed the machine.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.claimer(slot).is_some()
    }

    /// By slot: whether some Need has claimed the machine.
    pub(crate) fn by_slot(&self) -> Vec<bool> {
        self.by_slot.iter().map(|claim| claim.row().is_some()).collect()
    }

    /// How many machines of a pool nobody claimed.
    pub(crate) fn free(&self, pool: PoolIx) -> u32 {
        self.free[pool.at()]
    }

    /// Has what is known of machines brought near.
    pub(crate) fn fetch(&self, fleet: &Fleet, slots: &[Slot]) {
        for slot in slots {
            ahead::fetch(self.by_slot[slot.at()]);
            ahead::fetch(fleet.pool(*slot));
        }
    }

    /// Gives back those of a row's claims that it has still, and names the pools.
    pub(crate) fn release(
        &mut self,
        fleet: &Fleet,
        row: RowIx,
        slots: &[Slot],
        mut given_back: impl FnMut(PoolIx),
    ) {
        for slot in slots {
            if self.by_slot[slot.at()] == Claim::of(row) {
                given_back(self.give_back(fleet, *slot));
            }
        }
    }

    /// Forgets on which draining machines Needs count.
    pub(crate) fn release_counted(&mut self, fleet: &Fleet) {
        for slot in std::mem::take(&mut self.counted) {
            if self.by_slot[slot.at()] == Claim::COUNTED {
                self.give_back(fleet, slot);
            }
        }
    }

    /// Whether a pool has unclaimed members, so that it stays in stock. It comes back with what is given back.
    pub(crate) fn keep_in_stock(&mut self, pool: PoolIx) -> bool {
        let has_some = self.free[pool.at()] > 0;
        self.exhausted[pool.at()] = !has_some;
        has_some
    }

    /// Forgets what was in stock in a cluster.
    pub(crate) fn forget_stock(&mut self, cluster: ClusterIx) {
        self.open.remove(&cluster);
    }

    pub(crate) fn give_back(&mut self, fleet: &Fleet, slot: Slot) -> PoolIx {
        self.by_slot[slot.at()] = Claim::NOBODY;
        let ix = fleet.pool(slot);
        self.free[ix.at()] += 1;
        let pool = fleet.pools.get(ix);
        let position = if pool.is_for_the_taking() {
            let rank = fleet.rank(slot);
            pool.members().partition_point(|other| fleet.rank(*other) < rank)
        } else {
            // Such pools are small.
            0
        };
        let cursor = &mut self.cursor[ix.at()];
        *cursor = (*cursor).min(u32::try_from(position).unwrap_or(u32::MAX));
        if std::mem::take(&mut self.exhausted[ix.at()])
            && let Place::Bound(binding) = fleet.place(ix)
            && let Some(stock) = self.open.get_mut(&binding.cluster)
        {
            stock.enter(fleet.class_of(ix), ix, named(&self.live, binding));
        }
        ix
    }

    /// The Need of today that machines so bound are stamped for.
    pub(crate) fn named(&self, binding: Binding) -> Option<StampIx> {
        named(&self.live, binding)
    }
}

fn named(live: &Set<(ClusterIx, StampIx)>, binding: Binding) -> Option<StampIx> {
    live.contains(&(binding.cluster, binding.stamp)).then_some(binding.stamp)
}
