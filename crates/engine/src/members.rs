//! Pools: the machines of one class in one place, in the byte order of their ids.
//!
//! A pool is what a phase walks. All members of a pool are equal to every Need but for the id, so a test that fails
//! for one fails for all, and one cursor a pass tells which of them are taken.

use smallvec::SmallVec;

use crate::class::ClassIx;
use crate::intern::{ClusterIx, Map, StampIx, index};
use crate::place::Place;

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

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) class: ClassIx,
    pub(crate) place: Place,
    /// Sorted by rank once settled.
    members: Vec<Slot>,
    dirty: bool,
}

impl Pool {
    /// The members in the order of their ids.
    pub(crate) fn members(&self) -> &[Slot] {
        &self.members
    }
}

type Few = SmallVec<[PoolIx; 4]>;

/// All pools with the ways to find them. Lists are in no particular order.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    all: Vec<Pool>,
    free: Vec<PoolIx>,
    by_key: Map<(ClassIx, Place), PoolIx>,
    bound: Map<ClusterIx, Vec<PoolIx>>,
    own_bound: Map<(ClusterIx, StampIx), Few>,
    creating: Map<ClusterIx, Vec<PoolIx>>,
    own_creating: Map<(ClusterIx, StampIx), Few>,
    draining: Vec<PoolIx>,
    creating_for_anyone: Vec<PoolIx>,
    dirty: Vec<PoolIx>,
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

    pub(crate) fn find(&self, class: ClassIx, place: Place) -> Option<PoolIx> {
        self.by_key.get(&(class, place)).copied()
    }

    /// The bound pools of a cluster.
    pub(crate) fn bound(&self, cluster: ClusterIx) -> &[PoolIx] {
        self.bound.get(&cluster).map_or(&[], |list| list)
    }

    /// The bound pools with a Need's stamps.
    pub(crate) fn own_bound(&self, cluster: ClusterIx, stamp: StampIx) -> &[PoolIx] {
        self.own_bound.get(&(cluster, stamp)).map_or(&[], |list| list)
    }

    /// The pools that are created for any Need of a cluster.
    pub(crate) fn creating(&self, cluster: ClusterIx) -> &[PoolIx] {
        self.creating.get(&cluster).map_or(&[], |list| list)
    }

    /// The pools that drain for a preemption, or for a reason that nobody knows.
    pub(crate) fn draining(&self) -> &[PoolIx] {
        &self.draining
    }

    /// Every bound pool, in no particular order.
    pub(crate) fn all_bound(&self) -> impl Iterator<Item = PoolIx> {
        self.bound.values().flatten().copied()
    }

    /// The pools that are created for a Need.
    pub(crate) fn own_creating(&self, cluster: ClusterIx, stamp: StampIx) -> &[PoolIx] {
        self.own_creating.get(&(cluster, stamp)).map_or(&[], |list| list)
    }

    /// The pools that are created for nobody known.
    pub(crate) fn creating_for_anyone(&self) -> &[PoolIx] {
        &self.creating_for_anyone
    }

    /// Adds a machine. The caller records the pool it goes to, and settles before the next pass.
    pub(crate) fn join(&mut self, slot: Slot, class: ClassIx, place: Place) -> PoolIx {
        let ix = self.find(class, place).unwrap_or_else(|| self.open(class, place));
        self.all[ix.at()].members.push(slot);
        self.touch(ix);
        ix
    }

    /// Notes that a member is leaving.
    pub(crate) fn leave(&mut self, ix: PoolIx) {
        if ix != PoolIx::NONE {
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

    fn open(&mut self, class: ClassIx, place: Place) -> PoolIx {
        let pool = Pool { class, place, members: Vec::new(), dirty: false };
        let ix = if let Some(ix) = self.free.pop() {
            self.all[ix.at()] = pool;
            ix
        } else {
            self.all.push(pool);
            PoolIx::new(self.all.len() - 1)
        };
        self.by_key.insert((class, place), ix);
        match place {
            Place::Idle | Place::Speculative => {}
            Place::Bound(binding) => {
                self.bound.entry(binding.cluster).or_default().push(ix);
                self.own_bound.entry((binding.cluster, binding.stamp)).or_default().push(ix);
            }
            Place::CreatingFor { cluster, stamp, .. } => {
                self.creating.entry(cluster).or_default().push(ix);
                self.own_creating.entry((cluster, stamp)).or_default().push(ix);
            }
            Place::CreatingForAnyone => self.creating_for_anyone.push(ix),
            Place::Draining(_) => self.draining.push(ix),
        }
        ix
    }

    fn close(&mut self, ix: PoolIx) {
        let Pool { class, place, .. } = self.all[ix.at()];
        self.by_key.remove(&(class, place));
        self.free.push(ix);
        match place {
            Place::Idle | Place::Speculative => {}
            Place::Bound(binding) => {
                if let Some(list) = self.bound.get_mut(&binding.cluster) {
                    list.retain(|other| *other != ix);
                }
                forget(&mut self.own_bound, (binding.cluster, binding.stamp), ix);
            }
            Place::CreatingFor { cluster, stamp, .. } => {
                if let Some(list) = self.creating.get_mut(&cluster) {
                    list.retain(|other| *other != ix);
                }
                forget(&mut self.own_creating, (cluster, stamp), ix);
            }
            Place::CreatingForAnyone => self.creating_for_anyone.retain(|other| *other != ix),
            Place::Draining(_) => self.draining.retain(|other| *other != ix),
        }
    }

    /// Brings every changed pool in order; empty ones go. `pool_of` and `rank` are columns by [`Slot`].
    pub(crate) fn settle(&mut self, pool_of: &[PoolIx], rank: &[u32]) {
        for ix in std::mem::take(&mut self.dirty) {
            let pool = &mut self.all[ix.at()];
            pool.dirty = false;
            // A slot may have left and come back: it is then listed twice.
            pool.members.retain(|slot| pool_of[slot.at()] == ix);
            pool.members.sort_by_key(|slot| rank[slot.at()]);
            pool.members.dedup();
            if pool.members.is_empty() {
                self.close(ix);
            }
        }
    }
}

fn forget(lists: &mut Map<(ClusterIx, StampIx), Few>, key: (ClusterIx, StampIx), ix: PoolIx) {
    if let Some(list) = lists.get_mut(&key) {
        list.retain(|other| *other != ix);
        if list.is_empty() {
            lists.remove(&key);
        }
    }
}
