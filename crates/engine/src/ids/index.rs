//! Slots by the hashes of their names: an open-addressed table with linear probing. Hash and slot stand side by side, so
//! that a look-up among millions waits for memory once, and growing reads no name again.

use crate::members::Slot;

/// What stands at one position: the low bits of a hash, and whose they are.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    slot: Slot,
}

impl Entry {
    const VACANT: Self = Self { hash: 0, slot: Slot::NONE };

    fn is_vacant(self) -> bool {
        self.slot == Slot::NONE
    }
}

/// The table. At most three of four positions are taken.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// None, or a power of two.
    entries: Vec<Entry>,
    len: usize,
}

impl Index {
    const LEAST: usize = 16;

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A slot of this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.position(hash, is_it).map(|at| self.entries[at].slot)
    }

    /// Adds a slot.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot) {
        if (self.len + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        self.put(Entry { hash: low(hash), slot });
        self.len += 1;
    }

    /// Takes a slot out, and moves those up that stand behind it because of it.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot) {
        let Some(mut hole) = self.position(hash, |other| other == slot) else { return };
        self.len -= 1;
        let mut at = self.next(hole);
        while !self.entries[at].is_vacant() {
            let entry = self.entries[at];
            if self.distance(self.home(entry.hash), at) >= self.distance(hole, at) {
                self.entries[hole] = entry;
                hole = at;
            }
            at = self.next(at);
        }
        self.entries[hole] = Entry::VACANT;
    }

    fn position(&self, hash: u64, is_it: impl Fn(Slot) -> bool) -> Option<usize> {
        let hash = low(hash);
        let mut at = self.home(hash);
        loop {
            // Without any positions, there is none at home either.
            let entry = self.entries.get(at).filter(|entry| !entry.is_vacant())?;
            if entry.hash == hash && is_it(entry.slot) {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    fn put(&mut self, entry: Entry) {
        let mut at = self.home(entry.hash);
        while !self.entries[at].is_vacant() {
            at = self.next(at);
        }
        self.entries[at] = entry;
    }

    fn grow(&mut self) {
        let more = vec![Entry::VACANT; (self.entries.len() * 2).max(Self::LEAST)];
        let known = std::mem::replace(&mut self.entries, more);
        known.into_iter().filter(|entry| !entry.is_vacant()).for_each(|entry| self.put(entry));
    }

    /// Where a hash belongs, if nothing stands there.
    fn home(&self, hash: u32) -> usize {
        hash as usize & self.entries.len().wrapping_sub(1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & self.entries.len().wrapping_sub(1)
    }

    /// How many steps it is from one position to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.entries.len().wrapping_sub(1)
    }
}

/// The bits of a hash that are kept.
#[allow(clippy::cast_possible_truncation, reason = "the rest is not needed")]
fn low(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few hashes, so that runs of several homes stand in each other's way and over the end of the table.
    fn hash(position: usize) -> u64 {
        (position as u64 * 7) % 24 + (1 << 32) - 4
    }

    #[test]
    fn slots_are_found_however_others_come_and_go() {
        let mut index = Index::default();
        let mut there = [false; 100];
        for step in 0..10_000 {
            let position = step * step % 101 * 37 % 100;
            let slot = Slot::new(position);
            if there[position] {
                index.remove(hash(position), slot);
            } else {
                index.insert(hash(position), slot);
            }
            there[position] = !there[position];
            assert_eq!(index.len(), there.iter().filter(|there| **there).count());
            for (position, there) in there.iter().enumerate() {
                let found = index.find(hash(position), |slot| slot.at() == position);
                assert_eq!(found.is_some(), *there, "{position} after {step} steps");
            }
        }
    }

    #[test]
    fn nothing_is_found_in_an_empty_index() {
        let mut index = Index::default();
        index.remove(3, Slot::new(3));
        assert_eq!(index.find(3, |_| true), None);
    }
}
