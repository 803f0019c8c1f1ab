//! Text becomes numbers when it enters the engine, so that no phase compares strings.
//!
//! Numbers depend on the order of arrival. They identify; they never order anything that a decision depends on.

use std::sync::Arc;

use bigfleet_types::{ClusterId, NeedKey};
use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

use crate::lanes::Dimensions;

pub(crate) type Map<K, V> = HashMap<K, V, FxBuildHasher>;
pub(crate) type Set<K> = HashSet<K, FxBuildHasher>;

/// Declares a dense index into one table.
macro_rules! index {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        #[allow(dead_code, reason = "not every table needs both directions")]
        impl $name {
            /// The index of a position. Memory ends long before 2^32 entries.
            pub(crate) fn new(position: usize) -> Self {
                Self(u32::try_from(position).unwrap_or(u32::MAX))
            }

            /// The position in the table.
            pub(crate) const fn at(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
pub(crate) use index;

index! {
    /// A cluster.
    ClusterIx;
    /// A label key that some live requirement mentions.
    KeyIx;
    /// A label value, instance type, zone, fingerprint or group.
    ValueIx;
    /// A fingerprint and group: what a machine is stamped for, or what a Need stamps.
    StampIx;
}

impl ValueIx {
    /// The machine has no such attribute.
    pub(crate) const ABSENT: Self = Self(0);
    /// A hostname that no live requirement mentions. Classes do not tell these apart.
    pub(crate) const OTHER_HOST: Self = Self(1);
    /// The empty text: present, but no domain.
    pub(crate) const EMPTY: Self = Self(2);
}

impl StampIx {
    /// No stamp at all.
    pub(crate) const NONE: Self = Self(0);
}

/// A table of texts.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    numbers: Map<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    /// Numbers below this were handed out by hand.
    reserved: u32,
}

impl Interner {
    fn with_reserved(reserved: u32) -> Self {
        Self { reserved, ..Self::default() }
    }

    /// The number of a text, new or known.
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// The text of a number that was not reserved.
    fn text(&self, number: u32) -> Option<&Arc<str>> {
        self.texts.get(number.checked_sub(self.reserved)? as usize)
    }

    fn get(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.reserved as usize
    }
}

/// A copy of the texts behind clusters and stamps.
#[derive(Debug)]
pub(crate) struct Texts {
    names: Vec<ClusterId>,
    values: Vec<Arc<str>>,
    /// The number of the first of `values`.
    reserved: u32,
    stamped: Vec<(ValueIx, ValueIx)>,
}

impl Texts {
    pub(crate) fn cluster(&self, cluster: ClusterIx) -> &ClusterId {
        &self.names[cluster.at()]
    }

    /// Fingerprint and group.
    pub(crate) fn stamp(&self, stamp: StampIx) -> Option<(&Arc<str>, &Arc<str>)> {
        let (fingerprint, group) = self.stamped.get(stamp.at().checked_sub(1)?)?;
        let text = |value: &ValueIx| self.values.get(value.0.checked_sub(self.reserved)? as usize);
        Some((text(fingerprint)?, text(group)?))
    }
}

/// Every table of texts that the engine needs. Tables only grow; [`crate::Engine`] starts afresh when most of their
/// content is dead.
#[derive(Debug)]
pub(crate) struct Symbols {
    clusters: Map<ClusterId, ClusterIx>,
    names: Vec<ClusterId>,
    keys: Interner,
    key_texts: Vec<Arc<str>>,
    values: Interner,
    stamps: Map<(ValueIx, ValueIx), StampIx>,
    /// Fingerprint and group by [`StampIx`], but for the first.
    stamped: Vec<(ValueIx, ValueIx)>,
    hosts: Set<ValueIx>,
    /// Some gang wants one host: classes tell all hostnames apart.
    pub(crate) distinct_hosts: bool,
    pub(crate) dimensions: Dimensions,
    /// A requirement mentions a key or a hostname that the classes of machines do not reflect yet.
    pub(crate) classes_stale: bool,
    /// The place of each cluster in the byte order of the ids, once settled.
    ranks: Vec<u32>,
}

impl Default for Symbols {
    fn default() -> Self {
        let mut values = Interner::with_reserved(2);
        values.intern("");
        Self {
            clusters: Map::default(),
            names: Vec::new(),
            keys: Interner::default(),
            key_texts: Vec::new(),
            values,
            stamps: Map::default(),
            stamped: Vec::new(),
            hosts: Set::default(),
            distinct_hosts: false,
            dimensions: Dimensions::default(),
            classes_stale: false,
            ranks: Vec::new(),
        }
    }
}

impl Symbols {
    pub(crate) fn cluster(&mut self, id: &ClusterId) -> ClusterIx {
        if let Some(ix) = self.clusters.get(id) {
            return *ix;
        }
        let ix = ClusterIx::new(self.names.len());
        self.names.push(id.clone());
        self.clusters.insert(id.clone(), ix);
        ix
    }

    pub(crate) fn known_cluster(&self, id: &ClusterId) -> Option<ClusterIx> {
        self.clusters.get(id).copied()
    }

    pub(crate) fn cluster_count(&self) -> usize {
        self.names.len()
    }

    /// The key of a live requirement; a new one makes the classes stale.
    pub(crate) fn mention_key(&mut self, key: &Arc<str>) -> KeyIx {
        let known = self.key_texts.len();
        let ix = KeyIx(self.keys.intern(key));
        if ix.at() == known {
            self.key_texts.push(key.clone());
            self.classes_stale = true;
        }
        ix
    }

    /// A hostname in a live requirement; a new one makes the classes stale.
    pub(crate) fn mention_host(&mut self, host: &str) -> ValueIx {
        let value = self.value(host);
        self.classes_stale |= self.hosts.insert(value);
        value
    }

    /// The keys that live requirements mention, by [`KeyIx`].
    pub(crate) fn mentioned_keys(&self) -> &[Arc<str>] {
        &self.key_texts
    }

    pub(crate) fn value(&mut self, text: &str) -> ValueIx {
        ValueIx(self.values.intern(text))
    }

    /// The text of a value; none for the reserved ones.
    pub(crate) fn value_text(&self, value: ValueIx) -> Option<&Arc<str>> {
        self.values.text(value.0)
    }

    /// A machine's hostname as classes see it.
    pub(crate) fn host(&mut self, text: &str) -> ValueIx {
        if self.distinct_hosts || text.is_empty() {
            return self.value(text);
        }
        if self.hosts.is_empty() {
            return ValueIx::OTHER_HOST;
        }
        let value = self.values.get(text).map(ValueIx);
        value.filter(|value| self.hosts.contains(value)).unwrap_or(ValueIx::OTHER_HOST)
    }

    pub(crate) fn stamp(&mut self, fingerprint: &str, group: &str) -> StampIx {
        let pair = (self.value(fingerprint), self.value(group));
        let next = StampIx::new(self.stamped.len() + 1);
        *self.stamps.entry(pair).or_insert_with(|| {
            self.stamped.push(pair);
            next
        })
    }

    /// A copy of the texts behind clusters and stamps.
    pub(crate) fn texts(&self) -> Texts {
        Texts {
            names: self.names.clone(),
            values: self.values.texts.clone(),
            reserved: self.values.reserved,
            stamped: self.stamped.clone(),
        }
    }

    pub(crate) fn name(&self, cluster: ClusterIx) -> &ClusterId {
        &self.names[cluster.at()]
    }

    /// The number of what `old` numbers so.
    pub(crate) fn renumbered_cluster(&mut self, cluster: ClusterIx, old: &Self) -> ClusterIx {
        self.cluster(old.name(cluster))
    }

    /// The number of what `old` numbers so.
    pub(crate) fn renumbered_stamp(&mut self, stamp: StampIx, old: &Self) -> StampIx {
        let pair = stamp.at().checked_sub(1).and_then(|at| old.stamped.get(at));
        let texts = pair.and_then(|(f, g)| Some((old.value_text(*f)?, old.value_text(*g)?)));
        texts.map_or(StampIx::NONE, |(fingerprint, group)| self.stamp(fingerprint, group))
    }

    /// Where a machine for this Need goes, and what it is stamped with there.
    pub(crate) fn destination(&mut self, key: &NeedKey) -> (ClusterIx, StampIx) {
        (self.cluster(&key.cluster), self.stamp(&key.fingerprint.to_string(), key.group.as_str()))
    }

    /// How many texts and pairs are kept, for the decision to start afresh.
    pub(crate) fn size(&self) -> usize {
        self.values.len()
            + self.stamps.len()
            + self.names.len()
            + self.key_texts.len()
            + self.dimensions.len()
    }

    /// Brings the order of clusters up to date.
    pub(crate) fn settle(&mut self) {
        if self.ranks.len() == self.names.len() {
            return;
        }
        let mut sorted: Vec<_> = (0..self.names.len()).collect();
        sorted.sort_unstable_by(|a, b| self.names[*a].cmp(&self.names[*b]));
        self.ranks.resize(sorted.len(), 0);
        for (rank, position) in (0..).zip(sorted) {
            self.ranks[position] = rank;
        }
    }

    /// The place of a cluster in the byte order of the ids, once settled.
    pub(crate) fn rank(&self, cluster: ClusterIx) -> u32 {
        self.ranks[cluster.at()]
    }
}
