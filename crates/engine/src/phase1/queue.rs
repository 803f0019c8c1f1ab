//! Free pools in the order of acquisition, equal ones by the id of their first unclaimed machine.
//!
//! Thousands of racks may hold machines of equal cost. Claims only move the first unclaimed machine of a pool further
//! back, so the place that a pool had when it was last looked at is never too late: a walk looks at few pools, not at
//! all of them, and at none of those that cost more than what it finds. What is given back is looked at again before
//! the next walk.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use crate::class::ClassIx;
use crate::intern::Map;
use crate::members::{PoolIx, Slot};
use crate::pass::{Pass, Step, Tier};

/// Classes, those of equal keys together. They say in which order free machines are taken, not whether there are any.
#[derive(Debug)]
pub(super) struct Order<K> {
    /// By tier and key, with the places of the classes.
    groups: Vec<((Tier, K), Range<usize>)>,
    classes: Vec<ClassIx>,
}

impl<K: PartialEq> Order<K> {
    /// `sorted`: by tier and key.
    pub(super) fn of(sorted: impl IntoIterator<Item = ((Tier, K), ClassIx)>) -> Self {
        let mut groups: Vec<((Tier, K), Range<usize>)> = Vec::new();
        let mut classes: Vec<ClassIx> = Vec::new();
        for (key, class) in sorted {
            classes.push(class);
            match groups.last_mut() {
                Some((last, range)) if *last == key => range.end = classes.len(),
                _ => groups.push((key, classes.len() - 1..classes.len())),
            }
        }
        Self { groups, classes }
    }

    /// All of it, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&(Tier, K), ClassIx)> {
        let classes = |range: &Range<usize>| self.classes[range.clone()].iter().copied();
        self.groups.iter().flat_map(move |(key, range)| classes(range).map(move |class| (key, class)))
    }
}

/// The free pools of classes in order.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    order: Arc<Order<K>>,
    /// By place of the group. Only those that some walk reached.
    lines: Map<usize, Line>,
    /// How many of the pools to which something was given back are looked at already.
    read: usize,
}

/// Pools that do not help a Need which asks for one machine after the other, with the places of their groups.
#[derive(Debug, Default)]
pub(super) struct Aside(Vec<(usize, (u32, PoolIx))>);

/// Pools of one key by the rank of their first unclaimed machine, when they were last looked at.
#[derive(Debug, Default)]
struct Line {
    /// Those that have something left.
    order: BTreeSet<(u32, PoolIx)>,
    ranks: Map<PoolIx, u32>,
}

impl Line {
    /// The pools of a tier of some classes.
    fn of(pass: &mut Pass<'_>, classes: &[ClassIx], tier: Tier) -> Self {
        let mut order = Vec::with_capacity(classes.len());
        for class in classes {
            if let Some(pool) =
                pass.fleet.pools.find(*class, tier.place()).filter(|pool| pass.free(*pool) > 0)
                && let Some(slot) = pass.head(pool)
            {
                order.push((pass.fleet.rank(slot), pool));
            }
        }
        let ranks = order.iter().map(|(rank, pool)| (*pool, *rank)).collect();
        Self { order: order.into_iter().collect(), ranks }
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
    pub(super) fn new(pass: &Pass<'_>, order: Arc<Order<K>>) -> Self {
        Self { order, lines: Map::default(), read: pass.given_back().len() }
    }

    /// Looks again at pools to which something was given back. Call it before each Need. `key`: that of a pool, if it
    /// may be in here.
    pub(super) fn refresh<'a>(
        &mut self,
        pass: &mut Pass<'a>,
        key: impl Fn(&Pass<'a>, PoolIx) -> Option<(Tier, K)>,
    ) {
        while let Some(pool) = pass.given_back().get(self.read).copied() {
            self.read += 1;
            if let Some(key) = key(pass, pool)
                && let Ok(at) = self.order.groups.binary_search_by(|(other, _)| other.cmp(&key))
                && let Some(line) = self.lines.get_mut(&at)
            {
                line.enter(pass, pool);
            }
        }
    }

    fn line(&mut self, pass: &mut Pass<'_>, position: usize) -> Line {
        self.lines.remove(&position).unwrap_or_else(|| {
            let ((tier, _), range) = &self.order.groups[position];
            Line::of(pass, &self.order.classes[range.clone()], *tier)
        })
    }

    /// Shows the unclaimed machines to a visitor, as [`Pass::walk`] does.
    pub(super) fn walk<'a>(
        &mut self,
        pass: &mut Pass<'a>,
        mut visit: impl FnMut(&mut Pass<'a>, Slot, PoolIx) -> Step,
    ) {
        let mut opened: Vec<PoolIx> = Vec::new();
        for position in 0..self.order.groups.len() {
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
            self.lines.insert(position, line);
            if stopped {
                return;
            }
        }
    }

    /// The machine with the smallest id in the first pools of equal keys that have one. `allows` is asked for a class
    /// of each key, `helps` for each pool. One that does not help goes `aside`, until it is taken back.
    pub(super) fn first(
        &mut self,
        pass: &mut Pass<'_>,
        allows: impl Fn(&Pass<'_>, ClassIx) -> bool,
        helps: impl Fn(&Pass<'_>, ClassIx) -> bool,
        aside: &mut Aside,
    ) -> Option<Slot> {
        let mut opened: Vec<PoolIx> = Vec::new();
        for position in 0..self.order.groups.len() {
            let any = self.order.classes[self.order.groups[position].1.start];
            if !allows(pass, any) {
                continue;
            }
            let mut line = self.line(pass, position);
            let mut best: Option<(u32, Slot)> = None;
            while let Some((bound, pool)) = line.order.first().copied()
                && best.is_none_or(|(rank, _)| bound <= rank)
            {
                line.order.pop_first();
                if !helps(pass, pass.fleet.class_of(pool)) {
                    aside.0.push((position, (bound, pool)));
                    continue;
                }
                opened.push(pool);
                if let Some(slot) = pass.head(pool) {
                    let ranked = (pass.fleet.rank(slot), slot);
                    best = Some(best.map_or(ranked, |other| other.min(ranked)));
                }
            }
            opened.drain(..).for_each(|pool| line.enter(pass, pool));
            self.lines.insert(position, line);
            if let Some((_, slot)) = best {
                return Some(slot);
            }
        }
        None
    }

    /// Takes back what did not help a Need, when that asks for no more.
    pub(super) fn take_back(&mut self, aside: Aside) {
        for (position, pool) in aside.0 {
            if let Some(line) = self.lines.get_mut(&position) {
                line.order.insert(pool);
            }
        }
    }
}
