//! Free pools in the order of acquisition, equal ones by the id of their first unclaimed machine.
//!
//! Thousands of racks may hold machines of equal cost. Claims only move the first unclaimed machine of a pool further
//! back, so the place that a pool had when it was last looked at is never too late: a walk looks at few pools, not at
//! all of them. What is given back is looked at again before the next walk.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::class::ClassIx;
use crate::intern::Map;
use crate::members::{PoolIx, Slot};
use crate::pass::{Pass, Step};

/// Where a pool stands: the position of its key, then the rank of its first unclaimed machine when it was last looked
/// at.
type Standing = (usize, u32);

/// Pools in order.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    /// Sorted, each once.
    keys: Vec<K>,
    /// The pools that have something left.
    order: BTreeSet<(Standing, PoolIx)>,
    /// Of every pool, those with nothing left included.
    standings: Map<PoolIx, Standing>,
    /// How many of the pools to which something was given back are looked at already.
    read: usize,
}

impl<K: Ord + Clone> Queue<K> {
    pub(super) fn new(pass: &mut Pass<'_>, pools: Vec<(K, PoolIx)>) -> Self {
        let mut pools = pools;
        pools.sort_unstable();
        let mut queue = Self {
            keys: Vec::new(),
            order: BTreeSet::new(),
            standings: Map::default(),
            read: pass.given_back().len(),
        };
        let mut order = Vec::with_capacity(pools.len());
        for (key, pool) in pools {
            if queue.keys.last() != Some(&key) {
                queue.keys.push(key);
            }
            let position = queue.keys.len() - 1;
            let rank = pass.head(pool).map(|slot| pass.fleet.rank(slot));
            queue.standings.insert(pool, (position, rank.unwrap_or(0)));
            order.extend(rank.map(|rank| ((position, rank), pool)));
        }
        queue.order = order.into_iter().collect();
        queue
    }

    /// Looks again at pools to which something was given back. Call it before each Need.
    pub(super) fn refresh(&mut self, pass: &mut Pass<'_>) {
        while let Some(pool) = pass.given_back().get(self.read).copied() {
            self.read += 1;
            if let Some(standing) = self.standings.get(&pool).copied() {
                self.order.remove(&(standing, pool));
                self.enter(pass, pool, standing.0);
            }
        }
    }

    /// The pools with their keys, in order.
    pub(super) fn pools(&self) -> impl Iterator<Item = (&K, PoolIx)> {
        self.order.iter().map(|((position, _), pool)| (&self.keys[*position], *pool))
    }

    /// The first pool of a key, with its rank.
    fn next(&self, position: usize) -> Option<(u32, PoolIx)> {
        let mut equals = self.order.range(((position, 0), PoolIx::FIRST)..((position + 1, 0), PoolIx::FIRST));
        equals.next().map(|((_, rank), pool)| (*rank, *pool))
    }

    /// Gives a pool that is not in the order its place there, if it has something left.
    fn enter(&mut self, pass: &mut Pass<'_>, pool: PoolIx, position: usize) {
        if let Some(slot) = pass.head(pool) {
            let standing = (position, pass.fleet.rank(slot));
            self.standings.insert(pool, standing);
            self.order.insert((standing, pool));
        }
    }

    /// Shows the unclaimed machines to a visitor, as [`Pass::walk`] does.
    pub(super) fn walk<'a>(
        &mut self,
        pass: &mut Pass<'a>,
        mut visit: impl FnMut(&mut Pass<'a>, Slot, ClassIx) -> Step,
    ) {
        let mut opened: Vec<PoolIx> = Vec::new();
        for position in 0..self.keys.len() {
            let mut heads: BinaryHeap<Reverse<(u32, Slot, PoolIx)>> = BinaryHeap::new();
            let stopped = loop {
                while let Some((bound, pool)) = self.next(position)
                    && heads.peek().is_none_or(|Reverse((rank, ..))| bound <= *rank)
                {
                    self.order.remove(&((position, bound), pool));
                    opened.push(pool);
                    heads.extend(pass.head(pool).map(|slot| Reverse((pass.fleet.rank(slot), slot, pool))));
                }
                let Some(Reverse((_, slot, pool))) = heads.pop() else { break false };
                match visit(pass, slot, pass.fleet.class_of(pool)) {
                    Step::Claimed => {
                        let head = pass.head(pool);
                        heads.extend(head.map(|slot| Reverse((pass.fleet.rank(slot), slot, pool))));
                    }
                    Step::SkipPool => {}
                    Step::Stop => break true,
                }
            };
            opened.drain(..).for_each(|pool| self.enter(pass, pool, position));
            if stopped {
                return;
            }
        }
    }

    /// The machine with the smallest id in the first pools of equal keys that have one. `allows` is asked for a pool
    /// of each key, `helps` for each pool.
    pub(super) fn first(
        &mut self,
        pass: &mut Pass<'_>,
        allows: impl Fn(&Pass<'_>, ClassIx) -> bool,
        helps: impl Fn(&Pass<'_>, ClassIx) -> bool,
    ) -> Option<Slot> {
        let mut opened: Vec<PoolIx> = Vec::new();
        for position in 0..self.keys.len() {
            let Some((_, any)) = self.next(position) else { continue };
            if !allows(pass, pass.fleet.class_of(any)) {
                continue;
            }
            let mut best: Option<(u32, Slot)> = None;
            while let Some((bound, pool)) = self.next(position)
                && best.is_none_or(|(rank, _)| bound <= rank)
            {
                self.order.remove(&((position, bound), pool));
                opened.push(pool);
                if helps(pass, pass.fleet.class_of(pool))
                    && let Some(slot) = pass.head(pool)
                {
                    let ranked = (pass.fleet.rank(slot), slot);
                    best = Some(best.map_or(ranked, |other| other.min(ranked)));
                }
            }
            opened.drain(..).for_each(|pool| self.enter(pass, pool, position));
            if let Some((_, slot)) = best {
                return Some(slot);
            }
        }
        None
    }
}
