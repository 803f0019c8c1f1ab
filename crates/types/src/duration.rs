//! Durations as people write them: `10s`, `5m`, `1h30m`, `250ms`.

use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Why a text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is no sum of integers with units.
    #[error("is not a duration such as 10s, 5m or 1h30m")]
    Malformed,
    /// It begins with a minus.
    #[error("must not be negative")]
    Negative,
    /// It does not fit 64 bits of nanoseconds.
    #[error("is longer than 584 years")]
    TooLong,
}

/// Reads a sum of integers with units (`ns us ms s m h`); `0` needs no unit.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let bad = || DurationError::Malformed;
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut total: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, nanos) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(bad)?;
        total = total.saturating_add(u128::from(number) * u128::from(*nanos));
        rest = &rest[letters..];
    }
    if text.is_empty() {
        return Err(bad());
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| DurationError::TooLong)
}

/// Prints a duration in the form that [`parse`] reads.
#[must_use]
pub fn print(duration: Duration) -> String {
    let mut nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in UNITS.iter().rev() {
        if nanos >= *size {
            text.push_str(&format!("{}{unit}", nanos / size));
            nanos %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_print() {
        for (text, nanos, printed) in [
            ("10s", 10_000_000_000, "10s"),
            ("1h30m", 5_400_000_000_000, "1h30m"),
            ("250ms", 250_000_000, "250ms"),
            ("90s", 90_000_000_000, "1m30s"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5us", 5_000, "5us"),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed, Duration::from_nanos(nanos), "{text}");
            assert_eq!(print(parsed), printed, "{text}");
        }
        for bad in ["", "10", "s", "1.5h", "-1s", "10 s", "10parsecs", "99999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
