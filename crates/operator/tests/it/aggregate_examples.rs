//! Worked examples of the aggregate, by their numbers.

use bigfleet_operator::aggregate::{Aggregate, SkipReason, gang_group, kinds_group};
use bigfleet_operator::io::{CapacityRequest, CoLocation, LabelSelector};
use bigfleet_proto::v1alpha1::CapacityNeed;

use crate::core_kit::{request, strings};

fn needs(requests: &[CapacityRequest]) -> Vec<CapacityNeed> {
    let mut aggregate = Aggregate::default();
    for request in requests {
        let change = aggregate.apply(request);
        assert_eq!(change.skip, None);
    }
    aggregate.rows().needs
}

fn many(count: usize, like: &CapacityRequest) -> Vec<CapacityRequest> {
    let one = |i| CapacityRequest { uid: format!("{}-{i}", like.uid).into(), ..like.clone() };
    (0..count).map(one).collect()
}

fn required(key: &str, operator: &str, values: &[&str]) -> (String, String, Vec<String>) {
    (key.to_owned(), operator.to_owned(), values.iter().map(|v| (*v).to_owned()).collect())
}

fn with(requirements: &[(String, String, Vec<String>)]) -> CapacityRequest {
    CapacityRequest { requirements: requirements.to_vec(), ..request("r", &[("cpu", "1")]) }
}

fn place(topology_key: &str, job: &str) -> Option<CoLocation> {
    let selector = LabelSelector { match_labels: strings(&[("job", job)]), match_expressions: Vec::new() };
    Some(CoLocation { topology_key: topology_key.to_owned(), selector: Some(selector) })
}

fn gang(uid: &str, topology_key: &str, job: &str) -> CapacityRequest {
    CapacityRequest { co_location: place(topology_key, job), ..request(uid, &[("cpu", "1")]) }
}

fn gpu() -> CapacityRequest {
    CapacityRequest {
        requirements: vec![required("node.kubernetes.io/instance-type", "In", &["a3-highgpu-8g"])],
        priority: 1_000_000,
        interruption_penalty: Some("8192".to_owned()),
        ..request("gpu", &[("nvidia.com/gpu", "8")])
    }
}

/// Operators of a need's requirements, as key and wire number.
fn operators(need: &CapacityNeed) -> Vec<(&str, i32)> {
    need.requirements.iter().map(|r| (r.key.as_str(), r.operator)).collect()
}

#[test]
fn ex03_devices_keep_their_own_row() {
    let mut requests = many(3, &gpu());
    let plain = CapacityRequest { uid: "cpu".into(), resources: strings(&[("cpu", "2")]), ..gpu() };
    assert_eq!(needs(&requests).len(), 1);
    requests.extend(many(5, &plain));
    let needs = needs(&requests);
    assert_eq!(needs.len(), 2);
    let [without, devices] = &needs[..] else { panic!("two rows") };
    assert_eq!(devices.group, "kinds/b81425dbf37c073e91b7eba59253dab2");
    assert_eq!(devices.aggregate_resources, strings(&[("nvidia.com/gpu", "24")]));
    assert_eq!(devices.min_unit, strings(&[("nvidia.com/gpu", "8")]));
    assert_eq!((devices.priority, devices.interruption_penalty_bucket), (1_000_000, 16));
    assert_eq!(devices.reclamation_penalty_bucket, 1);
    assert_eq!(without.group, "");
    assert_eq!(without.aggregate_resources, strings(&[("cpu", "10")]));
    assert_eq!(without.min_unit, strings(&[("cpu", "2")]));
}

#[test]
fn ex04_a_thousand_of_them() {
    let needs = needs(&many(1000, &gpu()));
    assert_eq!(needs.len(), 1);
    assert_eq!(needs[0].aggregate_resources, strings(&[("nvidia.com/gpu", "8k")]));
    assert_eq!(needs[0].min_unit, strings(&[("nvidia.com/gpu", "8")]));
}

/// One need of pods with these amounts: its sum and its largest unit.
fn adds_up(pods: &[&[(&str, &str)]], sum: &[(&str, &str)], max: &[(&str, &str)]) {
    let requests: Vec<_> =
        pods.iter().enumerate().map(|(i, amounts)| request(&format!("r{i}"), amounts)).collect();
    let needs = needs(&requests);
    assert_eq!(needs.len(), 1);
    assert_eq!(needs[0].aggregate_resources, strings(sum));
    assert_eq!(needs[0].min_unit, strings(max));
}

#[test]
fn ex05_pods_of_two_sizes_are_one_need() {
    adds_up(&[&[("cpu", "500m")], &[("cpu", "2")]], &[("cpu", "2500m")], &[("cpu", "2")]);
}

#[test]
fn ex06_the_unit_is_the_largest_of_each_dimension() {
    let pods: [&[(&str, &str)]; 2] =
        [&[("cpu", "4"), ("memory", "8Gi")], &[("cpu", "1"), ("memory", "64Gi")]];
    adds_up(&pods, &[("cpu", "5"), ("memory", "72Gi")], &[("cpu", "4"), ("memory", "64Gi")]);
}

#[test]
fn ex07_memory_prints_with_the_largest_binary_suffix() {
    adds_up(&[&[("memory", "768Gi")][..]; 4], &[("memory", "3Ti")], &[("memory", "768Gi")]);
    adds_up(&[&[("memory", "768Mi")][..]; 3], &[("memory", "2304Mi")], &[("memory", "768Mi")]);
}

#[test]
fn ex08_the_print_does_not_depend_on_who_came_first() {
    let mut pods = [&[("memory", "1G")][..], &[("memory", "1Gi")]];
    for _ in 0..2 {
        adds_up(&pods, &[("memory", "2073741824")], &[("memory", "1Gi")]);
        pods.reverse();
    }
}

fn bucket(dollars: Option<&str>) -> i32 {
    let request =
        CapacityRequest { interruption_penalty: dollars.map(str::to_owned), ..request("r", &[("cpu", "1")]) };
    needs(&[request])[0].interruption_penalty_bucket
}

/// How many needs pods with these penalties make.
fn needs_of_penalties(all: &[&str]) -> usize {
    let requests: Vec<_> = all
        .iter()
        .map(|dollars| CapacityRequest {
            uid: (*dollars).into(),
            interruption_penalty: Some((*dollars).to_owned()),
            ..request("r", &[("cpu", "1")])
        })
        .collect();
    needs(&requests).len()
}

#[test]
fn ex09_half_a_dollar_is_a_bucket_of_its_own() {
    for dollars in ["500m", "250m", "0.5"] {
        assert_eq!(bucket(Some(dollars)), 2, "{dollars}");
    }
    assert_eq!(needs_of_penalties(&["500m", "250m", "0.5"]), 1);
}

#[test]
fn fr41_a_penalty_is_read_to_the_milli_dollar_and_nonsense_is_not_zero() {
    assert_eq!(bucket(Some("500m")), 2, "$0.50");
    for nonsense in ["abc", "", "1.1.0", "NaN", "$5"] {
        let bad = CapacityRequest { interruption_penalty: Some(nonsense.to_owned()), ..with(&[]) };
        is_skipped(&bad, SkipReason::BadQuantity);
        let message = Aggregate::default().apply(&bad).skip.unwrap().detail;
        assert!(message.starts_with("spec.interruptionPenalty "), "{message}");
    }
}

#[test]
fn ex10_bounds_of_penalty_buckets() {
    let cases =
        [("1500m", 4), ("0", 1), ("8000", 16), ("8193", 17), ("8388608", 26), ("8388609", 27), ("-5", 1)];
    for (dollars, number) in cases {
        assert_eq!(bucket(Some(dollars)), number, "{dollars}");
    }
    assert_eq!(bucket(None), 1);
}

#[test]
fn ex11_penalties_of_one_bucket_are_one_need() {
    assert_eq!(bucket(Some("5000")), 16);
    assert_eq!(needs_of_penalties(&["5000", "8000"]), 1);
    assert_eq!(needs_of_penalties(&["5000", "8193"]), 2);
}

#[test]
fn ex12_only_enforced_spread_goes() {
    let spread = [
        ("topology.kubernetes.io/zone", 1, "DoNotSchedule"),
        ("kubernetes.io/hostname", 3, "ScheduleAnyway"),
    ];
    let request = CapacityRequest {
        topology_spread: spread.map(|(key, skew, when)| (key.to_owned(), skew, when.to_owned())).to_vec(),
        ..request("r", &[("cpu", "1")])
    };
    let needs = needs(&[request]);
    let terms: Vec<_> =
        needs[0].spread.iter().map(|t| (t.topology_key.as_str(), t.max_skew, t.when_unsatisfiable)).collect();
    assert_eq!(terms, [("topology.kubernetes.io/zone", 1, 1)]);
}

const RACK: &str = "topology.bigfleet/rack";

#[test]
fn ex13_a_gang_is_one_need_in_one_domain() {
    let three = needs(&[gang("1", RACK, "a"), gang("2", RACK, "a"), gang("3", RACK, "a")]);
    assert_eq!(three.len(), 1);
    assert_eq!(operators(&three[0]), [(RACK, 5)]);
    assert!(three[0].group.starts_with("training/"), "{}", three[0].group);
    assert_eq!(three[0].aggregate_resources, strings(&[("cpu", "3")]));
}

#[test]
fn ex14_two_gangs_are_two_needs() {
    let four = [gang("1", RACK, "a"), gang("2", RACK, "a"), gang("3", RACK, "b"), gang("4", RACK, "b")];
    let two_gangs = needs(&four);
    assert_eq!(two_gangs.len(), 2);
    assert!(two_gangs.iter().all(|need| operators(need) == [(RACK, 5)]));
    assert_ne!(two_gangs[0].group, two_gangs[1].group);
}

#[test]
fn ex15_pods_outside_of_the_gang_are_a_need_of_their_own() {
    let plain = ["5", "6"].map(|uid| request(uid, &[("cpu", "1")]));
    let mixed = needs(&[&plain[..], &[gang("1", RACK, "a"), gang("2", RACK, "a")]].concat());
    let same: Vec<_> = mixed.iter().map(|need| operators(need).len()).collect();
    assert_eq!(same, [0, 1]);
}

#[test]
fn ex16_domains_of_two_kinds_are_two_needs() {
    let keys = needs(&[gang("1", RACK, "a"), gang("2", "topology.kubernetes.io/zone", "a")]);
    let same: Vec<_> = keys.iter().map(operators).collect();
    assert_eq!(same, [[(RACK, 5)], [("topology.kubernetes.io/zone", 5)]]);
}

#[test]
fn ex17_gangs_of_two_namespaces_are_two() {
    let job = place(RACK, "trainer-7").expect("a place");
    assert_eq!(gang_group("training", &job), "training/9a61fc7f280c8b502aaf1067b6632546");
    assert_eq!(gang_group("research", &job), "research/5a7fff335dcf340672c4d202b86c2224");
    let elsewhere = CapacityRequest { namespace: "research".to_owned(), ..gang("2", RACK, "trainer-7") };
    assert_eq!(needs(&[gang("1", RACK, "trainer-7"), elsewhere]).len(), 2);
}

#[test]
fn ex18_selectors_that_mean_the_same_are_one_gang() {
    let job = place(RACK, "trainer-7").expect("a place");
    let expression = LabelSelector {
        match_labels: Default::default(),
        match_expressions: vec![required("job", "In", &["trainer-7", "trainer-7"])],
    };
    let spelled = CoLocation { topology_key: RACK.to_owned(), selector: Some(expression) };
    assert_eq!(gang_group("training", &spelled), gang_group("training", &job));
    let groups: std::collections::BTreeSet<_> = [None, Some(LabelSelector::default()), job.selector]
        .into_iter()
        .map(|selector| gang_group("training", &CoLocation { topology_key: RACK.to_owned(), selector }))
        .collect();
    assert_eq!(groups.len(), 3, "no selector, an empty one and one of labels are three gangs");
}

#[test]
fn ex19_requirements_that_mean_the_same() {
    let zone = |values: &[&str]| required("zone", "In", values);
    let forms = [
        vec![zone(&["a", "b"])],
        vec![zone(&["b", "a"])],
        vec![zone(&["a", "b", "c"]), zone(&["b", "a", "d"])],
        vec![zone(&["a", "b", "c"]), required("zone", "NotIn", &["c"])],
        vec![required("zone", "Exists", &[]), zone(&["a", "b"])],
    ];
    let first = needs(&[with(&forms[0])]);
    for form in &forms {
        assert_eq!(needs(&[with(form)]), first, "{form:?}");
    }
    let both = needs(&[with(&[zone(&["a", "b"]), zone(&["b", "c"])])]);
    assert_eq!(both[0].requirements[0].values, ["b"]);
    let not_in = needs(&[with(&[required("zone", "NotIn", &["b"]), required("zone", "NotIn", &["a"])])]);
    assert_eq!(operators(&not_in[0]), [("zone", 2)]);
    assert_eq!(not_in[0].requirements[0].values, ["a", "b"]);
}

/// The request counts for nothing, for this reason, and the one that counted under its uid before is withdrawn.
fn is_skipped(bad: &CapacityRequest, reason: SkipReason) {
    let good = request("good", &[("cpu", "1")]);
    let mut aggregate = Aggregate::default();
    aggregate.apply(&good);
    aggregate.apply(&CapacityRequest { uid: bad.uid.clone(), ..request("", &[("cpu", "7")]) });
    let change = aggregate.apply(bad);
    assert_eq!(change.skip.as_ref().map(|skip| skip.reason), Some(reason), "{bad:?}");
    assert!(change.changed && !change.grew);
    assert_eq!(aggregate.rows().needs, needs(std::slice::from_ref(&good)), "{bad:?}");
}

#[test]
fn ex20_a_contradiction_is_skipped() {
    let zone_a = required("zone", "In", &["a"]);
    for other in [
        required("zone", "NotIn", &["a"]),
        required("zone", "In", &["b"]),
        required("zone", "DoesNotExist", &[]),
    ] {
        is_skipped(&with(&[zone_a.clone(), other]), SkipReason::Contradiction);
    }
    let neither = [required("zone", "Exists", &[]), required("zone", "DoesNotExist", &[])];
    is_skipped(&with(&neither), SkipReason::Contradiction);
    is_skipped(&with(&[required("zone", "In", &[])]), SkipReason::Contradiction);
}

#[test]
fn ex21_an_operator_without_a_form_is_skipped() {
    is_skipped(&with(&[required("generation", "Gt", &["4"])]), SkipReason::BadOperator);
    is_skipped(&with(&[required("rack", "Same", &[])]), SkipReason::BadOperator);
    is_skipped(&with(&[required("rack", "Exists", &["x"])]), SkipReason::BadOperator);
    is_skipped(&with(&[required("", "Exists", &[])]), SkipReason::BadOperator);
}

#[test]
fn ex22_a_request_that_is_being_deleted_is_withdrawn() {
    is_skipped(&CapacityRequest { deleting: true, ..with(&[]) }, SkipReason::Deleted);
}

#[test]
fn what_cannot_be_read_or_stated_is_skipped() {
    is_skipped(&request("r", &[("cpu", "a lot")]), SkipReason::BadQuantity);
    is_skipped(&request("r", &[("cpu", "-1")]), SkipReason::BadQuantity);
    let penalty = CapacityRequest { reclamation_penalty: Some("abc".to_owned()), ..with(&[]) };
    is_skipped(&penalty, SkipReason::BadQuantity);
    is_skipped(&with(&[required(&"k".repeat(318), "Exists", &[])]), SkipReason::TooLarge);
}

#[test]
fn ex23_a_request_for_nothing_is_no_row() {
    assert_eq!(needs(&[request("r", &[])]), []);
    assert_eq!(needs(&[request("r", &[("cpu", "0"), ("nvidia.com/gpu", "0")])]), []);
    let mixed =
        needs(&[request("a", &[("nvidia.com/gpu", "0"), ("cpu", "1")]), request("b", &[("cpu", "1")])]);
    assert_eq!(mixed.len(), 1, "no device asked for is no kind of device");
}

#[test]
fn sums_saturate_at_what_a_shard_takes() {
    let mut aggregate = Aggregate::default();
    for uid in ["a", "b"] {
        assert!(aggregate.apply(&request(uid, &[("memory", "7Ei"), ("cpu", "1E")])).saturated);
    }
    let rows = aggregate.rows();
    assert_eq!(rows.saturated, 2);
    let cluster = bigfleet_types::ClusterId::trusted("c");
    let message = bigfleet_proto::v1alpha1::ClusterCapacityNeeds {
        cluster_id: "c".to_owned(),
        timestamp_unix_nanos: 1,
        needs: rows.needs,
    };
    let accepted = bigfleet_proto::gate::rollup::accept(&cluster, &message).expect("a shard takes it");
    assert_eq!(accepted.needs[0].aggregate.get("memory"), 1 << 62);
}

#[test]
fn kinds_are_sets_of_names() {
    let one = kinds_group(["nvidia.com/gpu", "cpu", "memory", "hugepages-2Mi"]);
    assert_eq!(one, "kinds/b81425dbf37c073e91b7eba59253dab2");
    let two = kinds_group(["b.example/nic", "a.example/fpga"]);
    assert_eq!(two, kinds_group(["a.example/fpga", "b.example/nic", "cpu"]));
    assert_ne!(one, two);
    assert_eq!(kinds_group(["cpu", "memory", "ephemeral-storage", "pods", "attachable-volumes-ebs"]), "");
}

#[test]
fn growth_is_told_apart_from_shrinking() {
    let mut aggregate = Aggregate::default();
    let mut grew = |uid: &str, amounts: &[(&str, &str)]| aggregate.apply(&request(uid, amounts)).grew;
    assert!(grew("a", &[("cpu", "4"), ("memory", "1Gi")]));
    assert!(!grew("a", &[("cpu", "4"), ("memory", "1024Mi")]), "the same in other words");
    assert!(!grew("a", &[("cpu", "2")]));
    assert!(grew("a", &[("cpu", "1"), ("memory", "1Mi")]), "less of one, more of another");
    assert!(!grew("b", &[]));
}
