//! One pass of decisions: who has claimed what so far, and how pools are walked.
//!
//! Claims only grow, but for the few that a Need gives back before the next one looks. So each pool has one cursor
//! that all Needs share, and a walk costs what it takes, not what others took before.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::claims::{Claim, Claims, Few, Stock};
use crate::class::{ClassIx, Classes};
use crate::cost::AcquireKey;
use crate::demand::{Demand, Row, RowIx};
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, KeyIx, Map, Symbols, ValueIx};
use crate::lanes::{LaneSet, Lanes};
use crate::ledger::{Minds, News, Rest, Resting};
use crate::lines::Standing;
use crate::matching::{Matching, ProfileIx};
use crate::members::{PoolIx, Slot};
use crate::phase1::{Lookout, Queue, SpreadKey, Universe};
use crate::place::{Place, PlaceIx};

/// Which free machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    Idle,
    Speculative,
}

impl Tier {
    /// In the order of acquisition.
    pub(crate) const ALL: [Self; 2] = [Self::Idle, Self::Speculative];

    /// Where such machines are.
    pub(crate) fn place(self) -> PlaceIx {
        match self {
            Self::Idle => PlaceIx::IDLE,
            Self::Speculative => PlaceIx::SPECULATIVE,
        }
    }
}

/// The state of one pass.
pub(crate) struct Pass<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) demand: &'a Demand,
    /// Those that had a turn, in precedence order, after folding; none before Phase 1 ended.
    pub(crate) rows: Vec<&'a Row>,
    pub(crate) symbols: &'a Symbols,
    pub(crate) matching: &'a mut Matching,
    claims: Claims,
    /// Who claims now.
    claimer: Claim,
    /// Rows without a turn.
    pub(crate) rest: Rest,
    /// How often a single machine was looked at.
    looked_at: u64,
    pub(crate) candidates: Map<(ProfileIx, LaneSet), Queue<AcquireKey>>,
    /// The same for Needs with an enforced spread.
    pub(crate) spread_candidates: Map<(ProfileIx, LaneSet), Queue<SpreadKey<'a>>>,
    /// By profile and floor.
    pub(crate) universes: RefCell<Map<(ProfileIx, Lanes), Universe>>,
    /// Kept from one pass to the next.
    pub(crate) lookout: Lookout,
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
    pub(crate) fn has(self, classes: &Classes, class: ClassIx) -> bool {
        classes.domain(class, self.key) == Some(self.value)
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
        rest: Rest,
        symbols: &'a Symbols,
        matching: &'a mut Matching,
        claims: Claims,
        lookout: Lookout,
    ) -> Self {
        Self {
            fleet,
            demand,
            rows: Vec::new(),
            symbols,
            matching,
            claims,
            claimer: Claim::NOBODY,
            rest,
            looked_at: 0,
            candidates: Map::default(),
            spread_candidates: Map::default(),
            universes: RefCell::default(),
            lookout,
            given_back: Vec::new(),
        }
    }

    /// The same pass before anything was claimed.
    pub(crate) fn anew(&mut self) -> Pass<'_> {
        let claims = Claims { live: self.claims.live.clone(), ..Claims::none(self.fleet) };
        let (rest, lookout) = (Rest::default(), Lookout::default());
        let mut pass = Pass::new(self.fleet, self.demand, rest, self.symbols, self.matching, claims, lookout);
        pass.rows.clone_from(&self.rows);
        pass
    }

    /// What outlives the pass.
    pub(crate) fn into_parts(self) -> (Claims, Lookout) {
        (self.claims, self.lookout)
    }

    /// How often a single machine was looked at so far.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// From now on claims are those of this row.
    pub(crate) fn serve(&mut self, row: RowIx) {
        self.claimer = Claim::of(row);
    }

    /// Wakes those of a row's cluster that rest behind it and may have machines that it could use: they keep what it
    /// leaves.
    pub(crate) fn wake_behind(&mut self, row: &Row) {
        let Self { fleet, matching, rest, claims, .. } = self;
        let give_up = |ix, slots: &[Slot]| claims.release(fleet, ix, slots, |_| ());
        let overlap = |own, other| {
            matching.look(other, &fleet.classes);
            matching.overlap(own, other)
        };
        rest.wake_behind(row, overlap, give_up);
    }

    /// Wakes those that rest behind a row and have machines that are stamped for it.
    pub(crate) fn wake_on_line(&mut self, row: &Row) {
        let Self { fleet, rest, claims, .. } = self;
        if !rest.is_in(row.cluster) {
            return;
        }
        let mut last = None;
        for standing in fleet.pools.line(row.cluster, row.stamp) {
            let claimer = claims.by_slot[standing.slot.at()].row();
            if claimer.is_some() && claimer != last {
                let give_up = |ix, slots: &[Slot]| claims.release(fleet, ix, slots, |_| ());
                rest.wake(row.cluster, |resting| Some(resting.ix) == claimer, give_up);
                last = claimer;
            }
        }
    }

    /// Says that a row claims these machines and not those that it claimed in the pass before.
    pub(crate) fn changed_hands(&mut self, ix: RowIx, row: &Row, before: &[Slot], now: &[Slot]) {
        if before == now || !self.rest.is_in(row.cluster) {
            return;
        }
        // Mostly it is the last ones that are others.
        let same = before.iter().zip(now).take_while(|(a, b)| a == b).count();
        let (before, now) = (&before[same..], &now[same..]);
        let mut had: SmallVec<[Slot; 8]> = before.into();
        had.sort_unstable();
        for slot in now.iter().filter(|slot| had.binary_search(slot).is_err()) {
            self.news(row.cluster, News { class: self.fleet.class(*slot), more: false });
        }
        for slot in before {
            let pool = self.fleet.pool(*slot);
            if pool != PoolIx::NONE && self.claims.by_slot[slot.at()] != Claim::of(ix) {
                self.news(row.cluster, News { class: self.fleet.class_of(pool), more: true });
            }
        }
    }

    /// Wakes those that rest behind and mind.
    fn news(&mut self, cluster: ClusterIx, news: News) {
        let Self { fleet, matching, rest, claims, .. } = self;
        if !rest.add_news(cluster, news) {
            return;
        }
        let give_up = |ix, slots: &[Slot]| claims.release(fleet, ix, slots, |_| ());
        let minds = |resting: &Resting| {
            resting.minds.minds(news.more) && {
                matching.look(resting.profile, &fleet.classes);
                matching.matches(resting.profile, news.class)
            }
        };
        rest.wake(cluster, minds, give_up);
    }

    /// Claims machines of a row that rested again. `false`: it has to look anew, for somebody has taken one, or something
    /// happened that it minds.
    pub(crate) fn has_again(&mut self, row: &Row, minds: Minds, machines: &[Slot]) -> bool {
        self.matching.look(row.profile, &self.fleet.classes);
        !self.rest.concerns(row.cluster, minds, self.matching.bits(row.profile)) && self.claim_again(machines)
    }

    /// From now on a claim only says that a Need counts on a draining machine.
    pub(crate) fn serve_nobody(&mut self) {
        self.claimer = Claim::COUNTED;
    }

    /// Which row claims a machine.
    pub(crate) fn claiming_row(&self, slot: Slot) -> Option<RowIx> {
        self.claims.claimer(slot)
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
        self.claim_in(slot, self.fleet.pool(slot));
    }

    /// Claims the first machines of a part of a row's line, at most so many, that match and that nobody claims. Says
    /// whether nobody had taken one of those passed.
    pub(crate) fn claim_first(
        &mut self,
        row: &Row,
        domain: Option<Domain>,
        line: &[Standing],
        most: usize,
        claimed: &mut Vec<Slot>,
    ) -> bool {
        let Claims { by_slot, free, .. } = &mut self.claims;
        let (mut class, mut is_useful, mut undisturbed) = (None, false, true);
        let (mut looked, mut left) = (0, most);
        for standing in line {
            if left == 0 {
                break;
            }
            looked += 1;
            if class != Some(standing.class) {
                let fits = self.matching.matches(row.profile, standing.class);
                is_useful =
                    fits && domain.is_none_or(|domain| domain.has(&self.fleet.classes, standing.class));
                class = Some(standing.class);
            }
            let claim = &mut by_slot[standing.slot.at()];
            if *claim != Claim::NOBODY {
                undisturbed = false;
            } else if is_useful {
                *claim = self.claimer;
                free[standing.pool.at()] -= 1;
                claimed.push(standing.slot);
                left -= 1;
            }
        }
        self.looked_at += looked;
        undisturbed
    }

    /// Claims the bound machines of a row again, unless somebody has taken one.
    fn claim_again(&mut self, machines: &[Slot]) -> bool {
        let untouched = machines.iter().all(|slot| !self.is_claimed(*slot));
        if untouched {
            machines.iter().for_each(|slot| self.claim(*slot));
        }
        untouched
    }

    /// Notes that so many machines were looked at.
    pub(crate) fn looked(&mut self, machines: usize) {
        self.looked_at += machines as u64;
    }

    /// Claims a machine whose pool is at hand.
    pub(crate) fn claim_in(&mut self, slot: Slot, ix: PoolIx) {
        debug_assert!(!self.is_claimed(slot), "a machine is claimed at most once");
        self.claims.by_slot[slot.at()] = self.claimer;
        if self.claimer == Claim::COUNTED {
            self.claims.counted.push(slot);
        }
        self.claims.free[ix.at()] -= 1;
        self.lookout.note(&self.fleet.pools, ix);
    }

    fn is_for_the_taking(&self, pool: PoolIx) -> bool {
        self.fleet.pools.get(pool).is_for_the_taking()
    }

    /// Which free machines a pool has, if any.
    pub(crate) fn tier(&self, pool: PoolIx) -> Option<Tier> {
        let place = self.fleet.pools.get(pool).place;
        Tier::ALL.into_iter().find(|tier| tier.place() == place)
    }

    /// The pools to which a free machine was given back so far.
    pub(crate) fn given_back(&self) -> &[PoolIx] {
        &self.given_back
    }

    /// Gives a claim back, for the Needs that follow.
    pub(crate) fn unclaim(&mut self, slot: Slot) {
        let ix = self.claims.give_back(self.fleet, slot);
        if self.is_for_the_taking(ix) {
            self.given_back.push(ix);
        }
        self.lookout.note(&self.fleet.pools, ix);
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

    /// The pools of a row's cluster with unclaimed machines that match, stamped for no Need of today.
    pub(crate) fn orphans(&mut self, row: &Row) -> Few {
        self.in_stock(row.cluster, |stock, claims, matching| {
            stock.orphans(|class| matching.matches(row.profile, class), |pool| claims.keep_in_stock(pool))
        })
    }

    /// The same, stamped for other Needs than this one.
    pub(crate) fn siblings(&mut self, row: &Row) -> Few {
        self.in_stock(row.cluster, |stock, claims, matching| {
            stock.siblings(matching.bits(row.profile), row.stamp, |pool| claims.keep_in_stock(pool))
        })
    }

    /// Looks into what a cluster has bound and may be unclaimed.
    fn in_stock(
        &mut self,
        cluster: ClusterIx,
        look: impl FnOnce(&mut Stock, &mut Claims, &Matching) -> Few,
    ) -> Few {
        let (fleet, claims) = (self.fleet, &mut self.claims);
        let mut stock = claims.open.remove(&cluster).unwrap_or_else(|| {
            let mut stock = Stock::default();
            for ix in fleet.pools.bound(cluster) {
                if claims.keep_in_stock(*ix)
                    && let Place::Bound(binding) = fleet.place(*ix)
                    && binding.creditable
                {
                    stock.enter(fleet.class_of(*ix), *ix, claims.named(binding));
                }
            }
            stock
        });
        let found = look(&mut stock, claims, self.matching);
        claims.open.insert(cluster, stock);
        found
    }

    /// Shows the unclaimed machines of pools to a visitor: pools by key, equal keys as if they were one pool in the
    /// order of ids. `pools` is sorted by key. Says whether the visitor stopped the walk.
    pub(crate) fn walk<K: Ord>(
        &mut self,
        pools: &[(K, PoolIx)],
        mut visit: impl FnMut(&mut Self, Slot, PoolIx) -> Step,
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

    fn walk_pool(&mut self, pool: PoolIx, visit: &mut impl FnMut(&mut Self, Slot, PoolIx) -> Step) -> bool {
        while let Some(slot) = self.head(pool) {
            match visit(self, slot, pool) {
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
        visit: &mut impl FnMut(&mut Self, Slot, PoolIx) -> Step,
    ) -> bool {
        let mut heads = BinaryHeap::with_capacity(pools.len());
        for (_, pool) in pools {
            heads.extend(self.head(*pool).map(|slot| Reverse((self.fleet.rank(slot), slot, *pool))));
        }
        while let Some(Reverse((_, slot, pool))) = heads.pop() {
            match visit(self, slot, pool) {
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
