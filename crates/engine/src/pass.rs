//! One pass of decisions: who has claimed what so far, and how pools are walked.
//!
//! Claims only grow, but for the few that a Need gives back before the next one looks. So each pool has one cursor
//! that all Needs share, and a walk costs what it takes, not what others took before.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::class::ClassIx;
use crate::cost::AcquireKey;
use crate::demand::{Demand, Row, RowIx};
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
    pub(crate) demand: &'a Demand,
    /// Those that have a turn, in precedence order, after folding.
    pub(crate) rows: &'a [&'a Row],
    pub(crate) symbols: &'a Symbols,
    pub(crate) matching: &'a mut Matching,
    claims: Claims,
    /// Who claims now.
    claimer: Claim,
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

    fn of(row: RowIx) -> Self {
        Self(u32::try_from(row.at()).unwrap_or(u32::MAX))
    }

    fn row(self) -> Option<RowIx> {
        (self.0 < Self::COUNTED.0).then(|| RowIx::new(self.0 as usize))
    }
}

/// All claims, from one pass to the next.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_slot: Vec<Claim>,
    /// What machines may be stamped with that is not dead.
    pub(crate) live: Set<(ClusterIx, StampIx)>,
    /// By pool: how many members nobody claimed.
    free: Vec<u32>,
    /// By pool: every member before this position is claimed.
    cursor: Vec<u32>,
    /// Bound pools by cluster that may have unclaimed members.
    open: Map<ClusterIx, Vec<PoolIx>>,
    /// By pool: dropped from `open` because nothing was left.
    exhausted: Vec<bool>,
    /// Draining machines that some Need counts on.
    counted: Vec<Slot>,
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

    /// Whether some Need has claimed the machine.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.by_slot.get(slot.at()).is_some_and(|claim| claim.row().is_some())
    }

    /// By slot: whether some Need has claimed the machine.
    pub(crate) fn by_slot(&self) -> Vec<bool> {
        self.by_slot.iter().map(|claim| claim.row().is_some()).collect()
    }

    /// How many machines of a pool nobody claimed.
    pub(crate) fn free(&self, pool: PoolIx) -> u32 {
        self.free[pool.at()]
    }

    /// Gives back those of a row's claims that it has still.
    pub(crate) fn release(&mut self, fleet: &Fleet, row: RowIx, slots: &[Slot]) {
        for slot in slots {
            if self.by_slot[slot.at()] == Claim::of(row) {
                self.give_back(fleet, *slot);
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

    /// Forgets which bound pools of a cluster are used up.
    pub(crate) fn reopen(&mut self, cluster: ClusterIx) {
        self.open.remove(&cluster);
    }

    fn give_back(&mut self, fleet: &Fleet, slot: Slot) -> PoolIx {
        self.by_slot[slot.at()] = Claim::NOBODY;
        let ix = fleet.pool(slot);
        self.free[ix.at()] += 1;
        let rank = fleet.rank(slot);
        let position = fleet.pools.get(ix).members().partition_point(|other| fleet.rank(*other) < rank);
        let cursor = &mut self.cursor[ix.at()];
        *cursor = (*cursor).min(u32::try_from(position).unwrap_or(u32::MAX));
        if std::mem::take(&mut self.exhausted[ix.at()])
            && let Place::Bound(binding) = fleet.place(ix)
        {
            self.open.entry(binding.cluster).or_default().push(ix);
        }
        ix
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
        demand: &'a Demand,
        rows: &'a [&'a Row],
        symbols: &'a Symbols,
        matching: &'a mut Matching,
        claims: Claims,
    ) -> Self {
        Self {
            fleet,
            demand,
            rows,
            symbols,
            matching,
            claims,
            claimer: Claim::NOBODY,
            looked_at: 0,
            candidates: Map::default(),
            spread_candidates: Map::default(),
            universes: RefCell::default(),
            terrains: Map::default(),
            notes: None,
            given_back: Vec::new(),
        }
    }

    /// The same pass before anything was claimed.
    pub(crate) fn anew(&mut self) -> Pass<'_> {
        let claims = Claims { live: self.claims.live.clone(), ..Claims::none(self.fleet) };
        Pass::new(self.fleet, self.demand, self.rows, self.symbols, self.matching, claims)
    }

    /// The claims of all Needs.
    pub(crate) fn into_claims(self) -> Claims {
        self.claims
    }

    /// How often a single machine was looked at so far.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// From now on claims are those of this row.
    pub(crate) fn serve(&mut self, row: RowIx) {
        self.claimer = Claim::of(row);
    }

    /// From now on a claim only says that a Need counts on a draining machine.
    pub(crate) fn serve_nobody(&mut self) {
        self.claimer = Claim::COUNTED;
    }

    /// Whether a stamp names a Need that the cluster has now.
    pub(crate) fn is_live(&self, cluster: ClusterIx, stamp: StampIx) -> bool {
        self.claims.live.contains(&(cluster, stamp))
    }

    /// Which row claims a machine.
    pub(crate) fn claiming_row(&self, slot: Slot) -> Option<RowIx> {
        self.claims.by_slot[slot.at()].row()
    }

    /// The row that claims a machine.
    pub(crate) fn claimant(&self, slot: Slot) -> Option<&'a Row> {
        self.demand.row(self.claiming_row(slot)?)
    }

    pub(crate) fn is_claimed(&self, slot: Slot) -> bool {
        self.claims.by_slot[slot.at()] != Claim::NOBODY
    }

    /// How many machines of a pool are not claimed.
    pub(crate) fn free(&self, pool: PoolIx) -> u32 {
        self.claims.free[pool.at()]
    }

    pub(crate) fn claim(&mut self, slot: Slot) {
        debug_assert!(!self.is_claimed(slot), "a machine is claimed at most once");
        self.claims.by_slot[slot.at()] = self.claimer;
        if self.claimer == Claim::COUNTED {
            self.claims.counted.push(slot);
        }
        let ix = self.fleet.pool(slot);
        self.claims.free[ix.at()] -= 1;
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
        let ix = self.claims.give_back(self.fleet, slot);
        if self.is_for_the_taking(ix) {
            self.given_back.push(ix);
        }
        self.note(ix);
    }

    /// The first unclaimed machine of a pool.
    pub(crate) fn head(&mut self, ix: PoolIx) -> Option<Slot> {
        let members = self.fleet.pools.get(ix).members();
        let Claims { by_slot, cursor, .. } = &mut self.claims;
        let cursor = &mut cursor[ix.at()];
        let ahead = members.get(*cursor as usize..).unwrap_or_default();
        let skipped =
            ahead.iter().position(|slot| by_slot[slot.at()] == Claim::NOBODY).unwrap_or(ahead.len());
        *cursor = cursor.saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
        self.looked_at += skipped as u64 + 1;
        members.get(*cursor as usize).copied()
    }

    /// Takes out the list of a cluster's bound pools with unclaimed members.
    pub(crate) fn take_open(&mut self, cluster: ClusterIx) -> Vec<PoolIx> {
        let all = || self.fleet.pools.bound(cluster).to_vec();
        let Claims { open, free, exhausted, .. } = &mut self.claims;
        let mut list = std::mem::take(open.entry(cluster).or_insert_with(all));
        list.retain(|ix| {
            let open = free[ix.at()] > 0;
            exhausted[ix.at()] = !open;
            open
        });
        list
    }

    /// Puts the list back.
    pub(crate) fn give_open(&mut self, cluster: ClusterIx, list: Vec<PoolIx>) {
        self.claims.open.insert(cluster, list);
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
