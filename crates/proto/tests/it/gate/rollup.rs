use std::collections::BTreeMap;

use bigfleet_proto::gate::rollup::{MAX_NEEDS, Rollup, accept};
use bigfleet_proto::gate::{Error, MAX_AMOUNT, Problem};
use bigfleet_proto::v1alpha1::{
    CapacityNeed, ClusterCapacityNeeds, NodeSelectorRequirement, PenaltyBucket, TopologySpread,
};
use bigfleet_types::{ClusterId, IdError, Need, Operator, QuantityError, Requirement};

use prost::Message as _;

use super::{map, rollup_of};
use crate::golden::fixture;

fn requirement(key: &str, operator: i32, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

/// A row with one of everything.
fn row() -> CapacityNeed {
    CapacityNeed {
        requirements: vec![
            requirement("node.kubernetes.io/instance-type", 1, &["m6i.large", "c6i.large"]),
            requirement("topology.kubernetes.io/zone", 2, &["us-east-1d"]),
            requirement("a/gpu", 3, &[]),
            requirement("b/arm", 4, &[]),
            requirement("topology.bigfleet/rack", 5, &[]),
        ],
        aggregate_resources: map(&[("cpu", "10"), ("memory", "40Gi")]),
        priority: -7,
        spread: vec![TopologySpread {
            topology_key: "topology.kubernetes.io/zone".to_owned(),
            max_skew: 1,
            when_unsatisfiable: 0,
        }],
        interruption_penalty_bucket: PenaltyBucket::Pinned.into(),
        reclamation_penalty_bucket: 0,
        min_unit: map(&[("cpu", "500m"), ("memory", "2Gi")]),
        group: "gang-1".to_owned(),
    }
}

fn message(needs: Vec<CapacityNeed>) -> ClusterCapacityNeeds {
    ClusterCapacityNeeds { cluster_id: "c1".to_owned(), timestamp_unix_nanos: 42, needs }
}

fn session() -> ClusterId {
    ClusterId::trusted("c1")
}

fn accepted(needs: Vec<CapacityNeed>) -> Rollup {
    accept(&session(), &message(needs)).unwrap()
}

/// The error for a message whose second row is `edit`ed.
fn refused(edit: impl FnOnce(&mut CapacityNeed)) -> Error {
    let mut bad = row();
    edit(&mut bad);
    accept(&session(), &message(vec![row(), bad])).unwrap_err()
}

#[test]
fn a_good_row_keeps_its_meaning() {
    let rollup = accepted(vec![row()]);
    assert_eq!(rollup.timestamp_unix_nanos, 42);
    let [need] = rollup.needs.as_slice() else { panic!("{rollup:?}") };
    assert_eq!(need.profile.priority(), -7);
    assert_eq!(need.profile.interruption(), bigfleet_types::PenaltyBucket::PINNED);
    // A bucket that is left out is no penalty.
    assert_eq!(need.profile.reclamation(), bigfleet_types::PenaltyBucket::ZERO);
    assert_eq!(need.aggregate.to_string(), "cpu 10, memory 40Gi");
    assert_eq!(need.min_unit.to_string(), "cpu 500m, memory 2Gi");
    assert_eq!((need.group.as_str(), need.arrival), ("gang-1", None));
    assert_eq!(need.profile.same().map(|same| &*same.key), Some("topology.bigfleet/rack"));

    // And back: canonical, but equal in meaning.
    let wire = CapacityNeed::from(need);
    assert_eq!(wire.requirements.len(), 5);
    assert_eq!(wire.reclamation_penalty_bucket, i32::from(PenaltyBucket::Zero));
    assert_eq!(&Need::try_from(&wire).unwrap(), need);
}

/// A newer peer fills fields that this version does not know: rows keep their names.
#[test]
fn fr55_a_field_that_a_newer_version_adds_leaves_fingerprints_alone() {
    let known = row();
    let mut bytes = known.encode_to_vec();
    // Field 200, a text.
    bytes.extend([0xc2, 0x0c, 3, b'n', b'e', b'w']);
    let newer = CapacityNeed::decode(bytes.as_slice()).unwrap();
    let print = |row: &CapacityNeed| Need::try_from(row).unwrap().profile.fingerprint();
    assert_eq!(print(&newer), print(&known));
    // A field at its default is one that was left out.
    let explicit = CapacityNeed { reclamation_penalty_bucket: PenaltyBucket::Zero.into(), ..known.clone() };
    assert_eq!(print(&explicit), print(&known));
}

#[test]
fn every_bucket_and_operator_goes_both_ways() {
    for number in 1..=27 {
        let bucket = bigfleet_types::PenaltyBucket::from_wire(number).unwrap();
        assert_eq!(i32::from(PenaltyBucket::from(bucket)), number);
    }
    for operator in [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Same]
    {
        let values: &[&str] = if operator.number() < 3 { &["v"] } else { &[] };
        let wire = requirement("k", i32::from(operator.number()), values);
        let domain = Requirement::try_from(&wire).unwrap();
        assert_eq!(domain.operator, operator);
        assert_eq!(NodeSelectorRequirement::from(&domain), wire);
    }
}

#[test]
fn the_cluster_is_the_sessions() {
    let check = |cluster: &str| {
        let mut message = message(vec![row()]);
        cluster.clone_into(&mut message.cluster_id);
        accept(&session(), &message).unwrap_err()
    };
    assert_eq!(check("c2").to_string(), "cluster_id: names cluster \"c2\", but the session belongs to c1");
    assert_eq!(check("").to_string(), "cluster_id: must not be empty");
}

#[test]
fn every_rule_refuses_the_whole_message_and_names_the_field() {
    type Edit = fn(&mut CapacityNeed);
    let many = |n: usize| Problem::TooMany { found: n + 1, limit: n };
    let long = |found: usize, limit: usize| Problem::TooLong { found, limit };
    let quantity = |text: &str, error| Problem::Quantity { text: text.to_owned(), error };
    let table: Vec<(Edit, &str, Problem)> = vec![
        // Requirements.
        (|r| r.requirements[1].operator = 0, "needs[1].requirements[1].operator", Problem::Unspecified),
        (|r| r.requirements[1].operator = 6, "needs[1].requirements[1].operator", Problem::UnknownNumber(6)),
        (
            |r| r.requirements[1].operator = -1,
            "needs[1].requirements[1].operator",
            Problem::UnknownNumber(-1),
        ),
        // 257 is 1 in its lowest byte: a careless cast would make it In.
        (
            |r| r.requirements[1].operator = 257,
            "needs[1].requirements[1].operator",
            Problem::UnknownNumber(257),
        ),
        (|r| r.requirements[0].values.clear(), "needs[1].requirements[0].values", Problem::MissingValues),
        (|r| r.requirements[1].values.clear(), "needs[1].requirements[1].values", Problem::MissingValues),
        (
            |r| r.requirements[2].values.push("x".to_owned()),
            "needs[1].requirements[2].values",
            Problem::UnexpectedValues,
        ),
        (
            |r| r.requirements[3].values.push("x".to_owned()),
            "needs[1].requirements[3].values",
            Problem::UnexpectedValues,
        ),
        (
            |r| r.requirements[4].values.push("x".to_owned()),
            "needs[1].requirements[4].values",
            Problem::UnexpectedValues,
        ),
        (|r| r.requirements[2].key.clear(), "needs[1].requirements[2].key", Problem::Empty),
        (|r| r.requirements[2].key = "k".repeat(318), "needs[1].requirements[2].key", long(318, 317)),
        (
            |r| r.requirements[0].values[1] = "v".repeat(318),
            "needs[1].requirements[0].values[1]",
            long(318, 317),
        ),
        (
            |r| r.requirements[0].values = (0..257).map(|i| i.to_string()).collect(),
            "needs[1].requirements[0].values",
            many(256),
        ),
        (
            |r| r.requirements = (0..65).map(|i| requirement(&i.to_string(), 3, &[])).collect(),
            "needs[1].requirements",
            many(64),
        ),
        (
            |r| r.requirements.push(requirement("other", 5, &[])),
            "needs[1].requirements[5].operator",
            Problem::SecondSame,
        ),
        // Penalties. 256 and 283 would alias into 0 and 27.
        (
            |r| r.interruption_penalty_bucket = 28,
            "needs[1].interruption_penalty_bucket",
            Problem::UnknownNumber(28),
        ),
        (
            |r| r.interruption_penalty_bucket = 283,
            "needs[1].interruption_penalty_bucket",
            Problem::UnknownNumber(283),
        ),
        (
            |r| r.reclamation_penalty_bucket = 256,
            "needs[1].reclamation_penalty_bucket",
            Problem::UnknownNumber(256),
        ),
        (
            |r| r.reclamation_penalty_bucket = -1,
            "needs[1].reclamation_penalty_bucket",
            Problem::UnknownNumber(-1),
        ),
        // Amounts.
        (
            |r| r.min_unit = map(&[("cpu", "12 cores")]),
            "needs[1].min_unit[\"cpu\"]",
            quantity("\"12 cores\"", QuantityError::Suffix),
        ),
        (
            |r| r.aggregate_resources = map(&[("memory", "")]),
            "needs[1].aggregate_resources[\"memory\"]",
            quantity("\"\"", QuantityError::Empty),
        ),
        (
            |r| r.aggregate_resources = map(&[("memory", "1e99999999999")]),
            "needs[1].aggregate_resources[\"memory\"]",
            quantity("\"1e99999999999\"", QuantityError::Exponent),
        ),
        (
            |r| r.min_unit = map(&[("cpu", "-1n")]),
            "needs[1].min_unit[\"cpu\"]",
            Problem::Negative("\"-1n\"".to_owned()),
        ),
        (
            |r| r.aggregate_resources = map(&[("memory", "4611686018427387905")]),
            "needs[1].aggregate_resources[\"memory\"]",
            Problem::TooLarge("\"4611686018427387905\"".to_owned()),
        ),
        // The same bound in milli.
        (
            |r| r.aggregate_resources = map(&[("cpu", "4611686018427388")]),
            "needs[1].aggregate_resources[\"cpu\"]",
            Problem::TooLarge("\"4611686018427388\"".to_owned()),
        ),
        (|r| r.aggregate_resources = map(&[("", "1")]), "needs[1].aggregate_resources[\"\"]", Problem::Empty),
        (
            |r| r.aggregate_resources = (0..33).map(|i| (format!("dev-{i}"), "1".to_owned())).collect(),
            "needs[1].aggregate_resources",
            many(32),
        ),
        (|r| r.min_unit = map(&[("cpu", &"1".repeat(318))]), "needs[1].min_unit[\"cpu\"]", long(318, 317)),
        (
            |r| r.min_unit = map(&[("cpu", "10001m")]),
            "needs[1].min_unit[\"cpu\"]",
            Problem::AboveAggregate { min_unit: "10001m".to_owned(), aggregate: "10".to_owned() },
        ),
        (
            |r| r.min_unit = map(&[("nvidia.com/gpu", "1")]),
            "needs[1].min_unit[\"nvidia.com/gpu\"]",
            Problem::AboveAggregate { min_unit: "1".to_owned(), aggregate: "0".to_owned() },
        ),
        // Spread.
        (|r| r.spread[0].topology_key.clear(), "needs[1].spread[0].topology_key", Problem::Empty),
        (|r| r.spread[0].topology_key = "k".repeat(318), "needs[1].spread[0].topology_key", long(318, 317)),
        (
            |r| r.spread[0].max_skew = 0,
            "needs[1].spread[0].max_skew",
            Problem::TooSmall { found: 0, least: 1 },
        ),
        (
            |r| r.spread[0].when_unsatisfiable = 3,
            "needs[1].spread[0].when_unsatisfiable",
            Problem::UnknownNumber(3),
        ),
        // Group.
        (|r| r.group = "g".repeat(254), "needs[1].group", long(254, 253)),
    ];
    for (edit, field, problem) in table {
        let error = refused(edit);
        assert_eq!((error.field.as_str(), &error.problem), (field, &problem));
        assert!(error.to_string().starts_with(&format!("{field}: ")), "{error}");
    }
}

#[test]
fn messages_say_what_to_look_at() {
    let error = refused(|r| r.min_unit = map(&[("cpu", "12 cores")]));
    assert_eq!(
        error.to_string(),
        "needs[1].min_unit[\"cpu\"]: \"12 cores\" ends in an unknown suffix; known are n u m k M G T P E, Ki Mi Gi Ti \
         Pi Ei and an exponent such as e3"
    );
    let error = refused(|r| r.min_unit = map(&[("cpu", &"x".repeat(300))]));
    assert!(error.to_string().len() < 200, "texts of peers are shortened: {error}");
    assert_eq!(IdError::Empty.to_string(), "must not be empty");
}

#[test]
fn limits_are_inclusive_and_leniency_ends_where_the_table_says() {
    type Edit = fn(&mut CapacityNeed);
    let edits: Vec<Edit> = vec![
        |r| r.requirements = (0..64).map(|i| requirement(&i.to_string(), 3, &[])).collect(),
        |r| r.requirements[0].values = (0..256).map(|i| i.to_string()).collect(),
        |r| r.requirements[0].values[0] = "v".repeat(317),
        |r| r.requirements[0].values[0].clear(),
        |r| r.aggregate_resources.extend((0..30).map(|i| (format!("dev-{i}"), "1".to_owned()))),
        |r| r.aggregate_resources = map(&[("cpu", "10"), ("memory", &MAX_AMOUNT.to_string())]),
        |r| r.min_unit = r.aggregate_resources.clone(),
        |r| r.min_unit.clear(),
        |r| r.spread[0].when_unsatisfiable = 2,
        |r| r.group = "g".repeat(253),
        // A group without Same keeps rows apart.
        |r| {
            r.requirements.truncate(4);
            r.group = "kinds/x".to_owned();
        },
        // More than one finer than a nano rounds up to one unit of demand.
        |r| r.min_unit = map(&[("cpu", "0.0000000001")]),
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let mut good = row();
        edit(&mut good);
        assert!(accept(&session(), &message(vec![good])).is_ok(), "edit {i}");
    }
    assert_eq!(accepted(vec![]).needs, []);
}

#[test]
fn demand_rounds_up_row_by_row() {
    let mut fine = row();
    fine.aggregate_resources = map(&[("cpu", "1.0001"), ("memory", "1000m")]);
    fine.min_unit = map(&[("cpu", "100n"), ("memory", "1m")]);
    let rollup = accepted(vec![fine]);
    assert_eq!(rollup.needs[0].aggregate.to_string(), "cpu 1001m, memory 1");
    assert_eq!(rollup.needs[0].min_unit.to_string(), "cpu 1m, memory 1");
}

#[test]
fn equal_rows_are_added_up_in_order_of_first_appearance() {
    let with = |cpu: &str, min: &str, priority: i32, group: &str| CapacityNeed {
        aggregate_resources: map(&[("cpu", cpu)]),
        min_unit: map(&[("cpu", min)]),
        priority,
        group: group.to_owned(),
        ..CapacityNeed::default()
    };
    let rollup = accepted(vec![
        with("4", "2", 10, ""),
        with("1", "1", 5, ""),
        with("8", "1", 10, "gang"),
        with("6", "3", 10, ""),
        with("1", "500m", 10, ""),
    ]);
    let summary: Vec<(i32, &str, String, String)> = rollup
        .needs
        .iter()
        .map(|need| {
            (
                need.profile.priority(),
                need.group.as_str(),
                need.aggregate.to_string(),
                need.min_unit.to_string(),
            )
        })
        .collect();
    let text = |text: &str| text.to_owned();
    assert_eq!(
        summary,
        [
            (10, "", text("cpu 11"), text("cpu 3")),
            (5, "", text("cpu 1"), text("cpu 1")),
            (10, "gang", text("cpu 8"), text("cpu 1")),
        ]
    );
    // Equal profiles are one profile in memory too.
    assert!(std::sync::Arc::ptr_eq(&rollup.needs[0].profile, &rollup.needs[2].profile));
    // Values in another order, or twice, make no other profile.
    let mut twin = row();
    twin.requirements.reverse();
    twin.requirements[4].values =
        vec!["c6i.large".to_owned(), "m6i.large".to_owned(), "c6i.large".to_owned()];
    assert_eq!(accepted(vec![row(), twin]).needs.len(), 1);
}

#[test]
fn sums_saturate() {
    let huge = CapacityNeed {
        aggregate_resources: map(&[("memory", &MAX_AMOUNT.to_string())]),
        ..CapacityNeed::default()
    };
    let rollup = accepted(vec![huge.clone(), huge.clone(), huge]);
    assert_eq!(rollup.needs[0].aggregate.get("memory"), i64::MAX);
}

#[test]
fn a_quarter_of_a_million_rows_pass_and_no_more() {
    let mut needs: Vec<CapacityNeed> = (0i32..)
        .take(MAX_NEEDS)
        .map(|priority| CapacityNeed {
            priority,
            aggregate_resources: BTreeMap::from([("cpu".to_owned(), "1".to_owned())]),
            ..CapacityNeed::default()
        })
        .collect();
    assert_eq!(accepted(needs.clone()).needs.len(), 250_000);
    needs.push(CapacityNeed::default());
    let error = accept(&session(), &message(needs)).unwrap_err();
    assert_eq!(error.to_string(), "needs: has 250001 elements, at most 250000 are allowed");
}

#[test]
fn golden_rollups_pass() {
    let read = |name: &str| fixture(&format!("wire/{name}.bin"));
    let through = |message: &ClusterCapacityNeeds| {
        accept(&ClusterId::trusted(message.cluster_id.clone()), message).unwrap()
    };
    let rollup = through(&rollup_of(&read("rollup_235_rows")).unwrap());
    // 235 rows, of which 12 repeat the profile and group of another.
    assert_eq!(rollup.needs.len(), 223);
    let buckets =
        ClusterCapacityNeeds::decode(read("rollup_all_buckets_signed_priority").as_slice()).unwrap();
    assert_eq!(through(&buckets).needs.len(), buckets.needs.len());
    let withdrawal = ClusterCapacityNeeds::decode(read("rollup_withdrawal").as_slice()).unwrap();
    assert_eq!(through(&withdrawal).needs, []);
    // Out to the wire and in again is the same demand.
    let out = message(rollup.needs.iter().map(Into::into).collect());
    assert_eq!(accept(&session(), &out).unwrap().needs, rollup.needs);
}
