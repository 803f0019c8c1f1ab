//! The names of machines: their texts in one buffer, found by hash, and the byte order of all of them.

use std::hash::BuildHasher;

use bigfleet_types::MachineId;
use rustc_hash::FxBuildHasher;

use crate::members::Slot;

mod index;

use index::Index;

/// Where a text lies in the buffer: its start and, in the low bits, its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span(u64);

impl Span {
    const VACANT: Self = Self(u64::MAX);
    const LENGTH_BITS: u32 = 24;

    fn new(start: usize, length: usize) -> Self {
        Self((start as u64) << Self::LENGTH_BITS | length as u64)
    }

    fn range(self) -> std::ops::Range<usize> {
        let number = |bits: u64| usize::try_from(bits).unwrap_or(usize::MAX);
        let start = number(self.0 >> Self::LENGTH_BITS);
        start..start + number(self.0 & ((1 << Self::LENGTH_BITS) - 1))
    }
}

/// The texts of all names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    texts: String,
    spans: Vec<Span>,
}

impl Names {
    /// The name of a slot, if it has one.
    pub(crate) fn text(&self, slot: Slot) -> Option<&str> {
        let span = self.spans.get(slot.at()).filter(|span| **span != Span::VACANT)?;
        Some(&self.texts[span.range()])
    }

    /// The same as an id.
    pub(crate) fn id(&self, slot: Slot) -> Option<MachineId> {
        self.text(slot).map(MachineId::trusted)
    }
}

/// All names by slot.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    names: Names,
    index: Index,
    /// Bytes of the texts that no slot names any more.
    garbage: usize,
    /// Live slots in the byte order of their names, once settled.
    order: Vec<Slot>,
    /// By slot: ascending in `order`.
    rank: Vec<u32>,
    /// Slots named since the last settling.
    fresh: Vec<Slot>,
    /// `fresh` came in ascending order and follows all of `order`.
    ascending: bool,
    /// Some name went since the last settling.
    shrunk: bool,
}

impl Ids {
    /// A copy of the names.
    pub(crate) fn names(&self) -> Names {
        self.names.clone()
    }

    /// The slot of a name.
    pub(crate) fn find(&self, id: &str) -> Option<Slot> {
        self.index.find(hash(id), |slot| self.text(slot) == id)
    }

    /// Names a slot, the next one or one that was vacated before the last settling.
    pub(crate) fn name(&mut self, slot: Slot, id: &str) {
        if slot.at() == self.names.spans.len() {
            self.names.spans.push(Span::VACANT);
            self.rank.push(0);
        }
        let last = self.fresh.last().or(self.order.last()).copied();
        let follows = last.is_none_or(|last| self.is_named(last) && self.text(last) < id);
        self.ascending = follows && (self.ascending || self.fresh.is_empty());
        self.names.spans[slot.at()] = Span::new(self.names.texts.len(), id.len());
        self.names.texts.push_str(id);
        self.fresh.push(slot);
        self.index.insert(hash(id), slot);
    }

    /// Takes the name off a slot.
    pub(crate) fn vacate(&mut self, slot: Slot) {
        self.index.remove(hash(self.text(slot)), slot);
        self.garbage += self.text(slot).len();
        self.names.spans[slot.at()] = Span::VACANT;
        self.shrunk = true;
    }

    pub(crate) fn is_named(&self, slot: Slot) -> bool {
        self.names.text(slot).is_some()
    }

    /// The name of a slot that has one; empty otherwise.
    pub(crate) fn text(&self, slot: Slot) -> &str {
        self.names.text(slot).unwrap_or_default()
    }

    pub(crate) fn id(&self, slot: Slot) -> MachineId {
        MachineId::trusted(self.text(slot))
    }

    /// How many slots were ever in use.
    pub(crate) fn slots(&self) -> usize {
        self.names.spans.len()
    }

    /// How many slots have a name.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The named slots in the byte order of their names, once settled.
    pub(crate) fn in_order(&self) -> &[Slot] {
        &self.order
    }

    /// By slot: numbers that ascend in the order of names, once settled.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.rank
    }

    /// Brings the order up to date. Names that come in order, as most providers list them, cost no comparison.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.shrunk) {
            let spans = &self.names.spans;
            let named = |slot: &Slot| spans[slot.at()] != Span::VACANT;
            self.order.retain(named);
            self.fresh.retain(named);
            self.ascending = false;
            self.compact();
        }
        let known = self.order.len();
        if self.fresh.is_empty() {
            self.ascending = true;
            return;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        let changed = if std::mem::replace(&mut self.ascending, true) {
            self.order.append(&mut fresh);
            known
        } else {
            let by_text = |a: &Slot, b: &Slot| self.text(*a).cmp(self.text(*b));
            fresh.sort_unstable_by(by_text);
            // A slot may have been vacated and named again in the meantime.
            fresh.dedup();
            let (first, merged) = merge(&self.order, &fresh, by_text);
            self.order.truncate(first);
            self.order.extend(merged);
            first
        };
        self.number(changed);
    }

    /// Ranks all slots from a place in the order on. What goes leaves a gap, so that nothing else has to be ranked anew.
    fn number(&mut self, from: usize) {
        let before = from.checked_sub(1).map(|before| self.rank[self.order[before].at()]);
        let first = before.map_or(0, |rank| rank.saturating_add(1));
        let most = self.order.len() - from;
        if u32::try_from(most).ok().and_then(|most| first.checked_add(most)).is_none() && from > 0 {
            return self.number(0);
        }
        for (rank, slot) in (first..).zip(&self.order[from..]) {
            self.rank[slot.at()] = rank;
        }
    }

    /// Moves the texts together when most of the buffer is dead.
    fn compact(&mut self) {
        if self.garbage < 1 << 16 || self.garbage * 2 < self.names.texts.len() {
            return;
        }
        let names = &mut self.names;
        let mut texts = String::with_capacity(names.texts.len() - self.garbage);
        for span in names.spans.iter_mut().filter(|span| **span != Span::VACANT) {
            let range = span.range();
            *span = Span::new(texts.len(), range.len());
            texts.push_str(&names.texts[range]);
        }
        names.texts = texts;
        self.garbage = 0;
    }
}

/// Two sorted lists as one: the part of `known` that stays in place, and all that comes after it.
fn merge(
    known: &[Slot],
    fresh: &[Slot],
    compare: impl Fn(&Slot, &Slot) -> std::cmp::Ordering,
) -> (usize, Vec<Slot>) {
    let Some(least) = fresh.first() else { return (known.len(), Vec::new()) };
    let first = known.partition_point(|slot| compare(slot, least).is_lt());
    let (mut left, mut right) = (known[first..].iter().peekable(), fresh.iter().peekable());
    let mut merged = Vec::with_capacity(known.len() - first + fresh.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if compare(a, b).is_lt() { left.next() } else { right.next() };
        merged.extend(next.copied());
    }
    merged.extend(left.chain(right).copied());
    (first, merged)
}

fn hash(id: &str) -> u64 {
    FxBuildHasher.hash_one(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(ids: &Ids) -> Vec<&str> {
        ids.in_order().iter().map(|slot| ids.text(*slot)).collect()
    }

    #[test]
    fn names_sort_by_bytes_however_they_come_and_go() {
        let mut ids = Ids::default();
        for (position, id) in ["m-1", "m-2", "m-9"].into_iter().enumerate() {
            ids.name(Slot::new(position), id);
        }
        ids.settle();
        assert_eq!(order(&ids), ["m-1", "m-2", "m-9"]);
        ids.name(Slot::new(3), "m-5");
        ids.name(Slot::new(4), "m-10");
        ids.vacate(Slot::new(0));
        ids.settle();
        assert_eq!(order(&ids), ["m-10", "m-2", "m-5", "m-9"]);
        ids.name(Slot::new(0), "m-1");
        ids.settle();
        assert_eq!(order(&ids), ["m-1", "m-10", "m-2", "m-5", "m-9"]);
        assert!(ids.in_order().is_sorted_by_key(|slot| ids.ranks()[slot.at()]));
        assert_eq!(ids.find("m-5"), Some(Slot::new(3)));
        assert_eq!(ids.find("m-7"), None);
    }

    #[test]
    fn a_name_that_comes_after_others_went_shares_its_rank_with_nobody() {
        let mut ids = Ids::default();
        for (position, id) in ["m-1", "m-2", "m-3"].into_iter().enumerate() {
            ids.name(Slot::new(position), id);
        }
        ids.settle();
        ids.vacate(Slot::new(0));
        ids.settle();
        ids.name(Slot::new(3), "m-4");
        ids.settle();
        ids.vacate(Slot::new(1));
        ids.name(Slot::new(4), "m-35");
        ids.settle();
        assert_eq!(order(&ids), ["m-3", "m-35", "m-4"]);
        let ranks: Vec<u32> = ids.in_order().iter().map(|slot| ids.ranks()[slot.at()]).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }

    #[test]
    fn dead_texts_do_not_pile_up() {
        let mut ids = Ids::default();
        for round in 0..100 {
            for position in 0..100 {
                ids.name(Slot::new(position), &format!("{round:0100}-{position}"));
            }
            ids.settle();
            assert_eq!(ids.len(), 100);
            assert!(ids.names.texts.len() < 200_000);
            (0..100).for_each(|position| ids.vacate(Slot::new(position)));
            ids.settle();
        }
    }
}
