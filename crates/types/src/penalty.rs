//! Penalty buckets: what an interruption or the loss of a machine costs a workload, in powers of two dollars.

use std::fmt;

use crate::quantity::{NANO, Quantity};

/// A bucket number outside 0..=27.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a penalty bucket; known are 0 to 27")]
pub struct UnknownBucket(pub i32);

/// One of 27 buckets: 1 is $0, 2 is $0.50, 3+k is 2^k dollars (k = 0..23), 27 is pinned, which no sum of money
/// outweighs. The bounds are inclusive at the top; a workload is priced at its bucket's upper bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PenaltyBucket(u8);

impl PenaltyBucket {
    /// No penalty.
    pub const ZERO: Self = Self(1);
    /// More than any sum of money.
    pub const PINNED: Self = Self(27);

    /// Takes the number that the wire carries. 0 (the field left out) means no penalty.
    ///
    /// # Errors
    /// The number is outside 0..=27.
    pub fn from_wire(number: i32) -> Result<Self, UnknownBucket> {
        match u8::try_from(number) {
            Ok(0) => Ok(Self::ZERO),
            Ok(n @ 1..=27) => Ok(Self(n)),
            _ => Err(UnknownBucket(number)),
        }
    }

    /// The smallest bucket whose bound is at least these dollars; negative amounts cost nothing.
    #[must_use]
    pub fn from_dollars(dollars: Quantity) -> Self {
        let nano = dollars.nano();
        (1..27u8)
            .map(Self)
            .find(|bucket| bucket.half_dollars().is_some_and(|halves| nano <= i128::from(halves) * NANO / 2))
            .unwrap_or(Self::PINNED)
    }

    /// The number on the wire, 1..=27.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The upper bound in half dollars; `None` for pinned.
    #[must_use]
    pub fn half_dollars(self) -> Option<i64> {
        match self.0 {
            1 => Some(0),
            2 => Some(1),
            27 => None,
            n => Some(2i64 << (n - 3)),
        }
    }

    /// Every bucket, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=27).map(Self)
    }
}

impl fmt::Display for PenaltyBucket {
    /// The label that metrics use: the bound in dollars (`0`, `0.5`, `8192`) or `pinned`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.half_dollars() {
            None => f.write_str("pinned"),
            Some(1) => f.write_str("0.5"),
            Some(halves) => write!(f, "{}", halves / 2),
        }
    }
}

impl fmt::Debug for PenaltyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${self}")
    }
}
