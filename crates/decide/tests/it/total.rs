//! No text makes the reader panic, and no file that it accepts makes the engine panic.

use proptest::prelude::*;
use serde_json::Value;

use crate::examples::{FOLD, PREEMPTION};

fn goes_through(bytes: &[u8]) {
    match bigfleet_decide::read(bytes) {
        Err(refused) => {
            assert!(refused.path.starts_with('$'), "{refused}");
            assert!(!refused.to_string().contains('\n'), "{refused}");
        }
        Ok(input) => {
            let printed = bigfleet_decide::decide(&input).to_json().unwrap();
            assert!(serde_json::from_str::<Value>(&printed).is_ok());
        }
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..30).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just("c"),
            Just(""),
            Just("1"),
            Just("9E"),
            Just("-1"),
            Just("1e400"),
            Just("NaN"),
            Just("MACHINE_STATE_CONFIGURED"),
            Just("OPERATOR_NOT_IN"),
            Just("PENALTY_BUCKET_PINNED"),
        ]
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Every value of a tree.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(elements) => {
            elements.iter().enumerate().for_each(|(i, element)| places(element, &format!("{at}/{i}"), found));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            places(member, &format!("{at}/{name}"), found);
        }),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        goes_through(&bytes);
    }

    #[test]
    fn any_json(value in value()) {
        goes_through(value.to_string().as_bytes());
        for member in ["fleet", "demand", "policy", "readyClusters", "nowUnixNanos"] {
            goes_through(format!(r#"{{"format": "bigfleet.decide/v1", "{member}": {value}}}"#).as_bytes());
        }
    }

    #[test]
    fn a_good_file_with_strange_values(
        fold in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), value(), any::<bool>()), 1..4),
    ) {
        let mut file: Value = serde_json::from_str(if fold { FOLD } else { PREEMPTION }).unwrap();
        for (index, value, nested) in changes {
            let mut found = Vec::new();
            places(&file, "", &mut found);
            let place = file.pointer_mut(&found[index.index(found.len())]).unwrap();
            // Half of the time only leaves are replaced, so that most of the file stays good.
            if nested || !(place.is_array() || place.is_object()) {
                *place = value;
            }
        }
        goes_through(file.to_string().as_bytes());
    }

    #[test]
    fn a_good_file_with_a_byte_changed(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = FOLD.as_bytes().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        goes_through(&bytes);
    }
}

/// Deep nesting is refused where it begins, and takes no stack.
#[test]
fn a_million_brackets() {
    goes_through("[".repeat(1_000_000).as_bytes());
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    goes_through(deep.as_bytes());
    goes_through(format!(r#"{{"format": "bigfleet.decide/v1", "fleet": {deep}}}"#).as_bytes());
}
