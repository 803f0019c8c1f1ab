//! Where rows that look for the same victims go on searching: a row looks at few heaps, not at all of them.
//!
//! Machines that are taken stay taken, so the place that a heap had when it was last looked at is never too late.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use smallvec::SmallVec;

use super::Taken;
use super::victims::{Heap, Order};
use crate::class::ClassIx;
use crate::demand::Row;
use crate::intern::{ClusterIx, Map, ValueIx};
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::Pass;
use crate::phase1::Spread;

/// Where a class lies, by rule of the spread.
pub(super) type Domains = SmallVec<[Option<ValueIx>; 1]>;

/// Heaps in order.
#[derive(Debug)]
pub(super) struct Hunt {
    chunks: Vec<Chunk>,
    /// All before this one are used up.
    first: usize,
}

/// Heaps of equal order in the same domains.
#[derive(Debug)]
struct Chunk {
    order: Order,
    /// That of any heap.
    class: ClassIx,
    /// By rank of the first machine that was not taken when the heap was last looked at.
    line: BTreeSet<(u32, usize)>,
    /// How many heaps of the line are in each cluster.
    clusters: Map<ClusterIx, usize>,
}

impl Hunt {
    pub(super) fn new(
        mut found: Vec<(Order, Domains, usize)>,
        heaps: &[Heap],
        rank: impl Fn(Slot) -> u32,
    ) -> Self {
        found.sort_unstable();
        let mut chunks = Vec::new();
        for equals in found.chunk_by(|a, b| (a.0, &a.1) == (b.0, &b.1)) {
            let mut clusters: Map<ClusterIx, usize> = Map::default();
            let mut line = BTreeSet::new();
            for (.., at) in equals {
                if let Some(slot) = heaps[*at].slots.get(heaps[*at].next) {
                    *clusters.entry(heaps[*at].kind.cluster).or_default() += 1;
                    line.insert((rank(*slot), *at));
                }
            }
            let (order, _, any) = &equals[0];
            chunks.push(Chunk { order: *order, class: heaps[*any].kind.class, line, clusters });
        }
        Self { chunks, first: 0 }
    }
}

/// One row's search.
pub(super) struct Search<'s, 'a> {
    pass: &'s Pass<'a>,
    row: &'s Row,
    taken: &'s Taken,
    heaps: &'s mut [Heap],
    /// The chunks looked at, by position.
    open: Map<usize, Opened>,
    /// The chunks before this one have nothing that helps.
    from: usize,
    /// How many heaps and machines were looked at.
    pub(super) looked: usize,
}

/// A chunk that the search looks at.
#[derive(Default)]
struct Opened {
    /// The next machine of each heap taken out of the line, and its place in the heap.
    heads: BinaryHeap<Reverse<(u32, usize, usize)>>,
    /// Which heaps those were.
    out: Vec<usize>,
}

impl<'s, 'a> Search<'s, 'a> {
    pub(super) fn new(pass: &'s Pass<'a>, row: &'s Row, taken: &'s Taken, heaps: &'s mut [Heap]) -> Self {
        Self { pass, row, taken, heaps, open: Map::default(), from: 0, looked: 0 }
    }

    /// The next victim: of the first chunks of equal order that have one, that with the smallest id.
    pub(super) fn next(
        &mut self,
        hunt: &mut Hunt,
        spread: Option<&Spread>,
        left: &Lanes,
    ) -> Option<(Slot, ClassIx)> {
        while hunt.chunks.get(hunt.first).is_some_and(|chunk| chunk.line.is_empty())
            && !self.open.contains_key(&hunt.first)
        {
            hunt.first += 1;
        }
        let mut from = self.from.max(hunt.first);
        while let Some(order) = hunt.chunks.get(from).map(|chunk| chunk.order) {
            let mut best: Option<(u32, usize)> = None;
            let mut at = from;
            self.looked += 1;
            while let Some(chunk) = hunt.chunks.get_mut(at).filter(|chunk| chunk.order == order) {
                let allowed = spread.is_none_or(|spread| spread.allows(self.pass, chunk.class));
                if allowed && let Some(rank) = self.head(chunk, at, left) {
                    best = Some(best.map_or((rank, at), |other| other.min((rank, at))));
                }
                at += 1;
            }
            if let Some((_, at)) = best {
                return self.take(at);
            }
            from = at;
            if spread.is_none() {
                self.from = from;
            }
        }
        None
    }

    /// The rank of the first machine of a chunk that is in another cluster and helps.
    fn head(&mut self, chunk: &mut Chunk, at: usize, left: &Lanes) -> Option<u32> {
        let own = chunk.clusters.get(&self.row.cluster).copied().unwrap_or(0);
        if chunk.line.len() <= own && !self.open.contains_key(&at) {
            return None;
        }
        let Opened { heads, out } = self.open.entry(at).or_default();
        loop {
            while let Some((bound, heap)) = chunk.line.first().copied()
                && heads.peek().is_none_or(|Reverse((rank, ..))| bound <= *rank)
            {
                chunk.line.pop_first();
                self.looked += 1;
                let Heap { slots, next, kind } = &mut self.heaps[heap];
                let rest = slots.get(*next..).unwrap_or_default();
                *next += rest.iter().take_while(|slot| self.taken.has(**slot)).count();
                let Some(slot) = slots.get(*next) else {
                    // Used up for good.
                    chunk.clusters.entry(kind.cluster).and_modify(|heaps| *heaps -= 1);
                    continue;
                };
                out.push(heap);
                if kind.cluster != self.row.cluster {
                    heads.push(Reverse((self.pass.fleet.rank(*slot), heap, *next)));
                }
            }
            let Reverse((rank, heap, _)) = *heads.peek()?;
            let capacity = self.pass.fleet.classes.capacity(self.heaps[heap].kind.class);
            if self.row.worth(capacity).reduces(left) {
                return Some(rank);
            }
            // What is missing only shrinks: the heap helps no more.
            self.looked += 1;
            heads.pop();
        }
    }

    /// Takes the head of a chunk.
    fn take(&mut self, at: usize) -> Option<(Slot, ClassIx)> {
        let heads = &mut self.open.get_mut(&at)?.heads;
        let Reverse((_, heap, place)) = heads.pop()?;
        let Heap { slots, kind, .. } = &self.heaps[heap];
        let after = slots.get(place + 1..).unwrap_or_default();
        if let Some(further) = after.iter().position(|slot| !self.taken.has(*slot)) {
            let next = place + 1 + further;
            heads.push(Reverse((self.pass.fleet.rank(slots[next]), heap, next)));
        }
        Some((slots[place], kind.class))
    }

    /// Puts the heaps back that were looked at.
    pub(super) fn finish(self, hunt: &mut Hunt) {
        for (at, opened) in self.open {
            let ranked = opened.out.into_iter().map(|heap| {
                let Heap { slots, next, .. } = &self.heaps[heap];
                (self.pass.fleet.rank(slots[*next]), heap)
            });
            hunt.chunks[at].line.extend(ranked);
        }
    }
}
