//! Kubernetes resource quantities, parsed exactly.
//!
//! Grammar: an optional sign, digits with at most one point, then nothing, a decimal suffix (`n u m k M G T P E`),
//! a binary suffix (`Ki` to `Ei`) or an exponent (`e`/`E` and a signed integer). What is finer than one nano is
//! rounded away from zero to one nano; magnitudes above 2^63-1 become 2^63-1, as in Kubernetes.

use std::fmt;

/// Nano-units in one unit.
pub(crate) const NANO: i128 = 1_000_000_000;
const MAX_NANO: i128 = i64::MAX as i128 * NANO;

/// The notation that a quantity was written in and prints in again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `n u m k M G T P E`, or no suffix.
    Decimal,
    /// `Ki Mi Gi Ti Pi Ei`.
    Binary,
    /// `e3`, `E-6`.
    Exponent,
}

/// An exact amount between -(2^63-1) and 2^63-1, to one nano.
///
/// Equality and order go by amount, whatever the notation: `1024Mi == 1Gi`.
#[derive(Clone, Copy)]
pub struct Quantity {
    nano: i128,
    family: Family,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// There is no text.
    #[error("is empty; write a number such as 500m, 2 or 16Gi")]
    Empty,
    /// The text does not begin with a number.
    #[error("is not a number with an optional sign and at most one point")]
    Number,
    /// What follows the number is no suffix.
    #[error(
        "ends in an unknown suffix; known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei and an exponent such as e3"
    )]
    Suffix,
    /// The exponent does not fit 32 bits.
    #[error("has an exponent outside -2^31..2^31-1")]
    Exponent,
}

impl Quantity {
    /// Zero, decimal.
    pub const ZERO: Self = Self { nano: 0, family: Family::Decimal };

    /// An amount in nano-units, clamped to what a quantity can hold.
    #[must_use]
    pub fn from_nano(nano: i128, family: Family) -> Self {
        Self { nano: nano.clamp(-MAX_NANO, MAX_NANO), family }
    }

    /// The amount in nano-units.
    #[must_use]
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Reads a quantity; see the module for the grammar.
    ///
    /// # Errors
    /// Says what is wrong with the text. Blanks are never accepted.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'+' => (false, &text[1..]),
            b'-' => (true, &text[1..]),
            _ => (false, text),
        };
        let (number, suffix) = split_number(unsigned)?;
        let (scale, family) = parse_suffix(suffix)?;
        let magnitude = number.scaled(scale);
        Ok(Self { nano: if negative { -magnitude } else { magnitude }, family })
    }
}

/// The digits of a number and where its point stands: `point` digits lie before it.
struct Number<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
}

#[derive(Clone, Copy)]
enum Scale {
    PowerOfTen(i32),
    PowerOfTwo(u32),
}

fn split_number(text: &str) -> Result<(Number<'_>, &str), QuantityError> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(0);
    let (fraction_start, fraction) = match bytes.get(whole) {
        Some(b'.') => (whole + 1, digits(whole + 1)),
        _ => (whole, 0),
    };
    if whole + fraction == 0 {
        return Err(QuantityError::Number);
    }
    let end = fraction_start + fraction;
    let number = Number { whole: &bytes[..whole], fraction: &bytes[fraction_start..end] };
    Ok((number, &text[end..]))
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Family), QuantityError> {
    let ten = |power| Ok((Scale::PowerOfTen(power), Family::Decimal));
    let two = |power| Ok((Scale::PowerOfTwo(power), Family::Binary));
    match suffix {
        "" => ten(0),
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        _ => parse_exponent(suffix),
    }
}

fn parse_exponent(suffix: &str) -> Result<(Scale, Family), QuantityError> {
    let Some(exponent) = suffix.strip_prefix(['e', 'E']) else {
        return Err(QuantityError::Suffix);
    };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Suffix);
    }
    let power = exponent.parse::<i32>().map_err(|_| QuantityError::Exponent)?;
    Ok((Scale::PowerOfTen(power), Family::Exponent))
}

impl Number<'_> {
    /// The number times the scale in nano-units, rounded up and capped. Linear in the number of digits, whatever
    /// the exponent.
    fn scaled(&self, scale: Scale) -> i128 {
        match scale {
            Scale::PowerOfTen(power) => self.times_power_of_ten(i64::from(power)),
            Scale::PowerOfTwo(power) => self.times_power_of_two(power),
        }
    }

    fn times_power_of_ten(&self, power: i64) -> i128 {
        // The digits before this position make up the nano-units; one more digit than a capped amount has is
        // enough to know that it is capped.
        let whole = i64::try_from(self.whole.len()).unwrap_or(i64::MAX);
        let position = whole.saturating_add(power).saturating_add(9);
        let mut nano: i128 = 0;
        let mut rest = false;
        let mut index: i64 = 0;
        for digit in self.whole.iter().chain(self.fraction) {
            let value = i128::from(digit - b'0');
            if index < position {
                nano = (nano * 10 + value).min(MAX_NANO);
            } else {
                rest |= value > 0;
            }
            index += 1;
        }
        while index < position && nano > 0 && nano < MAX_NANO {
            nano = (nano * 10).min(MAX_NANO);
            index += 1;
        }
        (nano + i128::from(rest)).min(MAX_NANO)
    }

    fn times_power_of_two(&self, power: u32) -> i128 {
        let factor = 1u128 << power;
        let cap = i128::from(i64::MAX);
        let whole = self.whole.iter().fold(0i128, |sum, d| (sum * 10 + i128::from(d - b'0')).min(cap));
        // Multiply the decimal fraction by the factor digit by digit; what overflows the point is whole.
        let mut fraction: Vec<u8> = self.fraction.iter().map(|d| d - b'0').collect();
        let mut carry: u128 = 0;
        for digit in fraction.iter_mut().rev() {
            let product = u128::from(*digit) * factor + carry;
            *digit = u8::try_from(product % 10).unwrap_or(0);
            carry = product / 10;
        }
        let carried = i128::try_from(carry).unwrap_or(cap);
        let units = whole.saturating_mul(1i128 << power).saturating_add(carried).min(cap);
        let digit = |i: usize| i128::from(fraction.get(i).copied().unwrap_or(0));
        let below = (0..9).fold(0i128, |sum, i| sum * 10 + digit(i));
        let rest = fraction.iter().skip(9).any(|d| *d > 0);
        (units * NANO + below + i128::from(rest)).min(MAX_NANO)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix of the family that leaves an integer. Binary amounts that are below
    /// 1024 or not whole print decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        match self.family {
            Family::Binary if self.nano % NANO == 0 && self.nano.abs() >= 1024 * NANO => {
                let (mantissa, suffix) = without_factors(self.nano / NANO, 1024, 6);
                write!(f, "{mantissa}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][suffix])
            }
            family => {
                let (mantissa, thousands) = without_factors(self.nano, 1000, 9);
                if family == Family::Exponent {
                    let power = 3 * i32::try_from(thousands).unwrap_or(0) - 9;
                    return if power == 0 {
                        write!(f, "{mantissa}")
                    } else {
                        write!(f, "{mantissa}e{power}")
                    };
                }
                write!(f, "{mantissa}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][thousands])
            }
        }
    }
}

/// An integer that prints at half the cost when it has 64 bits.
enum Mantissa {
    Usual(i64),
    Long(i128),
}

impl fmt::Display for Mantissa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual(mantissa) => mantissa.fmt(f),
            Self::Long(mantissa) => mantissa.fmt(f),
        }
    }
}

/// Divides by `factor` while nothing remains, at most so many times; gives how often. Not for 0.
fn without_factors(mut mantissa: i128, factor: i64, most: usize) -> (Mantissa, usize) {
    let mut times = 0;
    while times < most {
        let Ok(mut usual) = i64::try_from(mantissa) else {
            if mantissa % i128::from(factor) != 0 {
                return (Mantissa::Long(mantissa), times);
            }
            mantissa /= i128::from(factor);
            times += 1;
            continue;
        };
        while usual % factor == 0 && times < most {
            usual /= factor;
            times += 1;
        }
        return (Mantissa::Usual(usual), times);
    }
    (Mantissa::Long(mantissa), times)
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }
}
