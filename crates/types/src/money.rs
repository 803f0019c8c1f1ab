//! Prices, probabilities and the fixed cost formula, in integers: nano-dollars and parts per billion.

use std::fmt;

use crate::penalty::PenaltyBucket;

const NANO: f64 = 1e9;

/// Rounds half up to an integer number of billionths, saturating.
#[allow(
    clippy::cast_possible_truncation,
    reason = "float to integer `as` saturates, which is the documented rule"
)]
fn billionths(value: f64) -> i64 {
    // Adding a half first would round once more.
    let product = value * NANO;
    let whole = product.floor();
    (if product - whole >= 0.5 { whole + 1.0 } else { whole }) as i64
}

/// A price in nano-dollars (an hour, where it is a machine's), never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NanoDollars(i64);

impl NanoDollars {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Takes dollars, rounding half up to one nano-dollar and saturating. `None` when they are negative, infinite
    /// or not a number.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        (dollars.is_finite() && dollars >= 0.0).then(|| Self(billionths(dollars)))
    }

    /// Takes nano-dollars; negative ones become zero.
    #[must_use]
    pub fn from_nano(nano: i64) -> Self {
        Self(nano.max(0))
    }

    /// The amount in nano-dollars.
    #[must_use]
    pub fn nano(self) -> i64 {
        self.0
    }

    /// The amount in dollars, for display and the wire.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "display and wire only; decisions use the integer")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANO
    }
}

impl fmt::Display for NanoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.dollars())
    }
}

impl fmt::Debug for NanoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A probability in parts per billion, 0..=10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);

    /// Takes a number in [0, 1], rounding half up to one billionth; `None` for anything else.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then(|| Self(u32::try_from(billionths(value)).unwrap_or(1_000_000_000)))
    }

    /// Parts per billion.
    #[must_use]
    pub fn nano(self) -> u32 {
        self.0
    }

    /// The probability as a number in [0, 1], for display and the wire.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / NANO
    }
}

/// What a machine costs one workload an hour: its price plus the expected cost of being interrupted.
///
/// Orders finite costs before infinite ones; infinite ones order by price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectiveCost {
    /// A pinned workload on a machine that may be interrupted.
    pub infinite: bool,
    /// Half nano-dollars: every bucket bound is a multiple of half a dollar, so this is exact.
    pub half_nano: u128,
}

impl EffectiveCost {
    /// `price + probability x penalty`, with the bucket's upper bound. A pinned workload costs the price alone on a
    /// machine that is never interrupted, else it is infinite.
    #[must_use]
    pub fn new(price: NanoDollars, probability: Probability, penalty: PenaltyBucket) -> Self {
        let twice_price = u128::from(price.nano().unsigned_abs()) * 2;
        let chance = u128::from(probability.nano());
        match penalty.half_dollars() {
            Some(halves) => {
                Self { infinite: false, half_nano: twice_price + chance * u128::from(halves.unsigned_abs()) }
            }
            None => Self { infinite: chance > 0, half_nano: twice_price },
        }
    }
}

/// A penalty as it is stamped on a machine: nano-dollars, or infinite for a pinned workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StampedPenalty {
    /// So many dollars.
    Finite(NanoDollars),
    /// Pinned.
    Infinite,
}

impl From<PenaltyBucket> for StampedPenalty {
    fn from(bucket: PenaltyBucket) -> Self {
        match bucket.half_dollars() {
            None => Self::Infinite,
            Some(halves) => Self::Finite(NanoDollars(halves * 500_000_000)),
        }
    }
}
