//! Reads the answer to a List where it lies: one walk over its bytes, nothing copied.
//!
//! It reads what every usual encoder writes. Anything else is [`Unusual`], whether it is wrong or only rare (groups, a
//! message in two parts, a key twice, labels apart from each other); the generated decoder judges that.

use std::hash::{BuildHasher as _, Hasher as _};

use bigfleet_types::{Labels, Resources};
use foldhash::quality::SeedableRandomState;
use hashbrown::HashMap;

use super::view::View;
use crate::gate::{Error, Texts, amounts};

/// Not for this reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unusual;

type Read<T> = Result<T, Unusual>;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(&'a [u8]);

/// A field: its number, and what it holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
    /// Four bytes that no message here has.
    Word,
}

impl<'a> Field<'a> {
    pub(super) fn bytes(self) -> Read<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Unusual) }
    }

    pub(super) fn text(self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unusual)
    }

    fn double(self) -> Read<f64> {
        if let Self::Double(double) = self { Ok(double) } else { Err(Unusual) }
    }

    /// Numbers of 32 bits are the lower half of what was written.
    fn int32(self) -> Read<i32> {
        let Self::Number(number) = self else { return Err(Unusual) };
        let [a, b, c, d, ..] = number.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field and its number; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Read<Option<(u64, Field<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || key > u64::from(u32::MAX) {
            return Err(Unusual);
        }
        let field = match key & 7 {
            VARINT => Field::Number(self.varint()?),
            FIXED64 => {
                let (bytes, rest) = self.0.split_first_chunk().ok_or(Unusual)?;
                self.0 = rest;
                Field::Double(f64::from_le_bytes(*bytes))
            }
            DELIMITED => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unusual)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unusual)?;
                self.0 = rest;
                Field::Bytes(bytes)
            }
            FIXED32 => {
                self.0 = self.0.get(4..).ok_or(Unusual)?;
                Field::Word
            }
            _ => return Err(Unusual),
        };
        Ok(Some((number, field)))
    }

    #[inline]
    fn varint(&mut self) -> Read<u64> {
        if let [byte @ 0..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Read<u64> {
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.0.get(at).ok_or(Unusual)?;
            // The tenth byte has room for one bit.
            if at == 9 && byte > 1 {
                return Err(Unusual);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(Unusual)
    }

    /// What was read since `start`, a copy of this cursor from then.
    fn since(self, start: Self) -> &'a [u8] {
        &start.0[..start.0.len() - self.0.len()]
    }
}

/// Makes digests of records. The key is the process's own, so nobody can make two records look alike.
#[derive(Debug, Clone)]
pub(super) struct Digests(SeedableRandomState);

impl Default for Digests {
    fn default() -> Self {
        // The standard library's keys come from the system's source of chance.
        let seed = std::hash::RandomState::new().hash_one(0_u64);
        Self(SeedableRandomState::with_seed(seed, foldhash::SharedSeed::global_random()))
    }
}

impl Digests {
    pub(super) fn of_text(&self, text: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(text);
        hasher.finish()
    }

    /// Of all bytes of a record, but the entries of a map may come in any order: an encoder may shuffle them. With it comes
    /// the id, unchecked. What is not well-formed may have any digest.
    pub(super) fn of<'a>(&self, record: &'a [u8]) -> Read<(u64, &'a [u8])> {
        let (mut hasher, mut entries, mut id) = (self.0.build_hasher(), 0_u64, [].as_slice());
        let mut cursor = Cursor(record);
        let mut run = cursor;
        loop {
            let start = cursor;
            let field = cursor.field()?;
            let (number, bytes) = match field {
                Some((number @ (9 | 10 | 13 | 15), Field::Bytes(bytes))) => (number, bytes),
                Some((1, Field::Bytes(bytes))) => {
                    id = bytes;
                    continue;
                }
                Some(_) => continue,
                None => break,
            };
            hasher.write(start.since(run));
            run = cursor;
            if number == 10 || number == 15 {
                entries = entries.wrapping_add(self.of_text(cursor.since(start)));
                continue;
            }
            let mut inner = Cursor(bytes);
            let mut sum = number;
            loop {
                let start = inner;
                if inner.field()?.is_none() {
                    break;
                }
                sum = sum.wrapping_add(self.of_text(inner.since(start)));
            }
            hasher.write_u64(sum);
        }
        hasher.write(cursor.since(run));
        hasher.write_u64(entries);
        Ok((hasher.finish(), id))
    }
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
        let mut cursor = Cursor(record);
        loop {
            let start = cursor;
            let Some((number, field)) = cursor.field()? else { break };
            match number {
                1 => into.id = field.text()?,
                2 => into.state = field.int32()?,
                3 if into.host.is_none() => into.host = Some(pair(field.bytes()?)?),
                4 => into.instance_type = field.text()?,
                5 => into.zone = field.text()?,
                6 => into.capacity_type = field.int32()?,
                7 => into.price_per_hour = field.double()?,
                8 => into.interruption_probability = field.double()?,
                9 if into.resources.is_none() => into.resources = Some(self.vector(field.bytes()?)?),
                10 => {
                    field.bytes()?;
                    let (from, run) = labels.unwrap_or((start, &[]));
                    if from.0.len() - start.0.len() != run.len() {
                        return Err(Unusual);
                    }
                    labels = Some((from, cursor.since(from)));
                }
                12 => into.last_error = field.text()?,
                13 if into.allocatable.is_none() => into.allocatable = Some(self.vector(field.bytes()?)?),
                14 => into.cluster = field.text()?,
                15 => into.shard_metadata.push(pair(field.bytes()?)?),
                3 | 9 | 13 => return Err(Unusual),
                _ => {}
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
        let mut cursor = Cursor(message);
        while let Some((number, field)) = cursor.field()? {
            if number == 1 {
                entries.push(pair(field.bytes()?)?);
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
        let mut cursor = Cursor(run);
        while let Some((_, field)) = cursor.field()? {
            entries.push(pair(field.bytes()?)?);
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
    let mut cursor = Cursor(message);
    while let Some((number, field)) = cursor.field()? {
        match number {
            1 => pair.0 = field.text()?,
            2 => pair.1 = field.text()?,
            _ => {}
        }
    }
    Ok(pair)
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
