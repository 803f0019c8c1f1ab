//! `bigfleet decide`: a file in, bytes out, and the two ways to end.

use std::fs::File;

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
