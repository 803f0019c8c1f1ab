//! Whole numbers out of JSON number tokens, exactly: `17e2` is one, `1.5` and `1e-1` are none.

/// The value of a JSON number token; `None` when it is not whole or does not fit 64 bits.
pub(super) fn integer(token: &str) -> Option<i64> {
    let (negative, unsigned) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // Digits behind the last one that counts, less those behind the point. An exponent that is no 32-bit number is far
    // beyond what digits could make up for.
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let behind_point = i64::try_from(fraction.len()).ok()?;
    let shift = i64::from(exponent.parse::<i32>().ok()?) + zeros - behind_point;
    let factor = 10i128.checked_pow(u32::try_from(shift).ok()?)?;
    let magnitude = significant.parse::<i128>().ok()?.checked_mul(factor)?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn whole_numbers_are_exact() {
        for (token, value) in [
            ("0", 0),
            ("-0", 0),
            ("0e999999999999", 0),
            ("0.000", 0),
            ("1700000000000000001", 1_700_000_000_000_000_001),
            ("1.700000000000000001e18", 1_700_000_000_000_000_001),
            ("17E+2", 1700),
            ("1500e-2", 15),
            ("5.0", 5),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(token), Some(value), "{token}");
        }
    }

    #[test]
    fn other_numbers_are_none() {
        for token in
            ["1.5", "1e-1", "9223372036854775808", "-9223372036854775809", "1e19", "1e99999999999", "1e400"]
        {
            assert_eq!(integer(token), None, "{token}");
        }
        assert_eq!(integer(&"9".repeat(100)), None);
    }
}
