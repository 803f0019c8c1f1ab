//! One small scenario a rule of the format, with what it must come to worked out by hand.
//!
//! `b` bootstraps, `p` provisions, `x` preempts, `r` reclaims and `d` deletes a machine.

use crate::{lines, played, run};

/// A scenario of machines of 4 cpu `fleet` and `steps`, both as lines of YAML, and other members.
fn scenario(other: &str, fleet: &str, steps: &str) -> String {
    format!("format: bigfleet.scenario/v1\n{other}\nfleet:\n{fleet}\nsteps:\n{steps}\n")
}

fn machines(count: u32, id: &str, state: &str) -> String {
    let resources = "resources: {resources: {cpu: '4'}}";
    let kind = "capacityType: CAPACITY_TYPE_ON_DEMAND, pricePerHour: 1";
    format!(
        "- {{count: {count}, machine: {{id: '{id}', state: MACHINE_STATE_{state}, {kind}, {resources}}}}}"
    )
}

/// A roll-up of a cluster that wants so many cpu, nothing for 0.
fn wants(cluster: &str, cpu: u32, priority: i32) -> String {
    let row =
        format!("{{aggregateResources: {{cpu: '{cpu}'}}, minUnit: {{cpu: '4'}}, priority: {priority}}}");
    let rows = if cpu == 0 { "" } else { &row };
    format!("- rollup: {{clusterId: {cluster}, needs: [{rows}]}}\n")
}

fn cycles(cycles: u32) -> String {
    format!("- cycles: {cycles}\n")
}

/// What the cycles did, one entry a cycle: `actions: states`.
fn story(text: &str) -> Vec<String> {
    let cycles = lines(&played(text)).into_iter().filter(|line| line["kind"] == "cycle");
    cycles
        .map(|line| {
            let name = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let actions = line["actions"].as_array().unwrap().iter().map(|action| {
                let kind = match name(&action["kind"]).as_str() {
                    "Preempt" => "x".to_owned(),
                    kind => kind[..1].to_lowercase(),
                };
                kind + " " + &name(&action["machine_id"])
            });
            let actions: Vec<_> = actions.collect();
            let states = line["state"]["by_state"].as_object().unwrap().iter();
            let states: Vec<_> = states.map(|(state, number)| format!("{state} {number}")).collect();
            format!("{}: {}", actions.join(", "), states.join(", "))
        })
        .collect()
}

/// Notes of the lines that have any, by kind of line.
fn notes(text: &str) -> Vec<(String, Vec<String>)> {
    let noted = lines(&played(text)).into_iter().filter(|line| !line["notes"].is_null());
    let texts = |value: &serde_json::Value| {
        value.as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect()
    };
    noted.map(|line| (line["kind"].as_str().unwrap().to_owned(), texts(&line["notes"]))).collect()
}

/// Without a dwell a bought machine joins at once; and Provision is the only action that is told.
#[test]
fn a_provision_without_dwell_goes_on_as_a_bootstrap_at_once() {
    let text = scenario("", &machines(2, "s-{i}", "SPECULATIVE"), &(wants("a", 4, 1) + &cycles(2)));
    assert_eq!(story(&text), ["p s-0: Configured 1, Speculative 1", ": Configured 1, Speculative 1"]);
    // With a dwell of configuring it is Configuring when the cycle ends.
    let text = scenario(
        "dwell: {configure: 2}",
        &machines(1, "s-{i}", "SPECULATIVE"),
        &(wants("a", 4, 1) + &cycles(3)),
    );
    let configured: Vec<_> = lines(&played(&text))
        .iter()
        .filter(|line| line["kind"] == "cycle")
        .map(|line| line["state"]["by_state"].to_string())
        .collect();
    assert_eq!(configured, [r#"{"Configuring":1}"#, r#"{"Configuring":1}"#, r#"{"Configured":1}"#]);
}

/// With a dwell it comes back as an Idle machine of nobody: whoever goes first then takes it.
#[test]
fn a_provision_with_dwell_leaves_an_idle_machine_that_belongs_to_nobody() {
    let fleet = machines(1, "s-{i}", "SPECULATIVE");
    let steps = wants("a", 4, 1) + &cycles(2) + &wants("b", 4, 9) + &cycles(2);
    let text = scenario("dwell: {create: 2}", &fleet, &steps);
    assert_eq!(story(&text), ["p s-0: Creating 1", ": Creating 1", "b s-0: Configured 1", ": Configured 1"]);
    assert_eq!(
        lines(&played(&text)).last().unwrap()["state"]["configured_per_cluster"].to_string(),
        r#"{"b":1}"#
    );
}

/// A transition that begins in cycle t with dwell d is over in step 1 of t + d, so the decision of that cycle sees it.
#[test]
fn drains_are_over_before_the_cycle_in_which_they_are_due_decides() {
    let steps = wants("a", 4, 1) + &cycles(1) + &wants("b", 4, 9) + &cycles(4);
    let text = scenario("dwell: {drain: 3}", &machines(1, "m-{i}", "IDLE"), &steps);
    let moved =
        ["b m-0: Configured 1", "x m-0: Draining 1", ": Draining 1", ": Draining 1", "b m-0: Configured 1"];
    assert_eq!(story(&text), moved);
}

/// What a restart forgets: the machine on its way is not known to be of `a` any more, so `b`, which goes first, is
/// credited with it and waits, and `a` buys. Without the restart `b` buys.
#[test]
fn a_restart_drops_created_for() {
    let told = |fault: &str| {
        let fleet = machines(3, "s-{i}", "SPECULATIVE");
        let again = wants("b", 4, 9) + &wants("a", 4, 1);
        scenario("dwell: {create: 5}", &fleet, &(wants("a", 4, 1) + &cycles(1) + fault + &again + &cycles(1)))
    };
    let bought = |text: &str| {
        let lines = lines(&played(text));
        let last = lines.iter().rfind(|line| line["kind"] == "cycle").unwrap();
        last["actions"].to_string()
    };
    let provision =
        |cluster: &str| format!(r#"[{{"cluster":"{cluster}","kind":"Provision","machine_id":"s-1"}}]"#);
    assert_eq!(bought(&told("")), provision("b"));
    assert_eq!(bought(&told("- fault: {kind: restart}\n")), provision("a"));
}

/// Before every cluster has spoken again, nothing is taken from those that have not.
#[test]
fn a_restart_closes_the_gate_and_forgets_roll_ups_and_the_ledger() {
    let fleet = machines(1, "m-{i}", "IDLE");
    let steps = wants("a", 8, 1)
        + &cycles(3)
        + "- fault: {kind: restart}\n"
        + &cycles(2)
        + &wants("a", 8, 1)
        + &cycles(1)
        + &wants("a", 0, 1)
        + &cycles(2);
    let text = scenario("", &fleet, &steps);
    let told = story(&text);
    assert_eq!(told[3..5], [": Configured 1", ": Configured 1"], "nobody spoke, nothing is reclaimed");
    assert_eq!(told[5..], [": Configured 1", "r m-0: Idle 1", ": Idle 1"]);
    assert_eq!(notes(&text), [("cycle".to_owned(), vec!["restart".to_owned()])]);
    // The ledger began again, too.
    let aged = scenario(
        "",
        &fleet,
        &(wants("a", 8, 1) + &cycles(3) + "- fault: {kind: restart}\n" + &wants("a", 8, 1) + &cycles(2)),
    );
    let end = notes(&aged).pop().unwrap();
    assert!(end.0 == "scenario_end" && end.1[0].ends_with(" - age 2 cpu=4"), "{end:?}");
}

/// The fault waits for the transition; the machine of the second try is another one.
#[test]
fn configure_fails_ends_in_failed_once() {
    let steps =
        "- fault: {kind: configure-fails, machine: m-0}\n".to_owned() + &wants("a", 4, 1) + &cycles(3);
    let text = scenario("", &machines(2, "m-{i}", "IDLE"), &steps);
    assert_eq!(
        story(&text),
        ["b m-0: Failed 1, Idle 1", "b m-1: Configured 1, Failed 1", ": Configured 1, Failed 1"]
    );
    assert_eq!(notes(&text), [("rollup".to_owned(), vec!["configure-fails m-0".to_owned()])]);
}

/// Each of the four fails where it would have come to its end.
#[test]
fn creates_drains_and_deletes_fail_when_they_are_due() {
    let fails = |kind: &str| format!("- fault: {{kind: {kind}-fails, machine: m-0}}\n");
    let create = scenario(
        "dwell: {create: 2}",
        &machines(1, "m-{i}", "SPECULATIVE"),
        &(wants("a", 4, 1) + &cycles(1) + &fails("create") + &cycles(2)),
    );
    assert_eq!(story(&create), ["p m-0: Creating 1", ": Creating 1", ": Failed 1"]);
    let instantly = scenario(
        "",
        &machines(1, "m-{i}", "SPECULATIVE"),
        &(fails("create") + &wants("a", 4, 1) + &cycles(1)),
    );
    assert_eq!(story(&instantly), ["p m-0: Failed 1"]);
    let drain = scenario(
        "",
        &machines(1, "m-{i}", "IDLE"),
        &(wants("a", 4, 1) + &cycles(1) + &fails("drain") + &wants("a", 0, 1) + &cycles(1)),
    );
    assert_eq!(story(&drain)[1], "r m-0: Failed 1");
    let delete = scenario(
        "policy: {idleHoldSeconds: {onDemand: 10}}",
        &machines(1, "m-{i}", "IDLE"),
        &(fails("delete") + &cycles(2)),
    );
    assert_eq!(story(&delete), [": Idle 1", "d m-0: Failed 1"]);
}

/// By cluster and number: the first Configured ones by id, and ids are texts.
#[test]
fn remove_and_fail_strike_the_first_configured_machines_by_id() {
    let fleet = machines(12, "m-{i}", "IDLE");
    let steps = wants("a", 44, 1)
        + &cycles(1)
        + "- fault: {kind: remove, cluster: a, count: 3}\n- fault: {kind: fail, cluster: a, count: 1}\n"
        + "- fault: {kind: fail, cluster: nobody, count: 1}\n- fault: {kind: remove, machine: m-9}\n"
        + &cycles(1);
    let text = scenario("", &fleet, &steps);
    // All but m-9 are bootstrapped: it comes last in the order of texts.
    let struck = ["remove m-0 m-1 m-10", "fail m-11", "fail", "remove m-9"].map(str::to_owned).to_vec();
    let all = notes(&text);
    assert_eq!(all[0], ("cycle".to_owned(), struck));
    assert_eq!(story(&text)[1], ": Configured 7, Failed 1");
    assert!(all[1].1[0].ends_with(" - age 1 cpu=16"), "{all:?}");
}

/// A lost roll-up changes nothing: the last one stays. One that comes twice is the same as one that comes once.
#[test]
fn lost_and_repeated_roll_ups_change_no_decision() {
    let fleet = machines(3, "m-{i}", "IDLE");
    let one = wants("a", 8, 1);
    let sent = |each: &str| {
        scenario(
            "",
            &fleet,
            &(one.clone()
                + &cycles(1)
                + each
                + &cycles(1)
                + each
                + &cycles(1)
                + &wants("a", 4, 1)
                + &cycles(1)),
        )
    };
    let told = story(&sent(&one));
    assert_eq!(
        told,
        [
            "b m-0, b m-1: Configured 2, Idle 1",
            ": Configured 2, Idle 1",
            ": Configured 2, Idle 1",
            "r m-1: Configured 1, Idle 2"
        ]
    );
    assert_eq!(story(&sent("")), told, "lost");
    assert_eq!(story(&sent(&(one.clone() + &one))), told, "twice");
}

/// 1 when it appears, one more in every cycle, and from the start again when it was away.
#[test]
fn the_ledger_ages_by_the_cycle() {
    let fleet = machines(1, "m-{i}", "IDLE");
    let end = |steps: &str| {
        let last = notes(&scenario("", &fleet, steps)).pop();
        last.map(|(kind, notes)| {
            assert_eq!(kind, "scenario_end");
            notes
                .iter()
                .map(|note| note.split_once(" - ").unwrap().1.to_owned())
                .collect::<Vec<_>>()
                .join("; ")
        })
    };
    let (more, less) = (wants("a", 8, 1), wants("a", 4, 1));
    assert_eq!(end(&(more.clone() + &cycles(1))).as_deref(), Some("age 1 cpu=4"));
    assert_eq!(end(&(more.clone() + &cycles(7))).as_deref(), Some("age 7 cpu=4"));
    assert_eq!(end(&(more.clone() + &cycles(7) + &less + &cycles(1))), None);
    let away = more.clone() + &cycles(7) + &less + &cycles(1) + &more + &cycles(2);
    assert_eq!(end(&away).as_deref(), Some("age 2 cpu=4"));
    // The amount is of now, the age of the whole time; without a cycle nothing is decided.
    assert_eq!(
        end(&(more.clone() + &cycles(2) + &wants("a", 24, 1) + &cycles(1))).as_deref(),
        Some("age 3 cpu=20")
    );
    assert_eq!(end(&more), None);
    // Higher priorities first, then older ones, whatever the clusters are called.
    let many = wants("a", 8, 1) + &cycles(2) + &wants("c", 4, 5) + &wants("b", 8, 1) + &cycles(2);
    let last = notes(&scenario("", &fleet, &many)).pop().unwrap().1;
    let shown: Vec<_> = last.iter().map(|note| note.replace(note.split(' ').nth(2).unwrap(), "F")).collect();
    assert_eq!(shown, ["shortfall a F - age 4 cpu=8", "shortfall b F - age 2 cpu=8"]);
}

/// A repeat in a repeat, and the numbers of the fleet.
#[test]
fn repeats_nest_and_machines_are_numbered() {
    let fleet =
        "- {count: 6, from: 8, machine: {id: 'm-{i}', state: 3, zone: 'z{i%3}', labels: {rack: 'r{i/4}'},
        resources: {resources: {cpu: '4'}}}}";
    let need = |key: &str, value: &str| {
        let fits = format!("requirements: [{{key: {key}, operator: OPERATOR_IN, values: [{value}]}}]");
        format!(
            "- rollup: {{clusterId: {value}, needs: [{{{fits}, aggregateResources: {{cpu: '100'}}, minUnit: {{cpu: '4'}}}}]}}\n"
        )
    };
    let steps = need("topology.kubernetes.io/zone", "z1")
        + &need("rack", "r2")
        + "- repeat: {times: 2, steps: [{cycles: 1}, {repeat: {times: 3, steps: [{cycles: 2}]}}]}\n";
    let text = scenario("", fleet, &steps);
    let told = story(&text);
    assert_eq!(told.len(), 14);
    // 8..=13: zone z1 has 10 and 13, rack r2 has 8 to 11, and r2 comes first by name.
    assert_eq!(told[0], "b m-10, b m-11, b m-13, b m-8, b m-9: Configured 5, Idle 1");
    let end = lines(&played(&text)).pop().unwrap();
    assert_eq!(end["step"], 1 + 2 + 14);
}

/// Machines of a scenario are stamped as if they had been bound for a row.
#[test]
fn assigned_machines_bear_the_stamps_of_their_row() {
    let bound = |assigned: &str| {
        let machine = "machine: {id: 'm-{i}', state: 5, cluster: a, resources: {resources: {cpu: '4'}}}";
        scenario(
            "",
            &format!("- {{{machine}{assigned}}}"),
            &(wants("a", 4, 50) + &wants("b", 4, 40) + &cycles(1) + &wants("b", 4, 60) + &cycles(1)),
        )
    };
    // A machine without stamps is nobody's victim of a lower priority, either: its Need is of priority 50.
    assert_eq!(story(&bound(", assigned: {cluster: a, row: 0}")), [": Configured 1", "x m-0: Idle 1"]);
}

/// The dearest go first, at most half of four at a time, at least one.
#[test]
fn the_reclaim_cap_holds_back_what_comes_later() {
    let fleet = machines(4, "m-{i}", "IDLE");
    let steps = wants("a", 16, 1) + &cycles(1) + &wants("a", 0, 1) + &cycles(4);
    let text = scenario("policy: {reclaimCapFraction: 0.5}", &fleet, &steps);
    assert_eq!(
        story(&text)[1..],
        ["r m-2, r m-3: Configured 2, Idle 2", "r m-1: Configured 1, Idle 3", "r m-0: Idle 4", ": Idle 4"]
    );
}

/// What is under way as a scenario begins was begun in cycle 0 by somebody who is gone.
#[test]
fn machines_that_are_under_way_at_the_start_come_to_their_end() {
    let fleet = [machines(1, "c", "CREATING"), machines(1, "d", "DELETING")].join("\n")
        + "\n- machine: {id: q, state: MACHINE_STATE_DRAINING, cluster: a, resources: {resources: {cpu: '4'}}}";
    let text = scenario("dwell: {create: 2, drain: 1}", &fleet, &cycles(2));
    assert_eq!(story(&text), [": Creating 1, Idle 1, Speculative 1", ": Idle 2, Speculative 1"]);
}

/// What is expected is compared, and the trace is complete all the same.
#[test]
fn expectations_that_fail_are_told_by_their_path() {
    let expect = "expect:
- {actions: 3}
- {from: 2, actions: 1, kinds: [Reclaim]}
- {from: 1, to: 1, kinds: [Bootstrap, Provision], actions: 2}
- {to: 9, actions: 4, byState: {Configured: 1, Failed: 1}, configured: {a: 2, none: 0}, shortfalls: 1}";
    let text = scenario(
        expect,
        &machines(2, "m-{i}", "IDLE"),
        &(wants("a", 8, 1) + &cycles(1) + &wants("a", 4, 1) + &cycles(1)),
    );
    let (trace, failures) = run(&text);
    assert!(trace.ends_with("}\n") && trace.contains("scenario_end"), "{trace}");
    assert_eq!(
        failures,
        [
            "$.expect[3].actions: expected 4 of Bootstrap, Provision, Preempt, Reclaim, Delete in cycles 1 to 9, there are 3",
            "$.expect[3].byState.Failed: expected 1 machines at the end, there are 0",
            "$.expect[3].configured.a: expected 2 machines at the end, there are 1",
            "$.expect[3].shortfalls: expected 1 at the end, there are 0",
        ]
    );
}
