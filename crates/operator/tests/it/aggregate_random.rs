//! The live aggregate against a recomputation from scratch.

use std::collections::BTreeMap;

use bigfleet_operator::aggregate::Aggregate;
use bigfleet_operator::io::{CapacityRequest, CoLocation};
use bigfleet_proto::v1alpha1::ClusterCapacityNeeds;
use bigfleet_types::Quantity;
use proptest::prelude::*;
use prost::Message as _;

use crate::core_kit::request;

#[derive(Debug, Clone)]
enum Step {
    Put(Box<CapacityRequest>),
    Gone(String),
}

fn a_request() -> impl Strategy<Value = CapacityRequest> {
    let amount = |texts: &'static [&'static str]| prop::option::of(prop::sample::select(texts));
    (
        0..12u8,
        amount(&["100m", "1", "2500m", "1n", "4", "nonsense"]),
        amount(&["1Gi", "1G", "512Mi", "3"]),
        amount(&["1", "8"]),
        prop::sample::select(&["", "a", "b"][..]),
        -1..3i32,
        prop::option::of(prop::sample::select(&["0", "0.5", "400m", "3", "4"][..])),
        prop::option::of(prop::sample::select(&["rack", "zone"][..])),
        prop::bool::weighted(0.05),
    )
        .prop_map(|(uid, cpu, memory, gpu, zone, priority, penalty, rack, deleting)| {
            let amounts: Vec<_> = [("cpu", cpu), ("memory", memory), ("nvidia.com/gpu", gpu)]
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?)))
                .collect();
            let mut request = request(&uid.to_string(), &amounts);
            if !zone.is_empty() {
                request.requirements = vec![("zone".to_owned(), "In".to_owned(), vec![zone.to_owned()])];
            }
            request.priority = priority;
            request.interruption_penalty = penalty.map(str::to_owned);
            request.co_location = rack.map(|key| CoLocation { topology_key: key.to_owned(), selector: None });
            request.deleting = deleting;
            request
        })
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![4 => a_request().prop_map(|request| Step::Put(Box::new(request))), 1 => (0..12u8).prop_map(|uid| Step::Gone(uid.to_string()))]
}

/// Zone, priority, bucket, gang key, whether devices are asked for.
type Key = (String, i32, i32, String, bool);
type Totals = BTreeMap<String, (i128, i128)>;

fn naive(live: &BTreeMap<String, CapacityRequest>) -> BTreeMap<Key, Totals> {
    let mut rows: BTreeMap<Key, Totals> = BTreeMap::new();
    for request in live.values() {
        let parsed: Option<Vec<_>> = request
            .resources
            .iter()
            .map(|(name, text)| Some((name.clone(), Quantity::parse(text).ok()?.nano())))
            .collect();
        let Some(amounts) = parsed.filter(|_| !request.deleting) else { continue };
        let bucket = match request.interruption_penalty.as_deref() {
            None | Some("0") => 1,
            Some("0.5" | "400m") => 2,
            Some("3" | "4") => 5,
            Some(other) => panic!("{other}"),
        };
        let gang = request.co_location.as_ref().map_or(String::new(), |place| place.topology_key.clone());
        let devices = gang.is_empty() && request.resources.contains_key("nvidia.com/gpu");
        let zone = request.requirements.first().map_or(String::new(), |(_, _, values)| values[0].clone());
        let row = rows.entry((zone, request.priority, bucket, gang, devices)).or_default();
        for (name, amount) in amounts {
            let (sum, max) = row.entry(name).or_default();
            *sum += amount;
            *max = amount.max(*max);
        }
    }
    rows.retain(|_, totals| !totals.is_empty());
    rows
}

/// The same view of what the aggregate says.
fn read(aggregate: &Aggregate) -> BTreeMap<Key, Totals> {
    let rows = aggregate.rows().needs.into_iter().map(|need| {
        let value = |operator| need.requirements.iter().find(|r| r.operator == operator);
        let zone = value(1).map_or(String::new(), |r| r.values[0].clone());
        let gang = value(5).map_or(String::new(), |r| r.key.clone());
        let key =
            (zone, need.priority, need.interruption_penalty_bucket, gang, need.group.starts_with("kinds/"));
        let nano = |text: &str| Quantity::parse(text).expect("a quantity").nano();
        let totals = need
            .aggregate_resources
            .iter()
            .map(|(name, sum)| (name.clone(), (nano(sum), nano(&need.min_unit[name]))))
            .collect();
        (key, totals)
    });
    let rows: Vec<_> = rows.collect();
    let count = rows.len();
    let map: BTreeMap<_, _> = rows.into_iter().collect();
    assert_eq!(map.len(), count, "no key has two rows");
    map
}

fn bytes(aggregate: &Aggregate) -> Vec<u8> {
    let needs = aggregate.rows().needs;
    ClusterCapacityNeeds { cluster_id: "c".to_owned(), timestamp_unix_nanos: 7, needs }.encode_to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_equals_naive(steps in prop::collection::vec(a_step(), 0..120)) {
        let mut aggregate = Aggregate::default();
        let mut live: BTreeMap<String, CapacityRequest> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(request) => {
                    aggregate.apply(&request);
                    live.insert(request.uid.to_string(), *request);
                }
                Step::Gone(uid) => {
                    aggregate.remove(&uid);
                    live.remove(&uid);
                }
            }
        }
        prop_assert_eq!(read(&aggregate), naive(&live));

        // Equal demand, another history: the same bytes.
        let mut fresh = Aggregate::default();
        live.values().rev().for_each(|request| { fresh.apply(request); });
        prop_assert_eq!(bytes(&fresh), bytes(&aggregate));
        prop_assert_eq!(fresh.len(), aggregate.len());

        // And everything taken back leaves nothing.
        live.keys().for_each(|uid| { aggregate.remove(uid); });
        prop_assert!(aggregate.is_empty() && aggregate.rows().needs.is_empty());
    }
}
