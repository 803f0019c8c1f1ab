//! Roll-ups of one stream, one after the other: only what differs from the one before goes on.
//!
//! Most rows of a roll-up are, byte for byte, those of the one before. A row is known by a digest of its bytes; what
//! passed the gate once is not looked at again. Digests are keyed, 128 bits wide and never leave the process, so nobody can
//! make two rows look alike.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bigfleet_types::{ClusterId, Fingerprint, Group, Need, Profile};
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use prost::Message as _;

use super::{Error, MAX_NEEDS, Texts, accept_profile, accept_row, limit, of_session};
use crate::gate::Unreadable;
use crate::gate::cursor::{Cursor, Read, Unusual, delimited, varint};
use crate::gate::digest::WideKey;
use crate::v1alpha1::{CapacityNeed, ClusterCapacityNeeds, NodeSelectorRequirement, TopologySpread};

/// What tells the rows of one cluster apart.
pub type RowKey = (Fingerprint, Group);

/// What a roll-up says, as a difference from the one before it on its stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Which roll-up of the stream this is, of those that passed, from 1.
    pub number: u64,
    /// Nothing came before: these are all rows.
    pub whole: bool,
    /// New rows and rows that are not as they were, one per key, in the order of first appearance. Arrivals are unknown.
    pub changed: Vec<Arc<Need>>,
    /// The keys of rows that are no more, sorted.
    pub removed: Vec<RowKey>,
}

impl From<Vec<Need>> for Change {
    /// All rows, one per key.
    fn from(rows: Vec<Need>) -> Self {
        Self { whole: true, changed: rows.into_iter().map(Arc::new).collect(), ..Self::default() }
    }
}

/// The key of a row within its cluster.
#[must_use]
pub fn row_key(need: &Need) -> RowKey {
    (need.profile.fingerprint(), need.group.clone())
}

/// Why a roll-up is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is none.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A field breaks a rule.
    #[error(transparent)]
    Rule(#[from] Error),
}

/// Why [`Ingest::take`] stopped.
enum Stop {
    Rule(Error),
    /// The generated decoder is to judge.
    Unusual,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Rule(error)
    }
}

impl From<Unusual> for Stop {
    fn from(_: Unusual) -> Self {
        Self::Unusual
    }
}

/// What a roll-up says beside its rows, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heading<'a> {
    /// Whose it is.
    pub cluster_id: &'a str,
    /// What the operator's clock said, Unix nanoseconds.
    pub timestamp_unix_nanos: i64,
}

impl<'a> Heading<'a> {
    /// Reads the bytes of a [`ClusterCapacityNeeds`]; of a message that is none, as if it said nothing.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Raw::read(message).map(|raw| raw.heading).unwrap_or_default()
    }
}

/// A roll-up whose rows are still bytes.
struct Raw<'a> {
    heading: Heading<'a>,
    rows: Vec<&'a [u8]>,
}

impl<'a> Raw<'a> {
    fn read(message: &'a [u8]) -> Read<Self> {
        const CLUSTER_ID: u64 = delimited(1);
        const TIMESTAMP: u64 = varint(2);
        const NEEDS: u64 = delimited(3);
        let (mut heading, mut rows) = (Heading::default(), Vec::new());
        let mut cursor = Cursor::new(message);
        loop {
            match cursor.key()? {
                0 => return Ok(Self { heading, rows }),
                CLUSTER_ID => heading.cluster_id = cursor.text()?,
                TIMESTAMP => heading.timestamp_unix_nanos = cursor.int64()?,
                NEEDS => rows.push(cursor.bytes()?),
                key => cursor.skip_unless(key, &[1, 2, 3])?,
            }
        }
    }
}

/// What is remembered of the last roll-up of a stream that passed.
#[derive(Debug, Default)]
pub struct Ingest {
    number: u64,
    profiles: Profiles,
    /// What each row as it came was found to be.
    seen: HashMap<u128, Arc<Need>>,
    /// One row per key.
    rows: HashMap<RowKey, Arc<Need>>,
}

impl Ingest {
    /// Takes the next roll-up of the stream, the bytes of a [`ClusterCapacityNeeds`], through the gate, by the rules of
    /// [`super::accept`].
    ///
    /// # Errors
    /// The message is none, or the first field that breaks a rule. It counts as never sent then.
    pub fn accept(&mut self, session: &ClusterId, message: &[u8]) -> Result<Change, Refused> {
        let stop = match Raw::read(message).map_err(Stop::from).and_then(|raw| self.take(session, &raw)) {
            Ok(change) => return Ok(change),
            Err(stop) => stop,
        };
        // A message that cannot be read is that before anything else.
        let plain = ClusterCapacityNeeds::decode(message).map_err(Unreadable::from)?.encode_to_vec();
        if let Stop::Rule(error) = stop {
            return Err(error.into());
        }
        let again = Raw::read(&plain).map_err(Stop::from).and_then(|raw| self.take(session, &raw));
        again.map_err(|stop| match stop {
            Stop::Rule(error) => error.into(),
            Stop::Unusual => Unreadable::Unusual.into(),
        })
    }

    fn take(&mut self, session: &ClusterId, message: &Raw<'_>) -> Result<Change, Stop> {
        of_session(session, message.heading.cluster_id)?;
        limit("needs", message.rows.len(), MAX_NEEDS)?;

        let mut texts = Texts::default();
        let mut seen: HashMap<u128, Arc<Need>> = HashMap::with_capacity(message.rows.len());
        let mut rows: HashMap<RowKey, Arc<Need>> = HashMap::with_capacity(message.rows.len());
        let mut order: Vec<RowKey> = Vec::new();
        for (i, row) in message.rows.iter().enumerate() {
            let at = |error: Error| error.within(format_args!("needs[{i}]"));
            let digest = self.profiles.key.of(row);
            let need = match self.seen.get(&digest).or_else(|| seen.get(&digest)) {
                Some(need) => need.clone(),
                None => {
                    let row = CapacityNeed::decode(*row).map_err(|_| Stop::Unusual)?;
                    let profile = self.profiles.of(&row, &mut texts).map_err(at)?;
                    Arc::new(accept_row(&row, profile, &mut texts).map_err(at)?)
                }
            };
            seen.insert(digest, need.clone());
            match rows.entry(row_key(&need)) {
                Entry::Vacant(new) => {
                    let is_as_it_was = self.rows.get(new.key()).is_some_and(|old| Arc::ptr_eq(old, &need));
                    if !is_as_it_was {
                        order.push(new.key().clone());
                    }
                    new.insert(need);
                }
                Entry::Occupied(mut first) => {
                    order.push(first.key().clone());
                    let sum = Need {
                        aggregate: first.get().aggregate.add(&need.aggregate),
                        min_unit: first.get().min_unit.max(&need.min_unit),
                        ..Need::clone(&need)
                    };
                    *first.get_mut() = Arc::new(sum);
                }
            }
        }

        let mut changed = Vec::new();
        let mut told: HashSet<&RowKey> = HashSet::new();
        for key in order.iter().filter(|key| told.insert(key)) {
            let Some(new) = rows.get_mut(key) else { continue };
            match self.rows.get(key) {
                // Spelt otherwise, or added up once more: whoever keeps the old one keeps it.
                Some(old) if old == new => *new = old.clone(),
                _ => changed.push(new.clone()),
            }
        }
        let mut removed: Vec<RowKey> =
            self.rows.keys().filter(|key| !rows.contains_key(*key)).cloned().collect();
        removed.sort_unstable();
        let whole = self.number == 0;
        self.number += 1;
        (self.seen, self.rows) = (seen, rows);
        self.profiles.forget_unused(self.rows.len());
        Ok(Change { number: self.number, whole, changed, removed })
    }
}

/// The profiles of rows, each made once: it takes a hash that cannot be hurried.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    key: WideKey,
    /// By the digest of the fields that make one.
    known: HashMap<u128, Arc<Profile>>,
}

impl Profiles {
    /// The profile of a row, if its fields are those of one.
    pub(super) fn of(&mut self, row: &CapacityNeed, texts: &mut Texts) -> Result<Arc<Profile>, Error> {
        let mut hasher = self.key.hasher();
        hash_profile(row, &mut hasher);
        match self.known.entry(hasher.digest()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(new) => Ok(new.insert(Arc::new(accept_profile(row, texts)?)).clone()),
        }
    }

    /// There are never many more than rows.
    fn forget_unused(&mut self, rows: usize) {
        if self.known.len() > 2 * rows + 64 {
            self.known.retain(|_, profile| Arc::strong_count(profile) > 1);
        }
    }
}

fn hash_profile(row: &CapacityNeed, hasher: &mut impl Hasher) {
    // A field that is added has to be entered here, or this does not compile.
    let CapacityNeed {
        requirements,
        spread,
        priority,
        interruption_penalty_bucket,
        reclamation_penalty_bucket,
        aggregate_resources: _,
        min_unit: _,
        group: _,
    } = row;
    requirements.len().hash(hasher);
    for NodeSelectorRequirement { key, operator, values } in requirements {
        (key, operator, values).hash(hasher);
    }
    spread.len().hash(hasher);
    for TopologySpread { topology_key, max_skew, when_unsatisfiable } in spread {
        (topology_key, max_skew, when_unsatisfiable).hash(hasher);
    }
    (priority, interruption_penalty_bucket, reclamation_penalty_bucket).hash(hasher);
}
