//! What this version says instead of an answer that might be wrong.

use crate::examples::{FOLD, PREEMPTION};
use crate::{file, read};

fn not_yet(text: &str) -> String {
    match bigfleet_decide::decide(&read(text)) {
        Ok(report) => panic!("decided: {report:?}"),
        Err(not_yet) => not_yet.to_string(),
    }
}

#[test]
fn gangs_and_possible_preemptions_of_the_examples() {
    assert_eq!(
        not_yet(FOLD),
        "$.demand[0].rollup.needs[1]: this version does not decide needs with OPERATOR_SAME"
    );
    assert_eq!(
        not_yet(PREEMPTION),
        "$.demand[1].rollup.needs[0]: this version does not decide preemptions, and machine \"gpu-0\" might have to make way"
    );
}

#[test]
fn enforced_spread_but_for_hostnames() {
    let spread = |key: &str, when: u8| {
        file(
            "[]",
            &format!(
                r#"[{{"rollup": {{"clusterId": "c", "needs": [{{}}, {{"aggregateResources": {{"cpu": "1"}},
            "spread": [{{"topologyKey": "{key}", "whenUnsatisfiable": {when}}}]}}]}}}}]"#
            ),
        )
    };
    let zone = "topology.kubernetes.io/zone";
    assert!(not_yet(&spread(zone, 1)).starts_with("$.demand[0].rollup.needs[1]: "));
    for (key, when) in [(zone, 0), (zone, 2), ("kubernetes.io/hostname", 1)] {
        bigfleet_decide::decide(&read(&spread(key, when))).unwrap();
    }
}

/// A Need is only refused when a preemption could change the answer.
#[test]
fn preemptions_that_cannot_be() {
    let decide = |state: &str, stamp: &str, capacity: &str, rest: &str| {
        let machine = format!(
            r#"{{"machine": {{"id": "m", "state": {state}, "resources": {{"resources": {{{capacity}}}}},
            "shardMetadata": {{{stamp}}}}}{rest}}}"#
        );
        let demand = r#"[{"rollup": {"clusterId": "c", "needs": [{"aggregateResources": {"cpu": "4"},
            "minUnit": {"cpu": "2"}, "priority": 100}]}}]"#;
        bigfleet_decide::decide(&read(&file(&format!("[{machine}]"), demand)))
    };
    let stamp = |priority: i32| format!(r#""bigfleet.lucy.sh/assigned-priority": "{priority}""#);
    let (other, own) = (r#"5, "cluster": "d""#, r#"5, "cluster": "c""#);
    let draining = r#"6, "cluster": "d""#;
    let unknown = r#", "preemptedForUnknown": true"#;
    let cpu = r#""cpu": "2""#;
    assert!(decide(other, &stamp(99), cpu, "").is_err());
    assert!(decide(other, "", cpu, "").is_err());
    assert!(decide(draining, "", cpu, unknown).is_err());
    assert!(decide(other, &stamp(100), cpu, "").is_ok());
    assert!(decide(other, &stamp(99), r#""cpu": "1""#, "").is_ok());
    assert!(decide(own, &stamp(99), cpu, "").is_ok());
    assert!(decide(draining, "", cpu, "").is_ok());
    assert!(decide(other, &stamp(99), r#""cpu": "4""#, "").is_err());
}
