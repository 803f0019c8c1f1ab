//! What the program prints.

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bigfleet-bench")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn report(args: &[&str]) -> Value {
    let (good, stdout, stderr) = bench(args);
    assert!(good, "{stderr}");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_report_has_every_field() {
    let report = report(&["engine", "--profile", "dev-50", "--json", "--least"]);
    assert_eq!(report["workload"], "dev-50");
    assert_eq!(report["needs"], 70);
    for number in [
        "records",
        "gang_share",
        "cold_full_ms",
        "apply_ms",
        "warm_full_p50_ms",
        "warm_full_p99_ms",
        "needs_evaluated",
        "machines_touched",
        "rss_bytes_per_record",
        "actions",
    ] {
        assert!(report[number].as_f64().is_some_and(|number| number >= 0.0), "{number} in {report}");
    }
    for count in ["records", "needs_evaluated", "machines_touched", "rss_bytes_per_record", "warm_passes"] {
        assert!(report[count].as_u64().is_some_and(|count| count > 0), "{count} in {report}");
    }
    for text in ["cpu", "commit"] {
        assert!(report[text].as_str().is_some_and(|text| !text.is_empty()), "{text} in {report}");
    }
    // What the phases took is what the decision took.
    let phases = report["phase_ms"].as_object().unwrap();
    for phase in ["settle", "fold", "phase1", "phase2", "verdicts", "phase3", "other"] {
        assert!(phases.contains_key(phase), "{phase} in {report}");
    }
    let sum: f64 = phases.values().map(|ms| ms.as_f64().unwrap()).sum();
    let all = report["cold_full_ms"].as_f64().unwrap();
    assert!((sum - all).abs() <= all * 0.02, "phases of {sum} ms in {all} ms");
}

#[test]
fn a_published_benchmark_stands_beside_its_number() {
    let report = report(&["engine", "--workload", "domain-totals", "--json", "--least"]);
    assert_eq!((&report["records"], &report["needs"]), (&12_000.into(), &1.into()));
    assert_eq!(report["actions"], 10);
    assert_eq!(report["timed"], "phase1");
    assert_eq!(report["timed_ms"], report["phase_ms"]["phase1"]);
    assert!(report["recorded"].is_string() && report["ratio"].is_null());
    let report = self::report(&["engine", "--workload", "inv-snapshot", "--json", "--least"]);
    assert_eq!(report["recorded_ms"], 477.0);
    let (ours, ratio) = (report["timed_ms"].as_f64().unwrap(), report["ratio"].as_f64().unwrap());
    assert!((ratio * ours - 477.0).abs() < 1e-6, "{report}");
    // Most of the indexes are made when events are taken.
    assert!(ours >= report["apply_ms"].as_f64().unwrap(), "{report}");
}

#[test]
fn pending_pods_become_decisions() {
    let report = report(&["engine", "--workload", "pending-pods-1000", "--json", "--least"]);
    assert_eq!(report["pods"], 1000);
    // Plain, spread, three zones, two architectures, and gangs of ten.
    assert_eq!(report["needs"], 1 + 1 + 3 + 2 + 20);
    assert!(report["actions"].as_u64().unwrap() > 0);
    let phases = report["phase_ms"].as_object().unwrap();
    assert_eq!(
        phases.keys().map(String::as_str).collect::<Vec<_>>(),
        ["aggregate", "apply", "decide", "gate", "rows"]
    );
}

#[test]
fn a_shard_starts_from_bytes() {
    let report = report(&["engine", "--workload", "cold-start-5k", "--json", "--least"]);
    assert_eq!((&report["records"], &report["needs"]), (&24_293.into(), &4_707.into()));
    assert_eq!(report["decoded"], "List and roll-ups");
    // A realistic record has some 300 bytes.
    assert!((24_293 * 200..24_293 * 400).contains(&report["bytes"].as_u64().unwrap()), "{report}");
    assert!(
        report["actions"].as_u64().is_some_and(|actions| actions > 0 && actions <= 24_293 / 50),
        "{report}"
    );
    let parts: Vec<_> = report["phase_ms"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        parts,
        ["cycle", "hello", "list apply", "list read", "rollup apply", "rollup decode", "rollup gate"]
    );
    let sum: f64 = report["phase_ms"].as_object().unwrap().values().map(|ms| ms.as_f64().unwrap()).sum();
    assert!((sum - report["cold_full_ms"].as_f64().unwrap()).abs() < 0.01, "{report}");
    assert_eq!(report["timed_ms"], report["cold_full_ms"]);
    assert_eq!((&report["target_ms"], &report["recorded_ms"]), (&20.0.into(), &Value::Null));
}

#[test]
fn the_other_measurements_run() {
    for name in ["needs-replace", "rollup-25k"] {
        let report = report(&["engine", "--workload", name, "--json", "--least"]);
        assert_eq!(report["workload"], name);
        assert!(report["needs"].as_u64().unwrap() > 600, "{report}");
    }
}

#[test]
fn a_table_says_the_same() {
    let (good, stdout, stderr) = bench(&["engine", "--profile", "dev-50", "--least"]);
    assert!(good, "{stderr}");
    for words in ["dev-50 on ", "cold full", "warm full", "bytes a record", "phases, cold"] {
        assert!(stdout.contains(words), "{words:?} in {stdout}");
    }
}

#[test]
fn an_unknown_workload_is_an_error_that_names_the_known_ones() {
    let (good, stdout, stderr) = bench(&["engine", "--workload", "6k"]);
    assert!(!good && stdout.is_empty());
    assert!(stderr.contains("no workload \"6k\"") && stderr.contains("pending-pods-1000"), "{stderr}");
}
