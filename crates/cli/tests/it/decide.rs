//! `bigfleet decide`: a file in, bytes out, and the two ways to end.

use std::fs::File;

use serde_json::{Value, json};

use crate::process::{bigfleet, finish, run, stderr, stdout};

const PLAIN: &str = r#"{
  "format": "bigfleet.decide/v1",
  "fleet": [
    {"machine": {"id": "m-1", "state": "MACHINE_STATE_IDLE", "resources": {"resources": {"cpu": "4"}}}},
    {"machine": {"id": "m-2", "state": 5, "cluster": "web", "resources": {"resources": {"cpu": "4"}}}}
  ],
  "demand": [
    {"rollup": {"clusterId": "web", "needs": []}},
    {"rollup": {"clusterId": "db", "needs": [{"aggregateResources": {"cpu": "3"}, "priority": 1}]}}
  ]
}"#;

const DECIDED: &str = r#"{
  "format": "bigfleet.decision/v1",
  "actions": [
    {
      "seq": 0,
      "kind": "Bootstrap",
      "machineId": "m-1",
      "cluster": "db",
      "need": {
        "cluster": "db",
        "fingerprint": "FINGERPRINT",
        "group": ""
      },
      "graceSeconds": 0,
      "preemptorPriority": 0,
      "reason": "phase1.idle"
    },
    {
      "seq": 1,
      "kind": "Reclaim",
      "machineId": "m-2",
      "cluster": "web",
      "graceSeconds": 600,
      "preemptorPriority": 0,
      "reason": "phase3.excess"
    }
  ],
  "deferred": [],
  "needs": [
    {
      "cluster": "db",
      "fingerprint": "FINGERPRINT",
      "group": "",
      "priority": 1,
      "satisfied": true,
      "residual": {},
      "claimed": 1,
      "bootstraps": 1,
      "provisions": 0
    }
  ],
  "shortfalls": [],
  "claimedMachineIds": [
    "m-1"
  ]
}
"#;

#[test]
fn a_file_or_standard_input_is_decided_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.json");
    std::fs::write(&file, PLAIN).unwrap();
    let output = run(&["decide", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let printed = stdout(&output);
    let fingerprint = printed.split("\"fingerprint\": \"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(fingerprint.len(), 32);
    assert_eq!(printed, DECIDED.replace("FINGERPRINT", fingerprint));

    let mut piped = bigfleet(&["decide", "-"]);
    piped.stdin(File::open(&file).unwrap());
    let piped = finish(piped);
    assert_eq!((piped.status.code(), stdout(&piped)), (Some(0), printed));
}

#[test]
fn a_refused_file_exits_2_with_one_line_that_names_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.json");
    std::fs::write(&file, PLAIN.replace("\"3\"", "\"3x\"")).unwrap();
    let name = file.to_str().unwrap();
    let refused = run(&["decide", name]);
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    let line = format!("{name}: $.demand[1].rollup.needs[0].aggregateResources.cpu: \"3x\" ");
    assert!(stderr(&refused).starts_with(&line), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1);

    // Standard input is empty here.
    let empty = run(&["decide", "-"]);
    assert_eq!((empty.status.code(), stdout(&empty)), (Some(2), String::new()));
    assert!(stderr(&empty).starts_with("-: $: is not JSON: "), "{}", stderr(&empty));

    let missing = run(&["decide", folder.path().join("none").to_str().unwrap()]);
    assert_eq!((missing.status.code(), stdout(&missing)), (Some(2), String::new()));
    assert!(stderr(&missing).contains("none: cannot be read: "), "{}", stderr(&missing));
    assert_eq!(run(&["decide"]).status.code(), Some(2));
}

#[test]
fn explain_prints_why_and_refuses_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.json");
    std::fs::write(&file, PLAIN).unwrap();
    let name = file.to_str().unwrap();
    let db = run(&["decide", "--explain", "db", name]);
    assert_eq!((db.status.code(), stderr(&db)), (Some(0), String::new()));
    let page = stdout(&db);
    for line in [
        "      1 Idle        bootstrapped for it (m-1)\n",
        "    Bootstrap m-1 at $0/h\n",
        "no machine is taken from db\n",
    ] {
        assert!(page.contains(line), "{page}");
    }
    let digits = page.strip_prefix("db/").unwrap().get(..8).unwrap();
    let need = run(&["decide", "--explain", &format!("db/{digits}"), name]);
    assert!(page.starts_with(&stdout(&need)), "{}", stdout(&need));

    // The example of the documents.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/decide/short-of-machines.json");
    let page = stdout(&run(&["decide", "--explain", "web", example]));
    assert_eq!(page, include_str!("../../../decide/tests/fixtures/short.web.txt"));

    let web = stdout(&run(&["decide", "--explain", "web", name]));
    assert!(web.starts_with("web wants nothing\n") && web.contains("    Reclaim m-2: "), "{web}");

    for (about, says) in [
        ("nobody", "no cluster \"nobody\" in the file; there are db, web"),
        ("db/00ff", "begins with \"00ff\""),
    ] {
        let refused = run(&["decide", "--explain", about, name]);
        assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
        assert_eq!(stderr(&refused).lines().count(), 1);
    }
}

/// Numbers that look like chance; the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A fleet with machines in every state that matters and racks, zones and owners, and more demand than it can meet.
/// `seed` 0 lists it plainly; any other one in another order, behind machines that the engine never sees and clusters that
/// want nothing, with labels and names of their own.
fn busy_file(seed: u64) -> String {
    let mut dice = Dice(seed);
    let machine = |n: usize| {
        let (state, cluster) = match n % 5 {
            0 | 1 => ("MACHINE_STATE_CONFIGURED", ["east", "west"][n % 2]),
            2 => ("MACHINE_STATE_IDLE", ""),
            3 => ("MACHINE_STATE_SPECULATIVE", ""),
            _ => ("MACHINE_STATE_CREATING", ""),
        };
        json!({"machine": {
            "id": format!("m-{n}"), "state": state, "cluster": cluster,
            "instanceType": format!("type-{}", n % 3), "zone": format!("zone-{}", n % 4),
            "pricePerHour": 1.0 + f64::from(u32::try_from(n % 7).unwrap()) / 4.0,
            "resources": {"resources": {"cpu": "8", "memory": "32Gi"}},
            "labels": {"example.com/rack": format!("rack-{}", n % 6)},
        }})
    };
    let mut fleet: Vec<Value> = (0..60).map(machine).collect();
    let rack = json!({"key": "example.com/rack", "operator": "OPERATOR_SAME"});
    let spread = json!({"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1,
        "whenUnsatisfiable": "WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE"});
    let row = |priority: i32, cpu: u32, more: Value| {
        let mut need = json!({"aggregateResources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 4 * cpu)},
            "minUnit": {"cpu": "4", "memory": "16Gi"}, "priority": priority});
        need.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        need
    };
    let needs = |cluster: usize| {
        let priority = 100 * i32::try_from(cluster % 3).unwrap();
        vec![
            row(priority, 100, json!({})),
            // The two clusters without machines want them the more.
            if cluster > 1 { row(4_000, 120, json!({})) } else { row(priority + 2, 8, json!({})) },
            row(priority + 1, 24, json!({"spread": [spread]})),
            row(5_000, 32, json!({"requirements": [rack], "group": "gang-1"})),
            row(5_000, 20, json!({"requirements": [rack], "group": "gang-2"})),
            row(5_000, 8, json!({"requirements": [rack], "group": "small"})),
        ]
    };
    let names = ["east", "west", "north", "south"];
    let mut demand: Vec<Value> = (0..names.len())
        .map(|n| {
            let mut needs = needs(n);
            if seed > 0 {
                dice.shuffle(&mut needs);
            }
            json!({"rollup": {"clusterId": names[n], "needs": needs}})
        })
        .collect();
    if seed > 0 {
        for n in 0..=dice.below(12) {
            let (key, value) = (format!("odd.example/{n}"), format!("v{}", dice.below(5)));
            let mut hidden = machine(2);
            hidden["machine"]["id"] = format!("hidden-{n}").into();
            hidden["machine"]["labels"] = json!({key: value});
            hidden["withheld"] = true.into();
            fleet.push(hidden);
            demand.push(json!({"rollup": {"clusterId": format!("passer-by-{n}"), "needs": []}}));
        }
        dice.shuffle(&mut fleet);
        dice.shuffle(&mut demand);
    }
    json!({"format": "bigfleet.decide/v1", "fleet": fleet, "demand": demand}).to_string()
}

/// Each run is a process of its own, with hash seeds and addresses of its own.
#[test]
fn processes_that_read_the_same_in_other_orders_print_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let decided = |seed: u64| {
        let file = folder.path().join(format!("{seed}.json"));
        std::fs::write(&file, busy_file(seed)).unwrap();
        let output = run(&["decide", file.to_str().unwrap()]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "seed {seed}");
        stdout(&output)
    };
    let plain = decided(0);
    for part in
        ["\"Bootstrap\"", "\"Preempt\"", "\"Provision\"", "\"sameDomain\"", "\"unmetReason\"", "\"members\""]
    {
        assert!(plain.contains(part), "{part} is not in\n{plain}");
    }
    for seed in [0, 1, 2, 3, 4, 5, 6, 7] {
        let other = decided(seed);
        let differs = plain.lines().zip(other.lines()).position(|(one, two)| one != two);
        assert!(differs.is_none() && plain.len() == other.len(), "seed {seed} differs in line {differs:?}");
    }
}
