//! One pass of decisions: who has claimed what so far, and how pools are walked.
//!
//! Claims only grow, but for the few that a Need gives back before the next one looks. So each pool has one cursor
//! that all Needs share, and a walk costs what it takes, not what others took before.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::class::ClassIx;
use crate::cost::AcquireKey;
use crate::demand::Row;
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, KeyIx, Map, Set, StampIx, Symbols, ValueIx};
use crate::lanes::{LaneSet, Lanes};
use crate::matching::{Matching, ProfileIx};
use crate::members::{PoolIx, Slot};
use crate::phase1::{Queue, Sight, SpreadOrder, Terrain, Universe};
use crate::place::{Place, PlaceIx};

/// Which free machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    Idle,
    Speculative,
}

/// A sorted list of acquisition candidates.
pub(crate) type Candidates = Vec<(AcquireKey, PoolIx)>;

/// The state of one pass.
pub(crate) struct Pass<'a> {
    pub(crate) fleet: &'a Fleet,
    /// In precedence order, after folding.
    pub(crate) rows: &'a [&'a Row],
    /// What machines may be stamped with that is not dead.
    live: Set<(ClusterIx, StampIx)>,
    pub(crate) symbols: &'a Symbols,
    pub(crate) matching: &'a mut Matching,
    claims: Vec<Claim>,
    /// Who claims now.
    claimer: Claim,
    /// By pool: how many members nobody claimed.
    free: Vec<u32>,
    /// By pool: every member before this position is claimed.
    cursor: Vec<usize>,
    /// Bound pools by cluster that may have unclaimed members.
    open: Map<ClusterIx, Vec<PoolIx>>,
    /// By pool: dropped from `open` because nothing was left.
    exhausted: Vec<bool>,
    /// How often a single machine was looked at.
    looked_at: u64,
    pub(crate) candidates: Map<(ProfileIx, Tier, LaneSet), Queue<AcquireKey>>,
    /// The same for Needs with an enforced spread, both tiers in one list.
    pub(crate) spread_candidates: Map<(ProfileIx, LaneSet), Queue<SpreadOrder<'a>>>,
    /// By profile and floor.
    pub(crate) universes: RefCell<Map<(ProfileIx, Lanes), Universe>>,
    /// Kept for the gangs that follow.
    pub(crate) terrains: Map<Sight, Terrain>,
    /// The pools of free machines in which something was claimed or given back, in the order of events, since
    /// somebody wants to know.
    notes: Option<Vec<PoolIx>>,
    /// The pools to which a free machine was given back, in the order of events.
    given_back: Vec<PoolIx>,
}

/// One value of a key, which a gang keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) key: KeyIx,
    pub(crate) value: ValueIx,
}

impl Domain {
    pub(crate) fn has(self, pass: &Pass<'_>, class: ClassIx) -> bool {
        pass.fleet.classes.domain(class, self.key) == Some(self.value)
    }
}

/// Who has claimed a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim(u32);

impl Claim {
    const NOBODY: Self = Self(u32::MAX);
    /// A Need counts on a draining machine without having it.
    const COUNTED: Self = Self(u32::MAX - 1);

    fn of(position: usize) -> Self {
        Self(u32::try_from(position).unwrap_or(u32::MAX))
    }

    fn row(self) -> Option<usize> {
        (self.0 < Self::COUNTED.0).then_some(self.0 as usize)
    }
}

/// All claims of a pass that is over.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_slot: Vec<Claim>,
    free: Vec<u32>,
}

impl Claims {
    /// Whether some Need has claimed the machine.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.by_slot.get(slot.at()).is_some_and(|claim| claim.row().is_some())
    }

    /// How many machines of a pool nobody claimed.
    pub(crate) fn free(&self, pool: PoolIx) -> u32 {
        self.free[pool.at()]
    }
}

/// What a visitor did with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claimed it; go on.
    Claimed,
    /// Does not want it, nor any other of its pool.
    SkipPool,
    /// Wants no more. The machine stays unclaimed.
    Stop,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        fleet: &'a Fleet,
        rows: &'a [&'a Row],
        symbols: &'a Symbols,
        matching: &'a mut Matching,
    ) -> Self {
        Self {
            fleet,
            rows,
            live: rows.iter().map(|row| (row.cluster, row.stamp)).collect(),
            symbols,
            matching,
            claims: vec![Claim::NOBODY; fleet.slots()],
            claimer: Claim::NOBODY,
            free: fleet.pools.sizes().collect(),
            cursor: vec![0; fleet.pools.len()],
            open: Map::default(),
            exhausted: vec![false; fleet.pools.len()],
            looked_at: 0,
            candidates: Map::default(),
            spread_candidates: Map::default(),
            universes: RefCell::default(),
            terrains: Map::default(),
            notes: None,
            given_back: Vec::new(),
        }
    }

    /// The claims of all Needs.
    pub(crate) fn into_claims(self) -> Claims {
        Claims { by_slot: self.claims, free: self.free }
    }

    /// How often a single machine was looked at so far.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// From now on claims are those of the row at this position.
    pub(crate) fn serve(&mut self, position: usize) {
        self.claimer = Claim::of(position);
    }

    /// From now on a claim only says that a Need counts on a draining machine.
    pub(crate) fn serve_nobody(&mut self) {
        self.claimer = Claim::COUNTED;
    }

    /// Whether a stamp names a Need that the cluster has now.
    pub(crate) fn is_live(&self, cluster: ClusterIx, stamp: StampIx) -> bool {
        self.live.contains(&(cluster, stamp))
    }

    /// The position of the row that claims a machine.
    pub(crate) fn claiming_row(&self, slot: Slot) -> Option<usize> {
        self.claims[slot.at()].row()
    }

    pub(crate) fn is_claimed(&self, slot: Slot) -> bool {
        self.claims[slot.at()] != Claim::NOBODY
    }

    /// How many machines of a pool are not claimed.
    pub(crate) fn free(&self, pool: PoolIx) -> u32 {
        self.free[pool.at()]
    }

    pub(crate) fn claim(&mut self, slot: Slot) {
        debug_assert!(!self.is_claimed(slot), "a machine is claimed at most once");
        self.claims[slot.at()] = self.claimer;
        let ix = self.fleet.pool(slot);
        self.free[ix.at()] -= 1;
        self.note(ix);
    }

    fn note(&mut self, pool: PoolIx) {
        if self.notes.is_some() && self.is_for_the_taking(pool) {
            self.notes.get_or_insert_default().push(pool);
        }
    }

    fn is_for_the_taking(&self, pool: PoolIx) -> bool {
        matches!(self.fleet.pools.get(pool).place, PlaceIx::IDLE | PlaceIx::SPECULATIVE)
    }

    /// The pools to which a free machine was given back so far.
    pub(crate) fn given_back(&self) -> &[PoolIx] {
        &self.given_back
    }

    /// From now on claims of free machines are noted. Gives the number of notes so far.
    pub(crate) fn note_free(&mut self) -> usize {
        self.notes.get_or_insert_default().len()
    }

    /// The notes from the given one on.
    pub(crate) fn noted(&self, from: usize) -> &[PoolIx] {
        self.notes.as_ref().and_then(|notes| notes.get(from..)).unwrap_or_default()
    }

    /// Gives a claim back, for the Needs that follow.
    pub(crate) fn unclaim(&mut self, slot: Slot) {
        self.claims[slot.at()] = Claim::NOBODY;
        let ix = self.fleet.pool(slot);
        self.free[ix.at()] += 1;
        if self.is_for_the_taking(ix) {
            self.given_back.push(ix);
        }
        self.note(ix);
        let pool = self.fleet.pools.get(ix);
        let rank = self.fleet.rank(slot);
        let position = pool.members().partition_point(|other| self.fleet.rank(*other) < rank);
        let cursor = &mut self.cursor[ix.at()];
        *cursor = (*cursor).min(position);
        if std::mem::take(&mut self.exhausted[ix.at()])
            && let Place::Bound(binding) = self.fleet.place(ix)
        {
            self.open.entry(binding.cluster).or_default().push(ix);
        }
    }

    /// The first unclaimed machine of a pool.
    pub(crate) fn head(&mut self, ix: PoolIx) -> Option<Slot> {
        let members = self.fleet.pools.get(ix).members();
        let cursor = &mut self.cursor[ix.at()];
        let ahead = members.get(*cursor..).unwrap_or_default();
        let skipped =
            ahead.iter().position(|slot| self.claims[slot.at()] == Claim::NOBODY).unwrap_or(ahead.len());
        *cursor += skipped;
        self.looked_at += skipped as u64 + 1;
        members.get(*cursor).copied()
    }

    /// Takes out the list of a cluster's bound pools with unclaimed members.
    pub(crate) fn take_open(&mut self, cluster: ClusterIx) -> Vec<PoolIx> {
        let all = || self.fleet.pools.bound(cluster).to_vec();
        let mut list = std::mem::take(self.open.entry(cluster).or_insert_with(all));
        list.retain(|ix| {
            let open = self.free[ix.at()] > 0;
            self.exhausted[ix.at()] = !open;
            open
        });
        list
    }

    /// Puts the list back.
    pub(crate) fn give_open(&mut self, cluster: ClusterIx, list: Vec<PoolIx>) {
        self.open.insert(cluster, list);
    }

    /// Shows the unclaimed machines of pools to a visitor: pools by key, equal keys as if they were one pool in the
    /// order of ids. `pools` is sorted by key. Says whether the visitor stopped the walk.
    pub(crate) fn walk<K: Ord>(
        &mut self,
        pools: &[(K, PoolIx)],
        mut visit: impl FnMut(&mut Self, Slot, ClassIx) -> Step,
    ) -> bool {
        for equals in pools.chunk_by(|a, b| a.0 == b.0) {
            let stopped = match equals {
                [(_, only)] => self.walk_pool(*only, &mut visit),
                _ => self.walk_merged(equals, &mut visit),
            };
            if stopped {
                return true;
            }
        }
        false
    }

    fn walk_pool(&mut self, pool: PoolIx, visit: &mut impl FnMut(&mut Self, Slot, ClassIx) -> Step) -> bool {
        let class = self.fleet.pools.get(pool).class;
        while let Some(slot) = self.head(pool) {
            match visit(self, slot, class) {
                Step::Claimed => {}
                Step::SkipPool => return false,
                Step::Stop => return true,
            }
        }
        false
    }

    fn walk_merged<K>(
        &mut self,
        pools: &[(K, PoolIx)],
        visit: &mut impl FnMut(&mut Self, Slot, ClassIx) -> Step,
    ) -> bool {
        let mut heads = BinaryHeap::with_capacity(pools.len());
        for (_, pool) in pools {
            heads.extend(self.head(*pool).map(|slot| Reverse((self.fleet.rank(slot), slot, *pool))));
        }
        while let Some(Reverse((_, slot, pool))) = heads.pop() {
            let class = self.fleet.pools.get(pool).class;
            match visit(self, slot, class) {
                Step::Claimed => {
                    heads.extend(self.head(pool).map(|next| Reverse((self.fleet.rank(next), next, pool))));
                }
                Step::SkipPool => {}
                Step::Stop => return true,
            }
        }
        false
    }
}
