//! Lists of one provider, one after the other: a record that is as it was in the List before is not looked at again.
//!
//! Most records of a List are those of the one before. A record is known by a digest of its bytes; only others are read and
//! taken through the gate. Digests are keyed, and a record is only ever compared with the last one of its id.

use std::sync::Arc;

use bigfleet_types::{Machine, MachineId};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet, HashTable, hash_table};
use prost::Message as _;

use super::check::check;
use super::view::View;
use super::walk::{self, Reader};
use super::{MAX_REVISION_BYTES, Record, Violation};
use crate::gate::Unreadable;
use crate::gate::cursor::{Cursor, Unusual, delimited};
use crate::gate::digest::Key;
use crate::v1alpha1::MachineList;

const MACHINES: u64 = delimited(1);
const REVISION: u64 = delimited(2);
const REMOVED_IDS: u64 = delimited(100);

/// How a List differs from the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<R> {
    /// Nothing was known before: [`Self::changed`] is all that there is.
    pub whole: bool,
    /// Records that are new or not as they were, and always those that were refused or repaired. Every id once, in the
    /// order of the answer; a repeated id stands where it was last.
    pub changed: Vec<R>,
    /// Ids that the List before had, in no particular order.
    pub gone: Vec<MachineId>,
    /// Breaches of the List itself.
    pub violations: Vec<Violation>,
}

/// A List after the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Its records.
    pub records: Difference<Record>,
    /// What to ask the next changes with; `None` when the provider has no revisions.
    pub revision: Option<Bytes>,
    /// Machines that the provider says are gone.
    pub removed: Vec<MachineId>,
}

/// What the record of an id says.
#[derive(Debug)]
pub struct Said<'a> {
    /// The machine, unless it was refused.
    pub machine: Option<&'a Arc<Machine>>,
    /// Whether it is to be told of in every List: it was refused or repaired.
    pub always: bool,
}

/// The records of the last List of a provider.
#[derive(Debug, Default)]
pub struct Known {
    digests: Key,
    /// In the order in which they were first listed.
    slots: Vec<Slot>,
    by_id: HashTable<usize>,
    /// How many Lists there were.
    lists: u64,
}

/// One id of the last List.
#[derive(Debug)]
struct Slot {
    id: MachineId,
    /// Of the record; 0: it has to be read again.
    digest: u64,
    /// The List that had it.
    seen: u64,
    /// The last List in which it was news.
    told: u64,
    /// What the record says, unless it was refused.
    machine: Option<Arc<Machine>>,
}

/// One walk over a List.
struct Walk<'k, 'a> {
    known: &'k mut Known,
    reader: Reader<'a>,
    view: View<'a>,
    difference: Difference<Record>,
    /// The id of each changed record, as it is written.
    changed: Vec<&'a [u8]>,
    /// The slot that comes next, if the order is that of the List before.
    next: usize,
    /// Ids that are none.
    bad: HashSet<&'a [u8]>,
    /// Whether an id came twice.
    repeated: bool,
}

impl Known {
    /// Takes the next List of the provider, the bytes of a [`MachineList`], through the gate record by record. Field paths
    /// begin with `machines[i]`.
    ///
    /// # Errors
    /// The bytes are no List. Nothing is known then: the next one comes whole.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Listing, Unreadable> {
        if let Ok(listing) = self.walk(bytes) {
            return Ok(listing);
        }
        let plain = MachineList::decode(bytes).map(|list| list.encode_to_vec());
        // A walk that stopped half-way told nobody what it found.
        *self = Self::default();
        self.walk(&plain?).map_err(|Unusual| {
            *self = Self::default();
            Unreadable::Unusual
        })
    }

    /// Whether the last List had this id.
    #[must_use]
    pub fn contains(&self, id: &MachineId) -> bool {
        self.find(id.as_str().as_bytes()).is_some()
    }

    /// What the last List said of a machine; `None` also when that was refused.
    #[must_use]
    pub fn get(&self, id: &MachineId) -> Option<&Arc<Machine>> {
        self.slots[self.find(id.as_str().as_bytes())?].machine.as_ref()
    }

    fn find(&self, id: &[u8]) -> Option<usize> {
        let is = |slot: &usize| self.slots[*slot].id.as_str().as_bytes() == id;
        self.by_id.find(self.digests.of(id), is).copied()
    }

    /// Takes records that are past the gate for the next List: for a provider in the same process.
    pub fn next<R>(
        &mut self,
        records: Vec<R>,
        said: impl Fn(&R) -> Option<(&MachineId, Said<'_>)>,
    ) -> Difference<R> {
        let mut difference = self.begin();
        let mut last: HashMap<MachineId, usize> = HashMap::with_capacity(records.len());
        for (at, (id, _)) in records.iter().enumerate().filter_map(|(at, record)| Some((at, said(record)?))) {
            if last.insert(id.clone(), at).is_some() {
                difference.violations.push(Violation::DuplicateId);
            }
        }
        for (at, record) in records.into_iter().enumerate() {
            let is_news = match said(&record) {
                Some((id, said)) => last.get(id) == Some(&at) && self.put(id, 0, said).0,
                None => true,
            };
            if is_news {
                difference.changed.push(record);
            }
        }
        difference.gone = self.sweep();
        difference
    }

    fn begin<R>(&mut self) -> Difference<R> {
        self.lists += 1;
        Difference { whole: self.lists == 1, changed: Vec::new(), gone: Vec::new(), violations: Vec::new() }
    }

    /// Keeps what the record of an id says. Gives whether that is news, and its slot.
    fn put(&mut self, id: &MachineId, digest: u64, said: Said<'_>) -> (bool, usize) {
        let Said { machine, always } = said;
        let digest = if always { 0 } else { digest };
        let Self { digests, slots, by_id, lists } = self;
        let hash = |id: &MachineId| digests.of(id.as_str().as_bytes());
        match by_id.entry(hash(id), |slot| slots[*slot].id == *id, |slot| hash(&slots[*slot].id)) {
            hash_table::Entry::Occupied(found) => {
                let slot = &mut slots[*found.get()];
                (slot.digest, slot.seen) = (digest, *lists);
                // What was told once in this List stands where it is last.
                let is_news = always || slot.told == *lists || slot.machine.as_ref() != machine;
                if is_news {
                    slot.told = *lists;
                    slot.machine = machine.cloned();
                }
                (is_news, *found.get())
            }
            hash_table::Entry::Vacant(new) => {
                let at = slots.len();
                new.insert(at);
                slots.push(Slot {
                    id: id.clone(),
                    digest,
                    seen: *lists,
                    told: *lists,
                    machine: machine.cloned(),
                });
                (true, at)
            }
        }
    }

    fn walk(&mut self, bytes: &[u8]) -> Result<Listing, Unusual> {
        let mut difference = self.begin();
        if difference.whole {
            let (mut cursor, mut records) = (Cursor::new(bytes), 0);
            loop {
                match cursor.key()? {
                    0 => break,
                    key => cursor.skip(key)?,
                }
                records += 1;
            }
            // Nothing that is a machine takes fewer bytes.
            let records = records.min(bytes.len() / 32);
            self.reserve(records);
            difference.changed.reserve(records);
        }
        let mut walk = Walk {
            known: self,
            reader: Reader::default(),
            view: View::default(),
            difference,
            changed: Vec::new(),
            next: 0,
            bad: HashSet::new(),
            repeated: false,
        };
        let (mut cursor, mut at) = (Cursor::new(bytes), 0);
        let (mut revision, mut removed): (&[u8], _) = (&[], Vec::new());
        loop {
            match cursor.key()? {
                0 => break,
                MACHINES => {
                    walk.record(at, cursor.bytes()?)?;
                    at += 1;
                }
                REVISION => revision = cursor.bytes()?,
                REMOVED_IDS => match MachineId::parse(cursor.text()?) {
                    Ok(id) => removed.push(id),
                    Err(_) => walk.difference.violations.push(Violation::BadRemovedId),
                },
                key => cursor.skip_unless(key, &[1, 2, 100])?,
            }
        }
        let mut records = walk.end();
        let revision = match revision.len() {
            0 => None,
            1..=MAX_REVISION_BYTES => Some(Bytes::copy_from_slice(revision)),
            _ => {
                records.violations.push(Violation::LongRevision);
                None
            }
        };
        Ok(Listing { records, revision, removed })
    }

    fn reserve(&mut self, records: usize) {
        let Self { digests, slots, by_id, .. } = self;
        slots.reserve(records);
        by_id.reserve(records, |slot| digests.of(slots[*slot].id.as_str().as_bytes()));
    }

    /// Takes out what the last List did not have.
    fn sweep(&mut self) -> Vec<MachineId> {
        let mut gone = Vec::new();
        let mut at = 0;
        while at < self.slots.len() {
            if self.slots[at].seen == self.lists {
                at += 1;
                continue;
            }
            let hash = |id: &MachineId| self.digests.of(id.as_str().as_bytes());
            let last = self.slots.len() - 1;
            let moved = hash(&self.slots[last].id);
            if let Ok(entry) = self.by_id.find_entry(hash(&self.slots[at].id), |slot| *slot == at) {
                entry.remove();
            }
            if let Some(slot) = self.by_id.find_mut(moved, |slot| *slot == last) {
                *slot = at;
            }
            gone.push(self.slots.swap_remove(at).id);
        }
        gone
    }
}

impl<'a> Walk<'_, 'a> {
    fn record(&mut self, at: usize, bytes: &'a [u8]) -> Result<(), Unusual> {
        let known = &mut *self.known;
        let (digest, id) = walk::digest(&known.digests, bytes)?;
        let digest = digest.max(1);
        // Mostly the order is that of the List before.
        let in_order = known.slots.get_mut(self.next).filter(|slot| slot.digest == digest);
        if let Some(slot) = in_order.filter(|slot| slot.seen != known.lists) {
            slot.seen = known.lists;
            self.next += 1;
            return Ok(());
        }
        if let Some(found) = known.find(id) {
            let slot = &mut known.slots[found];
            let repeats = std::mem::replace(&mut slot.seen, known.lists) == known.lists;
            let same = slot.digest == digest && !(repeats && slot.told == known.lists);
            if repeats {
                self.repeats();
            }
            if same {
                self.next = found + 1;
                return Ok(());
            }
        }
        self.reader.record(bytes, &mut self.view)?;
        let record = check(&self.view, format_args!("machines[{at}]"), &mut self.reader.texts);
        match &record.id {
            Some(id) => {
                let always = record.machine.is_err() || !record.violations.is_empty();
                let said = Said { machine: record.machine.as_ref().ok(), always };
                let (is_news, slot) = self.known.put(id, digest, said);
                self.next = slot + 1;
                if !is_news {
                    return Ok(());
                }
            }
            None if !id.is_empty() && !self.bad.insert(id) => self.repeats(),
            None => {}
        }
        self.changed.push(id);
        self.difference.changed.push(record);
        Ok(())
    }

    fn repeats(&mut self) {
        self.repeated = true;
        self.difference.violations.push(Violation::DuplicateId);
    }

    fn end(self) -> Difference<Record> {
        let Self { known, mut difference, changed, repeated, .. } = self;
        if repeated {
            let mut later = HashSet::new();
            let last: Vec<bool> = changed.iter().rev().map(|id| id.is_empty() || later.insert(*id)).collect();
            let mut last = last.into_iter().rev();
            difference.changed.retain(|_| last.next().unwrap_or(true));
        }
        difference.gone = known.sweep();
        difference
    }
}
