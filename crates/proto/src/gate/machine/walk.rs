//! Reads the answer to a List where it lies: one walk over its bytes, nothing copied.
//!
//! It reads what every usual encoder writes. Anything else is [`Unusual`], whether it is wrong or only rare (groups, a
//! message in two parts, a key twice, labels apart from each other); the generated decoder judges that.

use std::hash::Hasher as _;

use bigfleet_types::{Labels, Resources};
use hashbrown::HashMap;

use super::view::View;
use crate::gate::cursor::{Cursor, Read, Unusual, delimited, fixed64, varint};
use crate::gate::digest::Key;
use crate::gate::{Error, Texts, amounts};

const ID: u64 = delimited(1);
const STATE: u64 = varint(2);
const HOST: u64 = delimited(3);
const INSTANCE_TYPE: u64 = delimited(4);
const ZONE: u64 = delimited(5);
const CAPACITY_TYPE: u64 = varint(6);
const PRICE_PER_HOUR: u64 = fixed64(7);
const INTERRUPTION_PROBABILITY: u64 = fixed64(8);
const RESOURCES: u64 = delimited(9);
const LABELS: u64 = delimited(10);
const LAST_ERROR: u64 = delimited(12);
const ALLOCATABLE: u64 = delimited(13);
const CLUSTER: u64 = delimited(14);
const METADATA: u64 = delimited(15);
/// The only field of a vector, the key of an entry, the provider of a host.
const FIRST: u64 = delimited(1);
const SECOND: u64 = delimited(2);
/// The numbers of a machine's fields.
const MACHINE: [u64; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15];

/// The digest of all bytes of a record, but the entries of a map may come in any order: an encoder may shuffle them. With it
/// comes the id, unchecked. What is not well-formed may have any digest.
pub(super) fn digest<'a>(digests: &Key, record: &'a [u8]) -> Read<(u64, &'a [u8])> {
    let (mut hasher, mut entries, mut id) = (digests.hasher(), 0_u64, [].as_slice());
    let mut cursor = Cursor::new(record);
    let mut run = cursor;
    loop {
        let start = cursor;
        let key = cursor.key()?;
        match key {
            0 => break,
            ID => id = cursor.bytes()?,
            LABELS | METADATA => {
                hasher.write(start.since(run));
                cursor.skip(key)?;
                run = cursor;
                entries = entries.wrapping_add(digests.of(cursor.since(start)));
            }
            RESOURCES | ALLOCATABLE => {
                hasher.write(start.since(run));
                let mut inner = Cursor::new(cursor.bytes()?);
                run = cursor;
                let mut sum = key;
                loop {
                    let start = inner;
                    match inner.key()? {
                        0 => break,
                        key => inner.skip(key)?,
                    }
                    sum = sum.wrapping_add(digests.of(inner.since(start)));
                }
                hasher.write_u64(sum);
            }
            _ => cursor.skip(key)?,
        }
    }
    hasher.write(cursor.since(run));
    hasher.write_u64(entries);
    Ok((hasher.finish(), id))
}

/// Reads records of one message. Remembers vectors and labels by their bytes: few of them differ.
#[derive(Default)]
pub(super) struct Reader<'a> {
    pub(super) texts: Texts,
    vectors: HashMap<&'a [u8], Result<Resources, Error>>,
    labels: HashMap<&'a [u8], Labels>,
}

impl<'a> Reader<'a> {
    /// Reads one record. `into` is made new.
    pub(super) fn record(&mut self, record: &'a [u8], into: &mut View<'a>) -> Read<()> {
        let mut shard_metadata = std::mem::take(&mut into.shard_metadata);
        shard_metadata.clear();
        *into = View { shard_metadata, ..View::default() };
        let mut labels: Option<(Cursor<'a>, &'a [u8])> = None;
        let mut cursor = Cursor::new(record);
        loop {
            let start = cursor;
            let key = cursor.key()?;
            match key {
                0 => break,
                ID => into.id = cursor.text()?,
                STATE => into.state = cursor.int32()?,
                HOST if into.host.is_none() => into.host = Some(pair(cursor.bytes()?)?),
                INSTANCE_TYPE => into.instance_type = cursor.text()?,
                ZONE => into.zone = cursor.text()?,
                CAPACITY_TYPE => into.capacity_type = cursor.int32()?,
                PRICE_PER_HOUR => into.price_per_hour = cursor.double()?,
                INTERRUPTION_PROBABILITY => into.interruption_probability = cursor.double()?,
                RESOURCES if into.resources.is_none() => {
                    into.resources = Some(self.vector(cursor.bytes()?)?);
                }
                LABELS => {
                    cursor.bytes()?;
                    let (from, run) = labels.unwrap_or((start, &[]));
                    if start.since(from).len() != run.len() {
                        return Err(Unusual);
                    }
                    labels = Some((from, cursor.since(from)));
                }
                LAST_ERROR => into.last_error = cursor.text()?,
                ALLOCATABLE if into.allocatable.is_none() => {
                    into.allocatable = Some(self.vector(cursor.bytes()?)?);
                }
                CLUSTER => into.cluster = cursor.text()?,
                METADATA => into.shard_metadata.push(pair(cursor.bytes()?)?),
                _ => cursor.skip_unless(key, &MACHINE)?,
            }
        }
        if let Some((_, run)) = labels {
            into.labels = self.labels(run)?;
        }
        sort(&mut into.shard_metadata)
    }

    fn vector(&mut self, message: &'a [u8]) -> Read<Result<Resources, Error>> {
        if let Some(known) = self.vectors.get(message) {
            return Ok(known.clone());
        }
        let mut entries = Vec::new();
        let mut cursor = Cursor::new(message);
        loop {
            match cursor.key()? {
                0 => break,
                FIRST => entries.push(pair(cursor.bytes()?)?),
                key => cursor.skip_unless(key, &[1])?,
            }
        }
        sort(&mut entries)?;
        let vector = amounts::supply(entries, &mut self.texts);
        self.vectors.insert(message, vector.clone());
        Ok(vector)
    }

    fn labels(&mut self, run: &'a [u8]) -> Read<Labels> {
        if let Some(known) = self.labels.get(run) {
            return Ok(known.clone());
        }
        let mut entries = Vec::new();
        let mut cursor = Cursor::new(run);
        while cursor.key()? != 0 {
            entries.push(pair(cursor.bytes()?)?);
        }
        sort(&mut entries)?;
        let texts = &mut self.texts;
        let labels: Labels =
            entries.into_iter().map(|(key, value)| (texts.text(key), texts.text(value))).collect();
        self.labels.insert(run, labels.clone());
        Ok(labels)
    }
}

/// The texts 1 and 2 of a message: the entry of a map, or a host.
fn pair(message: &[u8]) -> Read<(&str, &str)> {
    let mut pair = ("", "");
    let mut cursor = Cursor::new(message);
    loop {
        match cursor.key()? {
            0 => return Ok(pair),
            FIRST => pair.0 = cursor.text()?,
            SECOND => pair.1 = cursor.text()?,
            key => cursor.skip_unless(key, &[1, 2])?,
        }
    }
}

/// Puts the entries of a map in order.
fn sort(entries: &mut [(&str, &str)]) -> Read<()> {
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        entries.sort_unstable_by_key(|(key, _)| *key);
        if entries.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(Unusual);
        }
    }
    Ok(())
}
