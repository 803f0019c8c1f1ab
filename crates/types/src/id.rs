//! Ids. All are opaque text compared by bytes: a restart must not change an order.

use std::fmt;
use std::sync::Arc;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than the 253 bytes that fit a DNS name, a metric label and a URI segment.
    #[error("has {0} bytes, at most 253 are allowed")]
    TooLong(usize),
    /// The text holds a blank, a control character or a byte outside printable ASCII.
    #[error("must be printable ASCII without blanks")]
    NotPrintable,
}

const MAX_ID_BYTES: usize = 253;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes an id from outside: 1 to 253 bytes of printable ASCII without blanks.
            ///
            /// # Errors
            /// Says which of these rules the text breaks.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                if text.is_empty() {
                    return Err(IdError::Empty);
                }
                if text.len() > MAX_ID_BYTES {
                    return Err(IdError::TooLong(text.len()));
                }
                if !text.bytes().all(|b| b.is_ascii_graphic()) {
                    return Err(IdError::NotPrintable);
                }
                Ok(Self(text.into()))
            }

            /// Wraps a text that is known to be an id (tests, seeds, ids made by us). Nothing is checked.
            #[must_use]
            pub fn trusted(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// A Kubernetes cluster, as its operator names itself.
    ClusterId
);
text_id!(
    /// A machine or quota slot, as its provider names it. Stable for the life of the slot.
    MachineId
);
text_id!(
    /// A shard.
    ShardId
);

/// What keeps Needs of one profile apart: one value per gang, per kind of device, or empty. Only equality counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Group(Option<Arc<str>>);

impl Group {
    /// The empty group, which plain Needs carry.
    pub const NONE: Self = Self(None);

    /// Wraps a group text; the empty text is [`Group::NONE`].
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }

    /// The group as text, `""` for none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }

    /// Whether this is the empty group.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The identity of a profile: the first 16 bytes of SHA-256 over its canonical encoding. Prints as 32 lower-case
/// hex digits; byte order and text order agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// Reads 32 lower-case hex digits. `None` for anything else: a foreign stamp that names no profile of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0u8; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // At once, as the engine asks for the text of every Need.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_cannot_be_a_label() {
        for (text, error) in [
            ("", IdError::Empty),
            ("a b", IdError::NotPrintable),
            ("a\n", IdError::NotPrintable),
            ("\u{e4}", IdError::NotPrintable),
        ] {
            assert_eq!(ClusterId::parse(text).unwrap_err(), error, "{text:?}");
        }
        assert_eq!(MachineId::parse(&"x".repeat(254)).unwrap_err(), IdError::TooLong(254));
        assert_eq!(MachineId::parse(&"x".repeat(253)).unwrap().as_str().len(), 253);
    }

    #[test]
    fn ids_order_by_bytes_not_by_number() {
        assert!(MachineId::trusted("gpu-10") < MachineId::trusted("gpu-2"));
    }

    #[test]
    fn fingerprints_print_and_parse() {
        let text = "7f965d2f2f2f500fe8c7f4137395a9fa";
        assert_eq!(Fingerprint::parse(text).unwrap().to_string(), text);
        for bad in ["", "7f", &text.to_uppercase(), "7f965d2f2f2f500fe8c7f4137395a9fg"] {
            assert_eq!(Fingerprint::parse(bad), None, "{bad}");
        }
    }
}
