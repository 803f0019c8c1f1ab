//! Every rule by which a file is refused, with the field that is named.

use crate::{file, with_entry, with_machine, with_need};

fn refused(text: &str) -> bigfleet_decide::Refused {
    match bigfleet_decide::read(text.as_bytes()) {
        Ok(input) => panic!("accepted: {text}: {input:?}"),
        Err(refused) => refused,
    }
}

fn check(rows: &[(String, &str, &str)]) {
    for (text, path, reason) in rows {
        let refused = refused(text);
        assert_eq!(refused.path, *path, "{refused} of {text}");
        assert!(refused.reason.contains(reason), "{refused} of {text}");
        assert!(!refused.to_string().contains('\n'), "{refused}");
    }
}

const IDLE: &str = r#""id": "m", "state": "MACHINE_STATE_IDLE""#;
const NEED: &str = "$.demand[0].rollup.needs[0]";
const MACHINE: &str = "$.fleet[0].machine";

#[test]
fn text_that_is_not_json() {
    for text in [
        "",
        "{",
        "{} {}",
        "nonsense",
        "{'a': 1}",
        r#"{"format": "bigfleet.decide/v1",}"#,
        r#"{"format": "bigfleet.decide/v1", "nowUnixNanos": NaN}"#,
        r#"{"format": "bigfleet.decide/v1", "nowUnixNanos": 01}"#,
        r#"{"format": "bigfleet.decide/v1"} // done"#,
        "\u{feff}{}",
    ] {
        let refused = refused(text);
        assert_eq!(refused.path, "$", "{text:?}");
        assert!(refused.reason.starts_with("is not JSON: "), "{refused}");
    }
    let bytes = b"{\"format\": \"bigfleet.decide/v1\", \"policy\": \"\xff\"}";
    assert_eq!(bigfleet_decide::read(bytes).unwrap_err().path, "$");
    check(&[(with_machine(r#""id": "\ud800""#), "$.fleet[0].machine.id", "is not JSON: ")]);
}

#[test]
fn the_format() {
    check(&[
        ("[]".to_owned(), "$", "must be an object, not an array"),
        ("null".to_owned(), "$", "must be an object, not null"),
        ("{}".to_owned(), "$.format", "is missing"),
        (r#"{"format": null}"#.to_owned(), "$.format", "is missing"),
        (r#"{"format": 1}"#.to_owned(), "$.format", "must be a string, not a number"),
        (
            r#"{"steps": 1, "format": "bigfleet.scenario/v1"}"#.to_owned(),
            "$.format",
            "\"bigfleet.scenario/v1\"",
        ),
    ]);
}

#[test]
fn members_that_are_unknown_or_given_twice() {
    let top = |rest: &str| format!(r#"{{"format": "bigfleet.decide/v1", {rest}}}"#);
    let unknown = "is not a known member";
    let twice = "is given twice";
    check(&[
        (top(r#""fleets": []"#), "$.fleets", unknown),
        (top(r#""Fleet": []"#), "$.Fleet", unknown),
        (top(r#""odd name": null"#), r#"$["odd name"]"#, unknown),
        (top(r#""a\nb": null"#), r#"$["a\nb"]"#, unknown),
        (top(r#""now_Unix_nanos": 1"#), "$.now_Unix_nanos", unknown),
        (top(r#""fleet_": []"#), "$.fleet_", unknown),
        (top(r#""policy": {"grace": 1}"#), "$.policy.grace", unknown),
        (
            top(r#""policy": {"idleHoldSeconds": {"reserved": 1}}"#),
            "$.policy.idleHoldSeconds.reserved",
            unknown,
        ),
        (top(r#""policy": {"victimWeights": {"x": 1}}"#), "$.policy.victimWeights.x", unknown),
        (top(r#""format": "bigfleet.decide/v1""#), "$.format", twice),
        (top(r#""fleet": [], "fleet": []"#), "$.fleet", twice),
        (top(r#""fleet": null, "fleet": []"#), "$.fleet", twice),
        (top(r#""nowUnixNanos": 1, "now_unix_nanos": 1"#), "$.now_unix_nanos", twice),
        (with_entry(r#"{"machine": {}, "cordoned": true}"#), "$.fleet[0].machine.id", "must not be empty"),
        (
            with_entry(&format!(r#"{{"machine": {{{IDLE}}}, "cordoned": true}}"#)),
            "$.fleet[0].cordoned",
            unknown,
        ),
        (with_machine(&format!(r#"{IDLE}, "profile": 1"#)), "$.fleet[0].machine.profile", unknown),
        (with_machine(&format!(r#"{IDLE}, "host": {{"id": ""}}"#)), "$.fleet[0].machine.host.id", unknown),
        (
            with_machine(&format!(r#"{IDLE}, "labels": {{"a/b": "", "a/b": ""}}"#)),
            r#"$.fleet[0].machine.labels["a/b"]"#,
            twice,
        ),
        (
            with_machine(&format!(r#"{IDLE}, "resources": {{"resources": {{"cpu": "1", "cpu": "1"}}}}"#)),
            "$.fleet[0].machine.resources.resources.cpu",
            twice,
        ),
        (
            with_machine(&format!(r#"{IDLE}, "resources": {{"cpu": "1"}}"#)),
            "$.fleet[0].machine.resources.cpu",
            unknown,
        ),
        (file("[]", r#"[{"rollup": {"clusterId": "c"}, "rollups": 1}]"#), "$.demand[0].rollups", unknown),
        (file("[]", r#"[{"rollup": {"clusterId": "c", "x": 1}}]"#), "$.demand[0].rollup.x", unknown),
        (with_need(r#""count": 3"#), "$.demand[0].rollup.needs[0].count", unknown),
        (
            with_need(r#""requirements": [{"key": "k", "operator": 1, "x": 1}]"#),
            "$.demand[0].rollup.needs[0].requirements[0].x",
            unknown,
        ),
        (
            with_need(r#""spread": [{"topologyKey": "k", "x": 1}]"#),
            "$.demand[0].rollup.needs[0].spread[0].x",
            unknown,
        ),
        (with_need(r#""minUnit": {}, "min_unit": {}"#), "$.demand[0].rollup.needs[0].min_unit", twice),
    ]);
}

#[test]
fn the_first_of_several_is_named() {
    let two = r#"{"format": "bigfleet.decide/v1", "policy": {"b": 1}, "fleet": 5, "x": 1}"#;
    assert_eq!(refused(two).path, "$.policy.b");
    let turned = r#"{"x": 1, "fleet": 5, "policy": {"b": 1}, "format": "bigfleet.decide/v1"}"#;
    assert_eq!(refused(turned).path, "$.x");
    assert_eq!(refused(r#"{"x": 1, "format": "bigfleet.decide/v2"}"#).path, "$.format");
}

#[test]
fn quantities() {
    for bad in ["", "abc", "-1", "-1n", "1 Gi", "0x10", "1K", "1e", "1e99999999999"] {
        let at = format!("{NEED}.aggregateResources.cpu");
        check(&[(with_need(&format!(r#""aggregateResources": {{"cpu": "{bad}"}}"#)), &at, "")]);
        let at = format!(r#"{NEED}.minUnit["nvidia.com/gpu"]"#);
        check(&[(with_need(&format!(r#""minUnit": {{"nvidia.com/gpu": "{bad}"}}"#)), &at, "")]);
        for vector in ["resources", "allocatable"] {
            let at = format!("{MACHINE}.{vector}.resources.memory");
            let members = format!(r#"{IDLE}, "{vector}": {{"resources": {{"memory": "{bad}"}}}}"#);
            check(&[(with_machine(&members), &at, "")]);
        }
    }
}

#[test]
fn enums() {
    let need = |path: &str| format!("{NEED}.{path}");
    let requirement = |rest: &str| with_need(&format!(r#""requirements": [{{"key": "k"{rest}}}]"#));
    let operator = need("requirements[0].operator");
    let when = need("spread[0].whenUnsatisfiable");
    let spread = |value: &str| {
        with_need(&format!(r#""spread": [{{"topologyKey": "k", "whenUnsatisfiable": {value}}}]"#))
    };
    check(&[
        (with_machine(r#""id": "m""#), "$.fleet[0].machine.state", "must be specified"),
        (with_machine(r#""id": "m", "state": 0"#), "$.fleet[0].machine.state", "must be specified"),
        (
            with_machine(r#""id": "m", "state": "MACHINE_STATE_UNSPECIFIED""#),
            "$.fleet[0].machine.state",
            "must be specified",
        ),
        (with_machine(r#""id": "m", "state": 9"#), "$.fleet[0].machine.state", "9 is not a known number"),
        (with_machine(r#""id": "m", "state": -1"#), "$.fleet[0].machine.state", "-1 is not a known number"),
        (with_machine(r#""id": "m", "state": 3.5"#), "$.fleet[0].machine.state", "3.5 is not a whole number"),
        (
            with_machine(r#""id": "m", "state": "IDLE""#),
            "$.fleet[0].machine.state",
            "\"IDLE\" is not a known name",
        ),
        (with_machine(r#""id": "m", "state": "3""#), "$.fleet[0].machine.state", "is not a known name"),
        (with_machine(r#""id": "m", "state": true"#), "$.fleet[0].machine.state", "not a boolean"),
        (
            with_machine(&format!(r#"{IDLE}, "capacityType": 5"#)),
            "$.fleet[0].machine.capacityType",
            "5 is not a known number",
        ),
        (
            with_machine(&format!(r#"{IDLE}, "capacityType": "spot""#)),
            "$.fleet[0].machine.capacityType",
            "is not a known name",
        ),
        (requirement(""), &operator, "must be specified"),
        (requirement(r#", "operator": 0"#), &operator, "must be specified"),
        (requirement(r#", "operator": "OPERATOR_UNSPECIFIED""#), &operator, "must be specified"),
        (requirement(r#", "operator": 6"#), &operator, "6 is not a known number"),
        (requirement(r#", "operator": "OPERATOR_GT""#), &operator, "is not a known name"),
        (spread("3"), &when, "3 is not a known number"),
        (spread(r#""DoNotSchedule""#), &when, "is not a known name"),
        (
            with_need(r#""interruptionPenaltyBucket": 28"#),
            &need("interruptionPenaltyBucket"),
            "28 is not a known number",
        ),
        (
            with_need(r#""reclamationPenaltyBucket": -1"#),
            &need("reclamationPenaltyBucket"),
            "-1 is not a known number",
        ),
        (
            with_need(r#""reclamationPenaltyBucket": "PENALTY_BUCKET_3""#),
            &need("reclamationPenaltyBucket"),
            "is not a known name",
        ),
    ]);
}

#[test]
fn needs() {
    let need = |path: &str| format!("{NEED}.{path}");
    let same = r#"{"key": "a", "operator": "OPERATOR_SAME"}"#;
    check(&[
        (
            with_need(r#""requirements": [{"operator": "OPERATOR_IN"}]"#),
            &need("requirements[0].key"),
            "must not be empty",
        ),
        (
            with_need(r#""requirements": [{"key": "", "operator": 1}]"#),
            &need("requirements[0].key"),
            "must not be empty",
        ),
        (with_need(r#""spread": [{"maxSkew": 1}]"#), &need("spread[0].topologyKey"), "must not be empty"),
        (
            with_need(&format!(r#""requirements": [{same}, {{"key": "b", "operator": 5}}]"#)),
            &need("requirements[1].operator"),
            "second",
        ),
        (
            with_need(&format!(r#""requirements": [{same}, {same}]"#)),
            &need("requirements[1].operator"),
            "second",
        ),
        (with_need(r#""priority": 2147483648"#), &need("priority"), "2147483648 is not a whole number"),
        (with_need(r#""priority": "-2147483649""#), &need("priority"), "-2147483649 is not a whole number"),
        (with_need(r#""priority": 1.5"#), &need("priority"), "1.5 is not a whole number"),
        (with_need(r#""priority": "high""#), &need("priority"), "\"high\" is not a number"),
        (with_need(r#""priority": " 1""#), &need("priority"), "is not a number"),
        (
            with_need(r#""spread": [{"topologyKey": "k", "maxSkew": 2147483648}]"#),
            &need("spread[0].maxSkew"),
            "whole number",
        ),
    ]);
}

#[test]
fn demand_entries() {
    let arrivals = |arrivals: &str| {
        let rollup = r#"{"clusterId": "c", "needs": [{}, {"priority": 1}]}"#;
        file("[]", &format!(r#"[{{"rollup": {rollup}, "arrivalUnixNanos": {arrivals}}}]"#))
    };
    let at = "$.demand[0].arrivalUnixNanos";
    let ready =
        |clusters: &str| format!(r#"{{"format": "bigfleet.decide/v1", "readyClusters": {clusters}}}"#);
    let twice = r#"[{"rollup": {"clusterId": "c"}}, {"rollup": {"clusterId": "c"}}]"#;
    check(&[
        (arrivals("[]"), at, "has 0 entries for 2 needs"),
        (arrivals("[1]"), at, "has 1 entries for 2 needs"),
        (arrivals("[1, 2, 3]"), at, "has 3 entries for 2 needs"),
        (arrivals("[1, -1]"), "$.demand[0].arrivalUnixNanos[1]", "-1 is not a whole number from 0"),
        (arrivals(r#"["9223372036854775808", 1]"#), "$.demand[0].arrivalUnixNanos[0]", "whole number"),
        (arrivals("[null, 1]"), "$.demand[0].arrivalUnixNanos[0]", "not null"),
        (arrivals("7"), at, "must be an array, not a number"),
        (file("[]", "[{}]"), "$.demand[0].rollup", "is missing"),
        (file("[]", r#"[{"rollup": null}]"#), "$.demand[0].rollup", "is missing"),
        (file("[]", "[null]"), "$.demand[0]", "must be an object, not null"),
        (file("[]", r#"[{"rollup": {}}]"#), "$.demand[0].rollup.clusterId", "must not be empty"),
        (
            file("[]", r#"[{"rollup": {"clusterId": ""}}]"#),
            "$.demand[0].rollup.clusterId",
            "must not be empty",
        ),
        (file("[]", twice), "$.demand[1].rollup.clusterId", "\"c\" is there already"),
        (ready(r#"["c", ""]"#), "$.readyClusters[1]", "must not be empty"),
        (ready(r#"["c", "d", "c"]"#), "$.readyClusters[2]", "\"c\" is there already"),
        (ready(r#"{"c": true}"#), "$.readyClusters", "must be an array, not an object"),
    ]);
}

#[test]
fn machines() {
    let entries = |second: &str| file(&format!(r#"[{{"machine": {{{IDLE}}}}}, {second}]"#), "[]");
    let machine = |rest: &str| with_machine(&format!("{IDLE}, {rest}"));
    let field = |name: &str| format!("{MACHINE}.{name}");
    check(&[
        (with_entry("{}"), "$.fleet[0].machine", "is missing"),
        (with_entry(r#"{"machine": null, "withheld": true}"#), "$.fleet[0].machine", "is missing"),
        (with_machine(r#""state": 3"#), "$.fleet[0].machine.id", "must not be empty"),
        (with_machine(r#""id": "", "state": 3"#), "$.fleet[0].machine.id", "must not be empty"),
        (
            entries(&format!(r#"{{"machine": {{{IDLE}}}}}"#)),
            "$.fleet[1].machine.id",
            "\"m\" is there already",
        ),
        (machine(r#""pricePerHour": -0.01"#), &field("pricePerHour"), "-0.01 is not a finite price"),
        (machine(r#""pricePerHour": 1e400"#), &field("pricePerHour"), "inf is not a finite price"),
        (machine(r#""pricePerHour": "NaN""#), &field("pricePerHour"), "NaN is not a finite price"),
        (machine(r#""pricePerHour": "Infinity""#), &field("pricePerHour"), "inf is not a finite price"),
        (machine(r#""pricePerHour": "-Infinity""#), &field("pricePerHour"), "-inf is not a finite price"),
        (machine(r#""pricePerHour": "$1""#), &field("pricePerHour"), "\"$1\" is not a number"),
        (machine(r#""pricePerHour": "+1""#), &field("pricePerHour"), "\"+1\" is not a number"),
        (
            machine(r#""interruptionProbability": 1.0000001"#),
            &field("interruptionProbability"),
            "is not a probability",
        ),
        (
            machine(r#""interruptionProbability": -1e-9"#),
            &field("interruptionProbability"),
            "is not a probability",
        ),
        (
            machine(r#""interruptionProbability": "NaN""#),
            &field("interruptionProbability"),
            "is not a probability",
        ),
        (machine(r#""cluster": "c""#), &field("cluster"), "must be empty in state Idle"),
    ]);
    for state in ["CONFIGURING", "CONFIGURED", "DRAINING"] {
        let members = format!(r#""id": "m", "state": "MACHINE_STATE_{state}""#);
        check(&[(with_machine(&members), &field("cluster"), "must not be empty in state")]);
    }
    for state in ["SPECULATIVE", "CREATING", "IDLE", "DELETING"] {
        let members = format!(r#""id": "m", "state": "MACHINE_STATE_{state}", "cluster": "c""#);
        check(&[(with_machine(&members), &field("cluster"), "must be empty in state")]);
    }
}

const STATES: [&str; 8] =
    ["SPECULATIVE", "CREATING", "IDLE", "CONFIGURING", "CONFIGURED", "DRAINING", "DELETING", "FAILED"];

fn entry(state: &str, rest: &str) -> String {
    let bound = matches!(state, "CONFIGURING" | "CONFIGURED" | "DRAINING");
    let cluster = if bound { r#", "cluster": "c""# } else { "" };
    with_entry(&format!(r#"{{"machine": {{"id": "m", "state": "MACHINE_STATE_{state}"{cluster}}}{rest}}}"#))
}

#[test]
fn side_facts_on_states_that_cannot_have_them() {
    let need = r#"{"cluster": "c", "fingerprint": "7f965d2f2f2f500fe8c7f4137395a9fa", "group": ""}"#;
    let not_configured: Vec<&str> = STATES.into_iter().filter(|state| *state != "CONFIGURED").collect();
    let facts: [(&str, &str, &[&str]); 6] = [
        ("idleSinceUnixNanos", "5", &["IDLE"]),
        ("createdFor", need, &["CREATING"]),
        ("excessSinceUnixNanos", "0", &["CONFIGURED"]),
        ("preemptedFor", need, &["DRAINING"]),
        ("preemptedForUnknown", "true", &["DRAINING"]),
        ("withheld", "true", &not_configured),
    ];
    for (fact, value, allowed) in facts {
        for state in STATES {
            let text = entry(state, &format!(r#", "{fact}": {value}"#));
            if allowed.contains(&state) {
                crate::read(&text);
            } else {
                check(&[(text, &format!("$.fleet[0].{fact}"), "is nothing that a machine in state")]);
            }
            crate::read(&entry(state, &format!(r#", "{fact}": null"#)));
        }
    }
    let both = entry("DRAINING", &format!(r#", "preemptedFor": {need}, "preemptedForUnknown": true"#));
    let priority = |p: &str| format!(r#", "preemptedFor": {{"cluster": "c", "priority": {p}}}"#);
    check(&[
        (both, "$.fleet[0].preemptedForUnknown", "although"),
        (entry("CREATING", r#", "createdFor": {}"#), "$.fleet[0].createdFor.cluster", "must not be empty"),
        (
            entry("CREATING", r#", "createdFor": {"cluster": "c", "priority": 1}"#),
            "$.fleet[0].createdFor.priority",
            "is not a known member",
        ),
        (entry("DRAINING", &priority("2147483648")), "$.fleet[0].preemptedFor.priority", "whole number"),
        (
            entry("IDLE", r#", "idleSinceUnixNanos": 1.5"#),
            "$.fleet[0].idleSinceUnixNanos",
            "1.5 is not a whole number",
        ),
        (entry("IDLE", r#", "withheld": 1"#), "$.fleet[0].withheld", "must be a boolean, not a number"),
    ]);
}

#[test]
fn values_of_the_wrong_type() {
    let top = |rest: &str| format!(r#"{{"format": "bigfleet.decide/v1", {rest}}}"#);
    let machine = |rest: &str| with_machine(&format!("{IDLE}, {rest}"));
    let mut rows = vec![
        (top(r#""nowUnixNanos": true"#), "$.nowUnixNanos".to_owned()),
        (top(r#""nowUnixNanos": "soon""#), "$.nowUnixNanos".to_owned()),
        (top(r#""nowUnixNanos": 9223372036854775808"#), "$.nowUnixNanos".to_owned()),
        (top(r#""fleet": {}"#), "$.fleet".to_owned()),
        (top(r#""fleet": [[]]"#), "$.fleet[0]".to_owned()),
        (top(r#""demand": "none""#), "$.demand".to_owned()),
        (top(r#""policy": []"#), "$.policy".to_owned()),
        (with_machine(r#""id": 7"#), format!("{MACHINE}.id")),
        (with_need(r#""requirements": {}"#), format!("{NEED}.requirements")),
        (with_need(r#""requirements": [{"key": 1, "operator": 1}]"#), format!("{NEED}.requirements[0].key")),
        (
            with_need(r#""requirements": [{"key": "k", "operator": 1, "values": "v"}]"#),
            format!("{NEED}.requirements[0].values"),
        ),
        (
            with_need(r#""requirements": [{"key": "k", "operator": 1, "values": ["v", null]}]"#),
            format!("{NEED}.requirements[0].values[1]"),
        ),
        (with_need(r#""aggregateResources": {"cpu": 1}"#), format!("{NEED}.aggregateResources.cpu")),
        (with_need(r#""aggregateResources": {"cpu": null}"#), format!("{NEED}.aggregateResources.cpu")),
        (with_need(r#""group": 1"#), format!("{NEED}.group")),
    ];
    for (name, value) in [
        ("host", "1"),
        ("instanceType", "1"),
        ("zone", "{}"),
        ("pricePerHour", "[]"),
        ("interruptionProbability", "true"),
        ("resources", "[]"),
        ("labels", "[]"),
        ("lastError", "1"),
        ("allocatable", "1"),
        ("shardMetadata", "1"),
    ] {
        rows.push((machine(&format!(r#""{name}": {value}"#)), format!("{MACHINE}.{name}")));
    }
    for (text, path) in rows {
        check(&[(text, &path, "")]);
    }
}

#[test]
fn policies() {
    let policy = |rest: &str| format!(r#"{{"format": "bigfleet.decide/v1", "policy": {{{rest}}}}}"#);
    check(&[
        (policy(r#""reclaimCapFraction": 1.5"#), "$.policy.reclaimCapFraction", "1.5 is not a fraction"),
        (policy(r#""reclaimCapFraction": -0.1"#), "$.policy.reclaimCapFraction", "is not a fraction"),
        (policy(r#""reclaimCapFraction": "NaN""#), "$.policy.reclaimCapFraction", "is not a fraction"),
        (policy(r#""reclaimGraceSeconds": -1"#), "$.policy.reclaimGraceSeconds", "whole number from 0"),
        (policy(r#""reclaimAfterSeconds": 0.5"#), "$.policy.reclaimAfterSeconds", "whole number from 0"),
        (policy(r#""drainEstimateSeconds": "x""#), "$.policy.drainEstimateSeconds", "is not a number"),
        (policy(r#""idleHoldSeconds": 60"#), "$.policy.idleHoldSeconds", "must be an object"),
        (
            policy(r#""idleHoldSeconds": {"spot": -1}"#),
            "$.policy.idleHoldSeconds.spot",
            "whole number from 0",
        ),
        (
            policy(r#""victimWeights": {"drain": -1}"#),
            "$.policy.victimWeights.drain",
            "is not a finite weight",
        ),
        (
            policy(r#""victimWeights": {"priority": "Infinity"}"#),
            "$.policy.victimWeights.priority",
            "is not a finite weight",
        ),
    ]);
}
