//! Quantities: the vectors that every Kubernetes implementation agrees on, and worked example 1.

use bigfleet_types::{Quantity, QuantityError, Resources, Rounding};
use proptest::prelude::*;

const NANO: i128 = 1_000_000_000;

fn nano(text: &str) -> i128 {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).nano()
}

#[test]
fn ex01_parse_and_reject() {
    assert_eq!(nano("100m"), NANO / 10);
    assert_eq!(nano("1.5Gi"), 1_610_612_736 * NANO);
    assert_eq!(nano("1e3"), 1000 * NANO);
    assert_eq!(nano("1E"), 1_000_000_000_000_000_000 * NANO);
    assert_eq!(nano(".5"), NANO / 2);
    for (text, error) in [
        ("", QuantityError::Empty),
        ("1K", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1 Gi", QuantityError::Suffix),
        ("--1", QuantityError::Number),
        ("0x10", QuantityError::Suffix),
    ] {
        assert_eq!(Quantity::parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn kubernetes_vectors_valid() {
    for (text, same_as) in [
        ("1e3", "1000"),
        ("1E-3", "1m"),
        ("1.3E+6", "1300000"),
        (".001", "1m"),
        ("1.", "1"),
        ("1.G", "1G"),
        ("0.5Mi", "512Ki"),
        ("100.035k", "100035"),
        ("+1", "1"),
        ("12E", "12000000000000000000"),
        ("12E3", "12000"),
        ("128974848000m", "128974848"),
    ] {
        assert_eq!(Quantity::parse(text).unwrap(), Quantity::parse(same_as).unwrap(), "{text}");
    }
    assert_eq!(nano("-1"), -NANO);
}

#[test]
fn kubernetes_vectors_rounding() {
    for (text, n) in [("3.001n", 4), ("0.0000000001", 1), (".000000000001Ki", 2), ("-0.1n", -1), ("5e-10", 1)]
    {
        assert_eq!(nano(text), n, "{text}");
    }
}

#[test]
fn kubernetes_vectors_saturation() {
    let most = i128::from(i64::MAX) * NANO;
    for text in ["9Ei", "9223372036854775807Ki", "10E", "1e2147483647", "99999999999999999999999"] {
        assert_eq!(nano(text), most, "{text}");
    }
    assert_eq!(nano("-1e40"), -most);
    assert_eq!(nano("1e-2147483648"), 1);
    assert_eq!(nano("0e2147483647"), 0);
}

#[test]
fn kubernetes_vectors_canonical_form() {
    for (text, canonical) in [
        ("1024Mi", "1Gi"),
        ("1000M", "1G"),
        (".001Ki", "1024m"),
        ("1.08", "1080m"),
        ("0Gi", "0"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("8192", "8192"),
        ("8000", "8k"),
        ("512", "512"),
        ("512Ki", "512Ki"),
        ("1e3", "1e3"),
        ("1300e3", "1300e3"),
    ] {
        assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn kubernetes_vectors_invalid() {
    for text in [
        "",
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        "aoeu",
        ".5i",
        "1i",
        "-3.01i",
        "-3.01e-",
        " 1",
        "1 ",
        ".",
        "-",
        "+",
        "e3",
        "Ki",
        "1e99999999999",
        "1e1.5",
        "1kk",
        "1Kib",
    ] {
        assert!(Quantity::parse(text).is_err(), "{text:?}");
    }
    assert_eq!(Quantity::parse("1e99999999999"), Err(QuantityError::Exponent));
}

#[test]
fn huge_texts_cost_linear_time_and_do_not_hang() {
    let digits = "9".repeat(100_000);
    for text in [digits.clone(), format!("0.{digits}"), format!("0.{digits}Ei"), format!("{digits}e-100000")]
    {
        assert!(Quantity::parse(&text).is_ok());
    }
    assert_eq!(nano(&format!("{digits}e-100000")), NANO);
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(text in "[+-]?([0-9]{1,12}(\\.[0-9]{0,12})?|\\.[0-9]{1,12})(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})") {
        let quantity = Quantity::parse(&text).unwrap();
        let printed = quantity.to_string();
        prop_assert_eq!(Quantity::parse(&printed), Ok(quantity), "{} printed {}", text, printed);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        let _ = Quantity::parse(&text);
    }

    /// An independent way to the same amount: exact integers over a common denominator.
    #[test]
    fn decimal_amounts_agree_with_integer_arithmetic(whole in 0u64..1_000_000_000, fraction in 0u64..1_000_000_000_000, power in 0u32..7) {
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][usize::try_from(power).unwrap()];
        let text = format!("{whole}.{fraction:012}{suffix}");
        let pico = (i128::from(whole) * 1_000_000_000_000 + i128::from(fraction)) * (1i128 << (10 * power.min(4)));
        if power <= 4 {
            let exact = (pico + 999) / 1000;
            prop_assert_eq!(nano(&text), exact.min(i128::from(i64::MAX) * NANO));
        }
    }

    #[test]
    fn demand_never_rounds_below_capacity(text in "[0-9]{1,6}(\\.[0-9]{1,12})?(|m|k|Ki)") {
        let quantity = Quantity::parse(&text).unwrap();
        for name in ["cpu", "memory"] {
            let up = Resources::amount(name, quantity, Rounding::Up);
            let down = Resources::amount(name, quantity, Rounding::Down);
            prop_assert!(up - down <= 1 && up >= down);
        }
    }
}
