//! Free pools in the order of acquisition, equal ones by the id of their first unclaimed machine.
//!
//! Thousands of racks may hold machines of equal cost. Claims only move the first unclaimed machine of a pool further
//! back, so the place that a pool had when it was last looked at is never too late: a walk looks at few pools, not at
//! all of them, and at none of those that cost more than what it finds. What is given back is looked at again before
//! the next walk.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use crate::class::ClassIx;
use crate::intern::Map;
use crate::members::{PoolIx, Slot};
use crate::pass::{Pass, Step};

/// Pools in order.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    /// By key.
    groups: Vec<Group<K>>,
    pools: Vec<PoolIx>,
    /// How many of the pools to which something was given back are looked at already.
    read: usize,
}

/// Pools of one key.
#[derive(Debug)]
struct Group<K> {
    key: K,
    /// Which pools.
    range: Range<usize>,
    /// Since the first walk got here.
    line: Option<Line>,
}

/// Pools of one key by the rank of their first unclaimed machine, when they were last looked at.
#[derive(Debug, Default)]
struct Line {
    /// Those that have something left.
    order: BTreeSet<(u32, PoolIx)>,
    ranks: Map<PoolIx, u32>,
}

impl Line {
    fn of(pass: &mut Pass<'_>, pools: &[PoolIx]) -> Self {
        let mut line = Self::default();
        let mut order = Vec::with_capacity(pools.len());
        for pool in pools.iter().filter(|pool| pass.free(**pool) > 0).copied().collect::<Vec<_>>() {
            if let Some(slot) = pass.head(pool) {
                order.push((pass.fleet.rank(slot), pool));
            }
        }
        line.ranks.extend(order.iter().map(|(rank, pool)| (*pool, *rank)));
        line.order = order.into_iter().collect();
        line
    }

    /// Gives a pool its place, if it has something left.
    fn enter(&mut self, pass: &mut Pass<'_>, pool: PoolIx) {
        if let Some(rank) = self.ranks.remove(&pool) {
            self.order.remove(&(rank, pool));
        }
        if let Some(slot) = pass.head(pool) {
            let rank = pass.fleet.rank(slot);
            self.ranks.insert(pool, rank);
            self.order.insert((rank, pool));
        }
    }
}

impl<K: Ord> Queue<K> {
    /// `sorted`: by key.
    pub(super) fn new(pass: &Pass<'_>, sorted: impl IntoIterator<Item = (K, PoolIx)>) -> Self {
        let (mut groups, mut pools): (Vec<Group<K>>, Vec<PoolIx>) = Default::default();
        for (key, pool) in sorted {
            let at = pools.len();
            pools.push(pool);
            match groups.last_mut() {
                Some(group) if group.key == key => group.range.end = at + 1,
                _ => groups.push(Group { key, range: at..at + 1, line: None }),
            }
        }
        Self { groups, pools, read: pass.given_back().len() }
    }

    /// Looks again at pools to which something was given back. Call it before each Need. `key`: that of a pool, if it
    /// may be in here.
    pub(super) fn refresh<'a>(&mut self, pass: &mut Pass<'a>, key: impl Fn(&Pass<'a>, PoolIx) -> Option<K>) {
        while let Some(pool) = pass.given_back().get(self.read).copied() {
            self.read += 1;
            if let Some(key) = key(pass, pool)
                && let Ok(at) = self.groups.binary_search_by(|group| group.key.cmp(&key))
                && let Some(line) = &mut self.groups[at].line
            {
                line.enter(pass, pool);
            }
        }
    }

    fn line(&mut self, pass: &mut Pass<'_>, position: usize) -> Line {
        let Group { range, line, .. } = &mut self.groups[position];
        line.take().unwrap_or_else(|| Line::of(pass, &self.pools[range.clone()]))
    }

    /// Shows the unclaimed machines to a visitor, as [`Pass::walk`] does.
    pub(super) fn walk<'a>(
        &mut self,
        pass: &mut Pass<'a>,
        mut visit: impl FnMut(&mut Pass<'a>, Slot, PoolIx) -> Step,
    ) {
        let mut opened: Vec<PoolIx> = Vec::new();
        for position in 0..self.groups.len() {
            let mut line = self.line(pass, position);
            let mut heads: BinaryHeap<Reverse<(u32, Slot, PoolIx)>> = BinaryHeap::new();
            let stopped = loop {
                while let Some((bound, pool)) = line.order.first().copied()
                    && heads.peek().is_none_or(|Reverse((rank, ..))| bound <= *rank)
                {
                    line.order.pop_first();
                    opened.push(pool);
                    heads.extend(pass.head(pool).map(|slot| Reverse((pass.fleet.rank(slot), slot, pool))));
                }
                let Some(Reverse((_, slot, pool))) = heads.pop() else { break false };
                match visit(pass, slot, pool) {
                    Step::Claimed => {
                        let head = pass.head(pool);
                        heads.extend(head.map(|slot| Reverse((pass.fleet.rank(slot), slot, pool))));
                    }
                    Step::SkipPool => {}
                    Step::Stop => break true,
                }
            };
            opened.drain(..).for_each(|pool| line.enter(pass, pool));
            self.groups[position].line = Some(line);
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
        for position in 0..self.groups.len() {
            let any = self.pools[self.groups[position].range.start];
            if !allows(pass, pass.fleet.class_of(any)) {
                continue;
            }
            let mut line = self.line(pass, position);
            let mut best: Option<(u32, Slot)> = None;
            while let Some((bound, pool)) = line.order.first().copied()
                && best.is_none_or(|(rank, _)| bound <= rank)
            {
                line.order.pop_first();
                opened.push(pool);
                if helps(pass, pass.fleet.class_of(pool))
                    && let Some(slot) = pass.head(pool)
                {
                    let ranked = (pass.fleet.rank(slot), slot);
                    best = Some(best.map_or(ranked, |other| other.min(ranked)));
                }
            }
            opened.drain(..).for_each(|pool| line.enter(pass, pool));
            self.groups[position].line = Some(line);
            if let Some((_, slot)) = best {
                return Some(slot);
            }
        }
        None
    }
}
