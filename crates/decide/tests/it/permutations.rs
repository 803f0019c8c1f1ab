//! The order in which a file is written means nothing, but for the arrivals that go with rows.

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::examples::{FOLD, PREEMPTION};
use crate::{oracle, read};

/// The two examples and a file of plain Needs.
fn files() -> Vec<Value> {
    let machine = |n: u32| {
        let state = [1, 3, 5][(n % 3) as usize];
        let cluster = if state == 5 { r#""cluster": "a","# } else { "" };
        format!(
            r#"{{"machine": {{"id": "m-{n}", "state": {state}, {cluster} "pricePerHour": {}, "capacityType": 3,
            "resources": {{"resources": {{"cpu": "4", "memory": "16Gi"}}}}}}}}"#,
            n / 4
        )
    };
    let fleet: Vec<String> = (0..18).map(machine).collect();
    let demand = r#"[
        {"rollup": {"clusterId": "a", "needs": [
            {"aggregateResources": {"cpu": "5", "memory": "1Gi"}, "priority": 5, "group": "g"},
            {"aggregateResources": {"cpu": "7"}, "priority": 5, "group": "h"}]}, "arrivalUnixNanos": [4, 3]},
        {"rollup": {"clusterId": "b", "needs": [
            {"aggregateResources": {"cpu": "9"}, "priority": 5, "minUnit": {"cpu": "2"}},
            {"aggregateResources": {"cpu": "9"}, "priority": 6, "minUnit": {"cpu": "2"}}]}}
    ]"#;
    let plain = crate::file(&format!("[{}]", fleet.join(",")), demand);
    [PREEMPTION, FOLD, &plain].iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn shuffle<T>(items: &mut [T], random: &mut impl FnMut() -> usize) {
    for last in (1..items.len()).rev() {
        items.swap(last, random() % (last + 1));
    }
}

/// Shuffles the lists whose order means nothing.
fn permute(file: &mut Value, random: &mut impl FnMut() -> usize) {
    shuffle(file["fleet"].as_array_mut().unwrap(), random);
    shuffle(file["demand"].as_array_mut().unwrap(), random);
    for entry in file["demand"].as_array_mut().unwrap() {
        let needs = std::mem::take(entry["rollup"]["needs"].as_array_mut().unwrap());
        let arrivals = entry.get("arrivalUnixNanos").cloned().unwrap_or(Value::Null);
        let arrival = |row: usize| arrivals.get(row).cloned().unwrap_or(Value::from(0));
        let mut rows: Vec<(Value, Value)> =
            needs.into_iter().enumerate().map(|(row, need)| (need, arrival(row))).collect();
        shuffle(&mut rows, random);
        let (needs, arrivals): (Vec<Value>, Vec<Value>) = rows.into_iter().unzip();
        entry["rollup"]["needs"] = needs.into();
        entry["arrivalUnixNanos"] = arrivals.into();
    }
}

/// Writes a value with the members of every object in a random order.
fn write(value: &Value, random: &mut impl FnMut() -> usize) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|element| write(element, random)).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(members) => object(members, random),
        scalar => scalar.to_string(),
    }
}

fn object(members: &Map<String, Value>, random: &mut impl FnMut() -> usize) -> String {
    let mut members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), write(value, random)))
        .collect();
    shuffle(&mut members, random);
    format!("{{{}}}", members.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_content_gives_equal_bytes(which in 0usize..3, seed in any::<u64>()) {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap()
        };
        let original = files().swap_remove(which);
        let mut permuted = original.clone();
        permute(&mut permuted, &mut random);
        let (first, second) = (read(&original.to_string()), read(&write(&permuted, &mut random)));
        prop_assert_eq!(oracle::decide(&first).to_json().unwrap(), oracle::decide(&second).to_json().unwrap());
        let ours = |input| bigfleet_decide::decide(input).to_json().unwrap();
        prop_assert_eq!(ours(&first), ours(&second));
        prop_assert_eq!(ours(&first), oracle::decide(&first).to_json().unwrap());
    }
}
