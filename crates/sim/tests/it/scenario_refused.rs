//! Every rule by which a scenario is refused, with the field that is named.

use bigfleet_sim::scenario;

/// A scenario with these members beside its format, in the flow style that JSON is, too.
fn refused(members: &str) -> String {
    let text = format!("{{format: bigfleet.scenario/v1, {members}}}");
    match scenario::read(text.as_bytes()) {
        Ok(scenario) => panic!("accepted: {text}: {scenario:?}"),
        Err(refused) => refused.to_string(),
    }
}

fn check(rows: &[(&str, &str)]) {
    for (members, reason) in rows {
        let refused = refused(members);
        assert!(refused.starts_with(reason), "{refused} of {members}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

const IDLE: &str = "state: MACHINE_STATE_IDLE";

#[test]
fn the_whole_file() {
    for (text, reason) in [
        ("", "$: is empty"),
        ("[", "$: is neither JSON nor YAML: "),
        ("- a", "$: must be an object, not an array"),
        ("name: x", "$.format: is missing"),
        ("format: bigfleet.decide/v1", "$.format: \"bigfleet.decide/v1\" is not read here"),
        ("format: bigfleet.scenario/v1\nformat: bigfleet.scenario/v1", "$.format: is given twice"),
        (
            "format: bigfleet.scenario/v1\n---\nformat: bigfleet.scenario/v1",
            "$: holds more than one document",
        ),
        ("format: bigfleet.scenario/v1\ncycle_seconds: 1\ncycleSeconds: 1", "$.cycleSeconds: is given twice"),
        (r#"{"format": "bigfleet.scenario/v1", "seed": 1, "seed": 1}"#, "$.seed: is given twice"),
        (r#"{"format": "bigfleet.scenario/v1", "seed": NaN}"#, "$.seed: "),
    ] {
        let refused = scenario::read(text.as_bytes()).unwrap_err().to_string();
        assert!(refused.starts_with(reason), "{refused} of {text}");
    }
    let not_text = scenario::read(b"name: \xff").unwrap_err().to_string();
    assert!(not_text.starts_with("$: is neither JSON nor YAML: "), "{not_text}");
}

#[test]
fn settings() {
    check(&[
        ("nonsense: 1", "$.nonsense: is not a known member"),
        ("name: 1", "$.name: must be a string, not a number"),
        ("seed: 1.5", "$.seed: 1.5 is not a whole number"),
        ("seed: .inf", "$.seed: .inf is not a number that JSON has"),
        ("cycleSeconds: 0", "$.cycleSeconds: 0 is not a whole number from 1 to"),
        ("policy: {reclaimCapFraction: 2}", "$.policy.reclaimCapFraction: 2 is not a fraction"),
        ("policy: {idleHoldSeconds: {spot: -1}}", "$.policy.idleHoldSeconds.spot: -1 is not a whole number"),
        ("dwell: 1", "$.dwell: must be an object"),
        ("dwell: {creating: 1}", "$.dwell.creating: is not a known member"),
        ("dwell: {create: -1}", "$.dwell.create: -1 is not a whole number"),
        ("dwell: {drain: [1]}", "$.dwell.drain: must have two numbers of cycles, not 1"),
        ("dwell: {drain: [2, 1]}", "$.dwell.drain: must begin with the smaller"),
        ("dwell: {drain: [1, x]}", "$.dwell.drain[1]: \"x\" is not a number"),
    ]);
}

#[test]
fn the_fleet() {
    let machine = |members: &str| format!("fleet: [{{machine: {{{members}}}}}]");
    check(&[
        ("fleet: [{}]", "$.fleet[0].machine: is missing"),
        (
            "fleet: [{machine: {id: a, state: 3}, idleSinceUnixNanos: 1}]",
            "$.fleet[0].idleSinceUnixNanos: is not a known",
        ),
        (&machine(IDLE), "$.fleet[0].machine.id: must not be empty"),
        (&machine("id: a"), "$.fleet[0].machine.state: must be specified"),
        (&machine("id: a, id: b, state: 3"), "$.fleet[0].machine.id: is given twice"),
        (&machine("id: a, state: 5"), "$.fleet[0].machine.cluster: must not be empty in state Configured"),
        (&machine("id: a, state: 3, cluster: x"), "$.fleet[0].machine.cluster: must be empty in state Idle"),
        (
            &machine("id: a, state: 3, labels: {x: 1}"),
            "$.fleet[0].machine.labels.x: must be a string, not a number",
        ),
        (
            &machine("id: a, state: 3, resources: {resources: {cpu: '4x'}}"),
            "$.fleet[0].machine.resources.resources.cpu: \"4x\" ",
        ),
        (&machine("id: 'a{i%0}', state: 3"), "$.fleet[0].machine.id: \"{i%0}\" begins a number to fill in"),
        ("fleet: [{count: 2, machine: {id: a, state: 3}}]", "$.fleet[0].machine.id: \"a\" is there already"),
        (
            "fleet: [{machine: {id: a1, state: 3}}, {from: 1, machine: {id: 'a{i}', state: 3}}]",
            "$.fleet[1].machine.id: \"a1\" is there already",
        ),
        ("fleet: [{count: -1, machine: {id: a, state: 3}}]", "$.fleet[0].count: -1 is not a whole number"),
        (
            "fleet: [{count: 2, from: 9223372036854775806, machine: {id: 'a{i}', state: 3}}]",
            "$.fleet[0].from: lets the numbers",
        ),
    ]);
    let assigned = |assigned: &str, state: &str| {
        format!(
            "fleet: [{{machine: {{id: a, {state}}}, assigned: {assigned}}}], steps: [{{cycles: 1}}, {{repeat: {{times: 1, steps: [{{rollup: {{clusterId: c, needs: [{{}}]}}}}]}}}}]"
        )
    };
    let bound = "state: 5, cluster: c";
    check(&[
        (&assigned("{cluster: x, row: 0}", bound), "$.fleet[0].assigned.cluster: \"x\" sends no roll-up"),
        (&assigned("{cluster: c, row: 1}", bound), "$.fleet[0].assigned.row: 1 is none of the 1 rows"),
        (&assigned("{row: 0}", bound), "$.fleet[0].assigned.cluster: is missing"),
        (
            &assigned("{cluster: c, row: 0}", IDLE),
            "$.fleet[0].assigned: is nothing that a machine in state Idle can have",
        ),
    ]);
}

#[test]
fn steps_and_faults() {
    let fault = |members: &str| {
        format!("fleet: [{{machine: {{id: m, state: 3}}}}], steps: [{{cycles: 1}}, {{fault: {{{members}}}}}]")
    };
    check(&[
        ("steps: [{}]", "$.steps[0]: has none of rollup"),
        ("steps: [{cycles: 1, repeat: {times: 1, steps: []}}]", "$.steps[0]: has more than one of"),
        ("steps: [{cycle: 1}]", "$.steps[0].cycle: is not a known member"),
        ("steps: [{cycles: -1}]", "$.steps[0].cycles: -1 is not a whole number"),
        ("steps: [{rollup: {needs: []}}]", "$.steps[0].rollup.clusterId: must not be empty"),
        (
            "steps: [{rollup: {clusterId: a, needs: [{priority: 3000000000}]}}]",
            "$.steps[0].rollup.needs[0].priority: 3000000000 is not",
        ),
        ("steps: [{repeat: {steps: []}}]", "$.steps[0].repeat.times: is missing"),
        ("steps: [{repeat: {times: 1}}]", "$.steps[0].repeat.steps: is missing"),
        (
            "steps: [{repeat: {times: 1, steps: [{cycles: x}]}}]",
            "$.steps[0].repeat.steps[0].cycles: \"x\" is not a number",
        ),
        (&fault("machine: m"), "$.steps[1].fault.kind: is missing"),
        (&fault("kind: explode"), "$.steps[1].fault.kind: \"explode\" is not a known fault"),
        (
            &fault("kind: restart, machine: m"),
            "$.steps[1].fault.machine: is nothing that the fault restart can have",
        ),
        (&fault("kind: fail"), "$.steps[1].fault: must have machine, or cluster and count"),
        (&fault("kind: fail, cluster: a"), "$.steps[1].fault.count: is missing"),
        (
            &fault("kind: remove, machine: m, count: 1"),
            "$.steps[1].fault.count: is nothing that the fault remove can have",
        ),
        (&fault("kind: drain-fails"), "$.steps[1].fault.machine: is missing"),
        (
            &fault("kind: drain-fails, machine: m, cluster: c"),
            "$.steps[1].fault.cluster: is nothing that the fault",
        ),
        (&fault("kind: drain-fails, machine: x"), "$.steps[1].fault.machine: \"x\" is not in the fleet"),
        (
            "steps: [{repeat: {times: 1, steps: [{fault: {kind: fail, machine: x}}]}}]",
            "$.steps[0].repeat.steps[0].fault.machine: \"x\" is not in the fleet",
        ),
    ]);
}

#[test]
fn expectations() {
    check(&[
        ("expect: [{}]", "$.expect[0]: expects nothing"),
        ("expect: [{from: 0, actions: 1}]", "$.expect[0].from: 0 is not a whole number from 1"),
        ("expect: [{from: 3, to: 2, actions: 1}]", "$.expect[0].to: is before from, 3"),
        ("expect: [{kinds: [Preempt]}]", "$.expect[0].actions: is missing"),
        (
            "expect: [{kinds: [preempt], actions: 1}]",
            "$.expect[0].kinds[0]: \"preempt\" is not a kind of action",
        ),
        ("expect: [{kinds: [], actions: 1}]", "$.expect[0].kinds: must name a kind"),
        ("expect: [{byState: {Busy: 1}}]", "$.expect[0].byState.Busy: is not a state of machines"),
        ("expect: [{byState: {Idle: x}}]", "$.expect[0].byState.Idle: \"x\" is not a number"),
        ("expect: [{configured: {a: 1, a: 2}}]", "$.expect[0].configured.a: is given twice"),
        ("expect: [{shortfalls: -1}]", "$.expect[0].shortfalls: -1 is not a whole number"),
    ]);
}

/// A few bytes that ask for too much are refused before anything is played.
#[test]
fn what_would_never_end_or_fill_the_memory() {
    let nested = |times: &str, depth: usize, inner: &str| {
        let open = format!("{{repeat: {{times: {times}, steps: [");
        format!("steps: [{}{inner}{}]", open.repeat(depth), "]}}".repeat(depth))
    };
    check(&[
        ("steps: [{cycles: 9223372036854775807}]", "$.steps: are 9223372036854775808 steps and cycles"),
        (&nested("1000", 3, "{cycles: 1}"), "$.steps: are "),
        (&nested("9223372036854775807", 1, ""), "$.steps: are 9223372036854775808 steps"),
        (&nested("9223372036854775807", 9, "{cycles: 5}"), "$.steps: are 18446744073709551615 steps"),
        (&nested("1", 17, ""), "$.steps[0].repeat.steps[0].repeat"),
        ("cycleSeconds: 9223372036, steps: [{cycles: 2}]", "$.cycleSeconds: lets the time of the last cycle"),
        (
            "fleet: [{count: 1000001, machine: {id: 'a{i}', state: 3}}]",
            "$.fleet[0].count: brings the fleet to 1000001 machines",
        ),
        (
            &format!(
                "fleet: [{{count: 1000000, machine: {{id: 'a{{i}}', state: 3, zone: {}}}}}]",
                "z".repeat(1000)
            ),
            "$.fleet[0].count: brings the fleet to 1",
        ),
        (
            "fleet: [{count: 20000, machine: {id: 'a{i}', state: 3}}], steps: [{cycles: 900000}]",
            "$.steps: are 18000000000 cycles times machines and rows",
        ),
        (
            &format!(
                "fleet: [{{machine: {{id: {id}, state: 3}}}}], steps: [{{repeat: {{times: 100000, steps: [{{fault: {{kind: fail, machine: {id}}}}}]}}}}]",
                id = "m".repeat(1000)
            ),
            "$.steps: are 103200000 bytes of machine names",
        ),
    ]);
}
