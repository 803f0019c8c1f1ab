//! What is known of one kind of object. A list is gathered beside it and replaces it at its end.

use std::collections::BTreeMap;

/// Objects of one kind, and the list that is about to replace them.
#[derive(Debug)]
pub(super) struct Store<K, V> {
    pub(super) live: BTreeMap<K, V>,
    pub(super) fresh: Option<BTreeMap<K, V>>,
    pub(super) listed: bool,
}

impl<K: Ord + Clone, V: PartialEq> Store<K, V> {
    pub(super) const fn new() -> Self {
        Self { live: BTreeMap::new(), fresh: None, listed: false }
    }

    /// Whether that changed what is known.
    pub(super) fn put(&mut self, key: K, value: V) -> bool {
        match &mut self.fresh {
            Some(fresh) => {
                fresh.insert(key, value);
                false
            }
            None if self.live.get(&key) == Some(&value) => false,
            None => {
                self.live.insert(key, value);
                true
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match &mut self.fresh {
            Some(fresh) => {
                fresh.remove(key);
                None
            }
            None => self.live.remove(key),
        }
    }

    /// Ends a list: the values that changed, as they were and as they are.
    pub(super) fn listed(&mut self) -> Vec<(K, Option<V>)> {
        self.listed = true;
        let Some(fresh) = self.fresh.take() else { return Vec::new() };
        let before = std::mem::replace(&mut self.live, fresh);
        let new = self.live.iter().filter(|(key, value)| before.get(*key) != Some(*value));
        let mut changed: Vec<(K, Option<V>)> =
            new.filter(|(key, _)| !before.contains_key(*key)).map(|(key, _)| (key.clone(), None)).collect();
        for (key, value) in before {
            if self.live.get(&key) != Some(&value) {
                changed.push((key, Some(value)));
            }
        }
        changed
    }
}
