//! Penalty buckets and the cost formula: worked examples 3, 4 and 12.

use bigfleet_types::{EffectiveCost, NanoDollars, PenaltyBucket, Probability, Quantity, StampedPenalty};
use proptest::prelude::*;

fn bucket(dollars: &str) -> u8 {
    PenaltyBucket::from_dollars(Quantity::parse(dollars).unwrap()).number()
}

#[test]
fn ex03_buckets() {
    for (dollars, number) in [
        ("0", 1),
        ("-5", 1),
        ("0.25", 2),
        ("0.50", 2),
        ("0.51", 3),
        ("1.00", 3),
        ("1.01", 4),
        ("8000", 16),
        ("1048576", 23),
        ("8388608", 26),
        ("8388608.01", 27),
        ("20M", 27),
    ] {
        assert_eq!(bucket(dollars), number, "${dollars}");
    }
    for (number, halves) in
        [(1, Some(0)), (2, Some(1)), (16, Some(16_384)), (26, Some(16_777_216)), (27, None)]
    {
        assert_eq!(PenaltyBucket::from_wire(number).unwrap().half_dollars(), halves, "{number}");
    }
}

#[test]
fn ex04_milli_dollars() {
    assert_eq!(bucket("500m"), 2);
    assert_eq!(bucket("1500m"), 4);
}

#[test]
fn wire_numbers_outside_the_enum_are_refused() {
    assert_eq!(PenaltyBucket::from_wire(0).unwrap(), PenaltyBucket::ZERO);
    for number in [-1, 28, 99, 257, 283, i32::MIN, i32::MAX] {
        assert!(PenaltyBucket::from_wire(number).is_err(), "{number}");
    }
}

#[test]
fn bucket_labels() {
    let labels: Vec<String> = PenaltyBucket::all().map(|bucket| bucket.to_string()).collect();
    assert_eq!(labels[..4], ["0", "0.5", "1", "2"]);
    assert_eq!(labels[25..], ["8388608", "pinned"]);
    assert_eq!(labels.len(), 27);
}

fn cost(price: f64, probability: f64, penalty: &str) -> EffectiveCost {
    let bucket = if penalty == "pinned" {
        PenaltyBucket::PINNED
    } else {
        PenaltyBucket::from_dollars(Quantity::parse(penalty).unwrap())
    };
    EffectiveCost::new(
        NanoDollars::from_dollars(price).unwrap(),
        Probability::new(probability).unwrap(),
        bucket,
    )
}

#[test]
fn ex12_effective_cost() {
    let dollars = |d: f64| cost(d, 0.0, "0");
    assert_eq!(cost(1.8, 0.1, "4"), dollars(2.2));
    assert_eq!(cost(1.8, 0.1, "8"), dollars(2.6));
    assert_eq!(cost(1.8, 0.1, "5"), dollars(2.6), "a raw $5 is priced at its bucket of $8");
    assert_eq!(cost(1.8, 0.1, "50"), dollars(8.2), "a raw $50 is priced at $64");
    assert!(cost(6.0, 0.0, "64") < cost(1.8, 0.1, "64"));
    assert_eq!(cost(6.0, 0.0, "pinned"), dollars(6.0), "0 x infinity is nothing");
    assert!(cost(1.8, 0.1, "pinned") > cost(1_000_000.0, 0.0, "pinned"));
    assert!(cost(1.8, 0.1, "pinned") < cost(1.9, 0.1, "pinned"), "infinite costs order by price");
}

#[test]
fn fr42_prices_and_probabilities_outside_their_range_are_refused() {
    for price in [-0.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(NanoDollars::from_dollars(price), None, "{price}");
    }
    for probability in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
        assert_eq!(Probability::new(probability), None, "{probability}");
    }
    assert_eq!(NanoDollars::from_dollars(-0.0), Some(NanoDollars::ZERO));
    // 2^52 + 1 is a whole number already; adding a half to it would round to the next even one.
    let odd = 4_503_599_627_370_497.0_f64;
    assert_eq!(NanoDollars::from_dollars(odd / 1e9).unwrap().nano(), 4_503_599_627_370_497);
    assert_eq!(NanoDollars::from_dollars(1e300).unwrap().nano(), i64::MAX);
    assert_eq!(NanoDollars::from_dollars(0.1).unwrap().nano(), 100_000_000);
    assert_eq!(Probability::new(1.0).unwrap().nano(), 1_000_000_000);
}

#[test]
fn stamped_penalties_are_the_upper_bounds() {
    let stamp = |number| StampedPenalty::from(PenaltyBucket::from_wire(number).unwrap());
    assert_eq!(stamp(2), StampedPenalty::Finite(NanoDollars::from_nano(500_000_000)));
    assert_eq!(stamp(16), StampedPenalty::Finite(NanoDollars::from_nano(8_192_000_000_000)));
    assert_eq!(stamp(27), StampedPenalty::Infinite);
    assert!(stamp(26) < stamp(27));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// I22: a bucket's bound is the smallest that is no less than the amount, a fraction of a cent counts, and more
    /// dollars never make a lower bucket.
    #[test]
    fn i22_a_bucket_is_the_least_bound(a in any_dollars(), b in any_dollars()) {
        let amount = |nano: u64| Quantity::parse(&format!("{nano}n")).unwrap();
        let (first, second) = (PenaltyBucket::from_dollars(amount(a)), PenaltyBucket::from_dollars(amount(b)));
        prop_assert!(a > b || first <= second);
        prop_assert!(a < b || first >= second);
        let bound = |bucket: PenaltyBucket| bucket.half_dollars().map(|halves| u64::try_from(halves).unwrap() * 500_000_000);
        prop_assert!(bound(first).is_none_or(|bound| a <= bound));
        if let Some(below) = PenaltyBucket::all().take_while(|bucket| *bucket < first).last() {
            prop_assert!(bound(below).unwrap() < a, "${} would have done", below);
        }
    }
}

/// Nano-dollars up to $20 million, often at a bound or beside it.
fn any_dollars() -> impl Strategy<Value = u64> {
    let bounds = (0..24u32, -1..=1i64).prop_map(|(k, off)| (500_000_000u64 << k).saturating_add_signed(off));
    prop_oneof![bounds, 0..20_000_000_000_000_000u64, 0..3_000_000_000u64, Just(0)]
}
