//! Profiles and fingerprints: worked example 5, and a fingerprint whose bytes are published.

use std::sync::Arc;

use bigfleet_types::{Operator, PenaltyBucket, Profile, Requirement, SpreadTerm, WhenUnsatisfiable};

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.into(), operator, values: values.iter().map(|v| Arc::from(*v)).collect() }
}

fn bucket(number: i32) -> PenaltyBucket {
    PenaltyBucket::from_wire(number).unwrap()
}

fn spread(key: &str, max_skew: i32) -> SpreadTerm {
    SpreadTerm { topology_key: key.into(), max_skew, when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule }
}

#[test]
fn ex05_equal_profiles_have_equal_fingerprints() {
    let of = |requirements| Profile::new(requirements, vec![], 100, bucket(2), bucket(3)).fingerprint();
    let base = of(vec![requirement("z", Operator::In, &["b", "a"]), requirement("a", Operator::In, &["x"])]);
    let same =
        of(vec![requirement("a", Operator::In, &["x"]), requirement("z", Operator::In, &["a", "b", "b"])]);
    assert_eq!(base, same);

    let requirements =
        || vec![requirement("z", Operator::In, &["a", "b"]), requirement("a", Operator::In, &["x"])];
    let others = [
        Profile::new(requirements(), vec![], 101, bucket(2), bucket(3)),
        Profile::new(requirements(), vec![], 100, bucket(3), bucket(3)),
        Profile::new(requirements(), vec![], 100, bucket(2), bucket(4)),
        Profile::new(vec![requirement("z", Operator::In, &["a"])], vec![], 100, bucket(2), bucket(3)),
        Profile::new(requirements(), vec![spread("zone", 1)], 100, bucket(2), bucket(3)),
    ];
    for other in &others {
        assert_ne!(other.fingerprint(), base, "{other:?}");
    }
    let distinct: std::collections::BTreeSet<_> = others.iter().map(Profile::fingerprint).collect();
    assert_eq!(distinct.len(), others.len());
}

#[test]
fn fr55_fingerprints_are_those_that_the_decide_format_publishes() {
    let train = Profile::new(
        vec![requirement("node.kubernetes.io/instance-type", Operator::In, &["a3-highgpu-8g"])],
        vec![],
        1_000_000,
        bucket(0),
        bucket(0),
    );
    assert_eq!(train.fingerprint().to_string(), "7f965d2f2f2f500fe8c7f4137395a9fa");
    let gang = Profile::new(
        vec![requirement("topology.bigfleet/rack", Operator::Same, &[])],
        vec![],
        1000,
        bucket(5),
        bucket(5),
    );
    assert_eq!(gang.fingerprint().to_string(), "cdbbc73f213ed22ae6d065bfe1278459");
    let database = Profile::new(
        vec![requirement("topology.bigfleet/rack", Operator::Same, &[])],
        vec![],
        500,
        bucket(5),
        bucket(0),
    );
    assert_eq!(database.fingerprint().to_string(), "318200306c086f2775f596f7f0da8527");
    assert_eq!(gang.same().map(|same| &*same.key), Some("topology.bigfleet/rack"));
}

#[test]
fn spread_terms_are_sorted_and_deduplicated_but_keep_their_skew() {
    let of = |terms| Profile::new(vec![], terms, 0, bucket(1), bucket(1));
    let a = of(vec![spread("zone", 2), spread("rack", 1), spread("zone", 1), spread("zone", 2)]);
    let b = of(vec![spread("zone", 1), spread("zone", 2), spread("rack", 1)]);
    assert_eq!(a, b);
    assert_eq!(a.spread().len(), 3);
    assert_ne!(of(vec![spread("zone", 0)]).fingerprint(), of(vec![spread("zone", 1)]).fingerprint());
}
