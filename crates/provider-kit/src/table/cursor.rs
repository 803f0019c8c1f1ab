//! Cursors: where a List goes on, as bytes that only their maker understands.
//!
//! A cursor carries check digits over itself and over the table's identity, so that changed bytes, or bytes of another
//! life of the provider, are no cursor at all and bring a whole list. To readers it is a number that grows with the
//! revision.

/// Check digits of a cursor.
const DIGITS: usize = 6;
const MODULUS: u64 = 1_000_000;

/// What a cursor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cursor {
    /// Everything up to this revision was seen.
    Since(u64),
    /// In the middle of a whole list in pages: machines as of `head`, in the order of their revisions, from the one
    /// after `start` around to it; `at` was the last one sent.
    Walk { head: u64, start: u64, at: u64 },
}

impl Cursor {
    /// The bytes, for a table with this identity.
    pub(super) fn write(self, identity: u64) -> Vec<u8> {
        let check = self.check(identity);
        let text = match self {
            Self::Since(revision) => format!("{revision}{check:0DIGITS$}"),
            Self::Walk { head, start, at } => format!("{head}-{start}-{at}-{check:0DIGITS$}"),
        };
        text.into_bytes()
    }

    /// What the bytes say; `None` for all that [`Cursor::write`] did not make for this identity.
    pub(super) fn read(bytes: &[u8], identity: u64) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, _) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
        let cursor = match body.strip_suffix('-') {
            None => Self::Since(body.parse().ok()?),
            Some(parts) => {
                let mut parts = parts.split('-').map(str::parse::<u64>);
                let mut next = || parts.next()?.ok();
                let (head, start, at) = (next()?, next()?, next()?);
                Self::Walk { head, start, at }
            }
        };
        // Writing it again refuses wrong digits and every other spelling at once.
        (cursor.write(identity) == bytes).then_some(cursor)
    }

    fn check(self, identity: u64) -> u64 {
        let words = match self {
            Self::Since(revision) => [identity, 1, revision, 0],
            Self::Walk { head, start, at } => [identity ^ (2 << 62), head, start, at],
        };
        let mixed = words.into_iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
            let spread = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            spread ^ (spread >> 29)
        });
        (mixed ^ (mixed >> 32)) % MODULUS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [Cursor; 5] = [
        Cursor::Since(0),
        Cursor::Since(7),
        Cursor::Since(1_234_567_890_123),
        Cursor::Walk { head: 10, start: 3, at: 5 },
        Cursor::Walk { head: 10, start: 3, at: 2 },
    ];

    #[test]
    fn a_cursor_says_what_was_written() {
        for cursor in SAMPLES {
            assert_eq!(Cursor::read(&cursor.write(42), 42), Some(cursor));
        }
        let numbers: Vec<u64> = [0, 1, 9, 10, 123_456]
            .map(|revision| String::from_utf8(Cursor::Since(revision).write(1)).unwrap().parse().unwrap())
            .into();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }

    #[test]
    fn changed_bytes_and_foreign_cursors_are_none() {
        for cursor in SAMPLES {
            let bytes = cursor.write(42);
            assert_eq!(Cursor::read(&bytes, 43), None, "of another life");
            for at in 0..bytes.len() {
                for flip in [0x01, 0x02, 0x10, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= flip;
                    assert_eq!(Cursor::read(&changed, 42), None, "{cursor:?} byte {at} flipped by {flip}");
                }
                assert_eq!(Cursor::read(&bytes[..at], 42), None, "cut at {at}");
            }
            assert_eq!(Cursor::read(&[&bytes[..], b"0"].concat(), 42), None);
            assert_eq!(Cursor::read(&[b"0", &bytes[..]].concat(), 42), None);
        }
    }
}
