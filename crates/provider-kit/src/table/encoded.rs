//! Machines as the bytes of the wire. Between two changes nobody looks into most machines: they are kept as they are
//! stored and sent, and only what the rules need is picked out.

use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bytes::Bytes;
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// A machine in its encoding, of which it is known that it can be decoded. Clones share the bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    bytes: Bytes,
    pub(super) facts: Facts,
}

/// What is there of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Facts {
    pub(super) host: bool,
    pub(super) bound: bool,
    pub(super) noted: bool,
    pub(super) error: bool,
}

impl Facts {
    pub(super) fn of(machine: &pb::Machine) -> Self {
        Self {
            host: machine.host.is_some(),
            bound: !machine.cluster.is_empty(),
            noted: !machine.shard_metadata.is_empty(),
            error: !machine.last_error.is_empty(),
        }
    }
}

impl Encoded {
    /// The bytes of a machine.
    #[must_use]
    pub fn of(machine: &pb::Machine) -> Self {
        Self { bytes: machine.encode_to_vec().into(), facts: Facts::of(machine) }
    }

    /// Looks through bytes from somewhere else; gives also the machine's id and the number of its state.
    ///
    /// # Errors
    /// When they are no machine.
    pub(super) fn checked(bytes: Bytes) -> Result<(Self, String, i32), &'static str> {
        let (mut id, mut state, mut facts) = (String::new(), 0, Facts::default());
        let mut rest = &bytes[..];
        while let Some((number, value)) = field(&mut rest)? {
            match (number, value) {
                (1, Value::Bytes(part)) => text(part)?.clone_into(&mut id),
                // As protobuf has it: the low half counts.
                (2, Value::Number(low)) => state = i32::from_le_bytes([low[0], low[1], low[2], low[3]]),
                (3, Value::Bytes(part)) => {
                    pairs(part)?;
                    facts.host = true;
                }
                (4 | 5, Value::Bytes(part)) => drop(text(part)?),
                (6, Value::Number(_)) | (7 | 8, Value::Wide) => {}
                (9 | 13, Value::Bytes(part)) => amounts(part)?,
                (10, Value::Bytes(part)) => pairs(part)?,
                (12, Value::Bytes(part)) => facts.error = !text(part)?.is_empty(),
                (14, Value::Bytes(part)) => facts.bound = !text(part)?.is_empty(),
                (15, Value::Bytes(part)) => {
                    pairs(part)?;
                    facts.noted = true;
                }
                (1..=10 | 12..=15, _) => return Err("a field is of another kind"),
                _ => {}
            }
        }
        Ok((Self { bytes, facts }, id, state))
    }

    /// The machine.
    #[must_use]
    pub fn decode(&self) -> pb::Machine {
        // Checked when it was made: there is no error that could come.
        pb::Machine::decode(&self.bytes[..]).unwrap_or_default()
    }

    /// The machine, to be shared.
    pub(super) fn shared(&self) -> Arc<pb::Machine> {
        Arc::new(self.decode())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// What a field has.
enum Value<'a> {
    /// Little end first.
    Number([u8; 8]),
    Bytes(&'a [u8]),
    /// Eight bytes.
    Wide,
    Other,
}

const BROKEN: &str = "its bytes are no machine";

fn field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, Value<'a>)>, &'static str> {
    if rest.is_empty() {
        return Ok(None);
    }
    let (number, wire) = decode_key(rest).map_err(|_| BROKEN)?;
    let value = match wire {
        WireType::Varint => Value::Number(decode_varint(rest).map_err(|_| BROKEN)?.to_le_bytes()),
        WireType::LengthDelimited => {
            let length = decode_varint(rest).map_err(|_| BROKEN)?;
            let length = usize::try_from(length).map_err(|_| BROKEN)?;
            let (part, after) = rest.split_at_checked(length).ok_or(BROKEN)?;
            *rest = after;
            Value::Bytes(part)
        }
        other => {
            skip_field(other, number, rest, DecodeContext::default()).map_err(|_| BROKEN)?;
            if other == WireType::SixtyFourBit { Value::Wide } else { Value::Other }
        }
    };
    Ok(Some((number, value)))
}

fn text(part: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(part).map_err(|_| "a text in it is no UTF-8")
}

/// A message of texts with numbers 1 and 2: a host, or an entry of a map.
fn pairs(mut part: &[u8]) -> Result<(), &'static str> {
    while let Some((number, value)) = field(&mut part)? {
        match (number, value) {
            (1 | 2, Value::Bytes(part)) => drop(text(part)?),
            (1 | 2, _) => return Err("a field is of another kind"),
            _ => {}
        }
    }
    Ok(())
}

/// A message with one map of texts.
fn amounts(mut part: &[u8]) -> Result<(), &'static str> {
    while let Some((number, value)) = field(&mut part)? {
        match (number, value) {
            (1, Value::Bytes(entry)) => pairs(entry)?,
            (1, _) => return Err("a field is of another kind"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn full() -> pb::Machine {
        let map = |key: &str| {
            BTreeMap::from([(key.to_owned(), "1".to_owned()), ("x".to_owned(), "\u{e4}".to_owned())])
        };
        pb::Machine {
            id: "m-1".into(),
            state: 5,
            host: Some(pb::HostRef { provider: "p".into(), r#ref: "r".into() }),
            instance_type: "t".into(),
            zone: "z".into(),
            capacity_type: 3,
            price_per_hour: 0.25,
            interruption_probability: 0.5,
            resources: Some(pb::Resources { resources: map("cpu") }),
            labels: map("label"),
            last_error: "e".into(),
            allocatable: Some(pb::Resources { resources: map("memory") }),
            cluster: "c".into(),
            shard_metadata: map("note"),
        }
    }

    #[test]
    fn what_is_picked_out_is_what_is_in_it() {
        for machine in [full(), pb::Machine::default(), pb::Machine { state: -3, ..pb::Machine::default() }] {
            let encoded = Encoded::of(&machine);
            let (checked, id, state) = Encoded::checked(encoded.bytes().clone()).unwrap();
            assert_eq!((&checked, id, state), (&encoded, machine.id.clone(), machine.state));
            assert_eq!(checked.decode(), machine);
        }
        // An empty host is one.
        let machine = pb::Machine { host: Some(pb::HostRef::default()), ..pb::Machine::default() };
        let (checked, ..) = Encoded::checked(Encoded::of(&machine).bytes().clone()).unwrap();
        assert_eq!(checked.facts, Facts::of(&machine));
    }

    /// The check lets nothing through that the decoder refuses.
    #[test]
    fn what_passes_the_check_can_be_decoded() {
        let bytes = full().encode_to_vec();
        let mut passed = 0;
        for at in 0..bytes.len() {
            for flip in 1..=255_u8 {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let decoded = pb::Machine::decode(&changed[..]);
                if let Ok((checked, id, state)) = Encoded::checked(changed.into()) {
                    passed += 1;
                    let machine = decoded.unwrap();
                    assert_eq!((checked.facts, id, state), (Facts::of(&machine), machine.id, machine.state));
                }
            }
            if let Ok((checked, ..)) = Encoded::checked(bytes[..at].to_vec().into()) {
                assert_eq!(checked.decode(), pb::Machine::decode(&bytes[..at]).unwrap());
            }
        }
        assert!(passed > 1000, "{passed}");
    }
}
