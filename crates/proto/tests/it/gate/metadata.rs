use bigfleet_proto::gate::metadata::{
    FINGERPRINT, GROUP, INTERRUPTION, PRIORITY, RECLAMATION, decode, encode,
};
use bigfleet_types::{Attribution, NanoDollars, PenaltyBucket, StampedPenalty};

use super::map;

fn finite(dollars: f64) -> Option<StampedPenalty> {
    NanoDollars::from_dollars(dollars).map(StampedPenalty::Finite)
}

#[test]
fn stamps_have_the_public_spelling() {
    let attribution = Attribution {
        priority: Some(-5),
        interruption: Some(StampedPenalty::Infinite),
        reclamation: Some(PenaltyBucket::from_wire(23).unwrap().into()),
        fingerprint: Some("7f965d2f2f2f500fe8c7f4137395a9fa".into()),
        group: Some("".into()),
    };
    let expected = map(&[
        ("bigfleet.lucy.sh/assigned-priority", "-5"),
        ("bigfleet.lucy.sh/assigned-interruption-penalty-dollars", "+Inf"),
        ("bigfleet.lucy.sh/assigned-reclamation-penalty-dollars", "1048576"),
        ("bigfleet.lucy.sh/assigned-need-fingerprint", "7f965d2f2f2f500fe8c7f4137395a9fa"),
        ("bigfleet.lucy.sh/assigned-group", ""),
    ]);
    assert_eq!(encode(&attribution), expected);
    assert_eq!(decode(&expected), (attribution, vec![]));
    assert_eq!(encode(&Attribution::default()), map(&[]));
}

#[test]
fn every_bucket_survives_the_round_trip() {
    for bucket in PenaltyBucket::all() {
        let attribution = Attribution { interruption: Some(bucket.into()), ..Attribution::default() };
        assert_eq!(decode(&encode(&attribution)), (attribution, vec![]), "{bucket}");
    }
    let half = Attribution { reclamation: finite(0.5), ..Attribution::default() };
    assert_eq!(encode(&half), map(&[(RECLAMATION, "0.5")]));
}

#[test]
fn dollars_are_read_in_every_spelling_that_others_write() {
    for (text, expected) in [
        ("1.048576e+06", finite(1_048_576.0)),
        ("1048576", finite(1_048_576.0)),
        ("8.388608E6", finite(8_388_608.0)),
        ("5e-1", finite(0.5)),
        ("+2", finite(2.0)),
        ("0", finite(0.0)),
        ("-0", finite(0.0)),
        ("+Inf", Some(StampedPenalty::Infinite)),
        ("Inf", Some(StampedPenalty::Infinite)),
        ("inf", Some(StampedPenalty::Infinite)),
        ("Infinity", Some(StampedPenalty::Infinite)),
        ("+Infinity", Some(StampedPenalty::Infinite)),
        // Malformed: skipped.
        ("", None),
        ("NaN", None),
        ("nan", None),
        ("-Inf", None),
        ("-infinity", None),
        ("-1", None),
        ("1e999", None),
        ("$5", None),
        (" 5", None),
        ("++Inf", None),
    ] {
        for key in [INTERRUPTION, RECLAMATION] {
            let (attribution, malformed) = decode(&map(&[(key, text), (GROUP, "g")]));
            let found = if key == INTERRUPTION { attribution.interruption } else { attribution.reclamation };
            assert_eq!(found, expected, "{text:?}");
            assert_eq!(malformed, if expected.is_none() { vec![key] } else { vec![] }, "{text:?}");
            // The other keys are kept.
            assert_eq!(attribution.group.as_deref(), Some("g"));
        }
    }
}

#[test]
fn priorities_are_32_bits_and_unknown_keys_mean_nothing() {
    for (text, expected) in [
        ("0", Some(0)),
        ("-2147483648", Some(i32::MIN)),
        ("2147483647", Some(i32::MAX)),
        ("2147483648", None),
        ("1.5", None),
        ("", None),
    ] {
        let (attribution, malformed) = decode(&map(&[(PRIORITY, text)]));
        assert_eq!((attribution.priority, malformed.is_empty()), (expected, expected.is_some()), "{text:?}");
    }
    let (attribution, malformed) =
        decode(&map(&[("bigfleet.lucy.sh/assigned-colour", "red"), (FINGERPRINT, "not ours")]));
    assert_eq!(malformed, Vec::<&str>::new());
    assert_eq!(attribution.fingerprint.as_deref(), Some("not ours"));
    assert!(decode(&map(&[("x", "y")])).0.is_empty());
}
