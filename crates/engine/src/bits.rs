//! Sets of classes as bits, of which few words are not empty.

use crate::class::ClassIx;

/// A set of classes, made to be compared with those that match a profile.
#[derive(Debug, Default)]
pub(crate) struct ClassBits {
    /// Which word of a dense set, in ascending order, and its bits.
    words: Vec<(usize, u64)>,
}

impl ClassBits {
    /// Adds a class. Says whether it is new.
    pub(crate) fn insert(&mut self, class: ClassIx) -> bool {
        let (word, bit) = (class.at() / 64, 1 << (class.at() % 64));
        let at = self.words.binary_search_by_key(&word, |(word, _)| *word).unwrap_or_else(|at| {
            self.words.insert(at, (word, 0));
            at
        });
        let bits = &mut self.words[at].1;
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    /// Whether a dense set, 64 classes in a word, has one of these.
    pub(crate) fn meets(&self, dense: &[u64]) -> bool {
        self.words.iter().any(|(word, bits)| dense.get(*word).is_some_and(|dense| dense & bits != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_meets_dense_sets_that_have_one_of_its_classes() {
        let mut set = ClassBits::default();
        assert!([200, 3, 64].into_iter().all(|class| set.insert(ClassIx::new(class))));
        assert!(!set.insert(ClassIx::new(64)));
        for (dense, meets) in [
            (&[1 << 3][..], true),
            (&[!(1 << 3)], false),
            (&[0, 1], true),
            (&[0, 2, 0, 1 << 8], true),
            (&[0, 2, 0, 1 << 9], false),
            (&[], false),
        ] {
            assert_eq!(set.meets(dense), meets, "{dense:?}");
        }
    }
}
