//! The page and the numbers behind it.

use std::fs;
use std::process::Command;

use bigfleet_bench::page::rewritten;
use bigfleet_bench::results::Results;
use serde_json::{Value, json};

const TABLES: [&str; 11] = [
    "machine",
    "fleets",
    "incremental",
    "churn",
    "worst",
    "phases",
    "published",
    "parts",
    "provider-calls",
    "provider-lists",
    "provider-start",
];

/// A page with all tables, each with something stale in it.
fn page() -> String {
    let table =
        |name: &str| format!("About {name}.\n\n<!-- bench: {name} -->\n\nstale\n\n<!-- bench: end -->\n\n");
    format!("# Title\n\n{}The end.\n", TABLES.map(table).concat())
}

fn row(workload: &str) -> Value {
    json!({
        "workload": workload, "records": 238_946, "needs": 47_073, "gang_share": 0.945,
        "cold_full_ms": 30.0, "cold_full_min_ms": 25.06, "cold_full_max_ms": 12_345.0, "cold_runs": 11,
        "warm_full_p50_ms": 1.5, "warm_full_p99_ms": 0.25, "warm_apply_p50_ms": 0.5, "rows_changed": 0.07,
        "phase_ms": {"settle": 1.0, "phase1": 28.5, "fold": 0.5, "phase3": 0.0},
        "rss_bytes_per_record": 261, "apply_ms": 812.3, "decoded": "nothing",
        "timed": "first decision", "timed_ms": 30.0, "recorded": "some seconds", "recorded_ms": 2048.0,
        "ratio": 68.27, "target_ms": 20.0,
        "cpu": "A processor", "cores": 2, "kernel": "6.1", "commit": "abc", "load": 0.25,
    })
}

fn results(rows: &[Value]) -> Results {
    let mut results = Results::default();
    rows.iter().for_each(|row| results.put(row.clone()).unwrap());
    results
}

#[test]
fn tables_are_written_and_all_else_is_left() {
    let text = rewritten(&page(), &results(&[row("50k")])).unwrap();
    assert!(text.starts_with(
        "# Title\n\nAbout machine.\n\n<!-- bench: machine -->\n\nA processor, 2 cores, Linux 6.1.\n"
    ));
    assert!(text.ends_with("<!-- bench: end -->\n\nThe end.\n") && !text.contains("stale"), "{text}");
    let line = text.lines().find(|line| line.starts_with("| 50k | 238,946")).unwrap();
    assert_eq!(
        line,
        "| 50k | 238,946 | 47,073, 94 % gangs | 812 ms | 30.0 ms (25.1 ms to 12.3 s of 11) | 20.0 ms, 1.50 times that | some seconds | \
         68.3 times as fast | 1.50 ms, 0.250 ms | 261 (at most 300, met) |"
    );
    assert!(text.contains("| 50k | phase1 28.5, settle 1.00, fold 0.500 |"), "{text}");
    // Writing twice changes nothing.
    assert_eq!(rewritten(&text, &results(&[row("50k")])).unwrap(), text);
}

#[test]
fn each_row_stands_in_its_table() {
    let mut timing = row("cold-start-5k");
    timing["what"] = "a shard that starts".into();
    timing["bytes"] = 7_341_925.into();
    timing["timed_ms"] = json!(15.0);
    timing["ratio"] = json!(0.5);
    let rows = [row("5k"), row("incremental-5k-10"), row("inv-snapshot"), timing];
    let text = rewritten(&page(), &results(&rows)).unwrap();
    let table = |name: &str| {
        let begin = text.find(&format!("<!-- bench: {name} -->")).unwrap();
        let rest = &text[begin..];
        let rows =
            rest[..rest.find("<!-- bench: end -->").unwrap()].lines().filter(|line| line.starts_with("| "));
        let names = rows.skip(1).map(|line| line.split('|').nth(1).unwrap().trim().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(table("fleets"), ["5k"]);
    assert_eq!(table("phases"), ["5k"]);
    assert_eq!(table("incremental"), ["incremental-5k-10"]);
    assert_eq!(table("published"), ["inv-snapshot", "cold-start-5k"]);
    assert_eq!(table("parts"), ["cold-start-5k"]);
    assert!(text.contains("| 15.0 ms | some seconds | 2.00 times as slow | 20.0 ms, met |"), "{text}");
    assert!(
        text.contains("| a shard that starts | phase1 28.5, settle 1.00, fold 0.500 | 7.34 MB | - |"),
        "{text}"
    );
}

#[test]
fn the_page_says_how_busy_the_machine_was_and_of_what_the_numbers_are() {
    let mut busy = row("500k");
    busy["load"] = json!(4.5);
    busy["commit"] = "def".into();
    let text = rewritten(&page(), &results(&[row("5k"), row("50k"), busy])).unwrap();
    assert!(text.contains("Commit abc: 5k, 50k.\nCommit def: 500k.\n"), "{text}");
    assert!(
        text.contains("each row: 0.2 to 4.5.\nOther work ran beside it: times are upper bounds.\n"),
        "{text}"
    );
    let quiet = rewritten(&page(), &results(&[row("5k")])).unwrap();
    assert!(quiet.contains("Commit abc.\n") && !quiet.contains("upper bounds"), "{quiet}");
    assert!(rewritten(&page(), &Results::default()).unwrap().contains("Nothing was measured yet."));
}

#[test]
fn a_page_that_does_not_fit_is_an_error_that_says_where() {
    let wrong = |page: &str, rows: &[Value]| format!("{:#}", rewritten(page, &results(rows)).unwrap_err());
    let error = wrong(&page().replace("bench: phases", "bench: stages"), &[]);
    assert!(error.contains("table \"stages\" that is not known"), "{error}");
    let error = wrong("# Title\n", &[]);
    assert!(error.contains("no line \"<!-- bench: churn -->\""), "{error}");
    let error = wrong(&page().replace("<!-- bench: end -->", ""), &[]);
    assert!(error.contains("\"machine\" of the page has no line \"<!-- bench: end -->\""), "{error}");
    let error = wrong(&page(), &[json!({"workload": "5k"})]);
    assert!(error.contains("row of \"5k\" cannot be used: missing field"), "{error}");
}

#[test]
fn results_keep_their_order_and_the_newest_of_each_row() {
    let mut newer = row("5k");
    newer["records"] = 1.into();
    let both = results(&[row("pending-pods-1000"), row("5m"), row("5k"), newer.clone()]);
    let names: Vec<_> = both.rows().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["5k", "pending-pods-1000", "5m"]);
    assert_eq!(both.rows().next().unwrap(), &newer);
    assert_eq!(Results::parse(&both.text()).unwrap(), both);
    let error = |text: &str| format!("{:#}", Results::parse(text).unwrap_err());
    assert!(error("{}").contains("line 1: a row has no \"workload\""), "{}", error("{}"));
    assert!(error("{\"workload\": \"5k\"}\n{").contains("line 2 is no JSON"));
}

#[test]
fn seconds_of_churn_have_tables_of_their_own() {
    let churn = json!({
        "workload": "churn-50k", "records": 238_946, "rows_a_second": 4707.3, "machines_a_second": 18.0, "seconds": 100,
        "apply_ms": 3.5, "decide_p50_ms": 1.5, "decide_p99_ms": 4.0, "phase_ms": {"phase1": 1.0, "fold": 0.25},
        "needs_evaluated": 1057, "machines_touched": 13_044, "nothing_changed_us": 1.25, "unchanged_need_ns": 14.0,
        "apply_10k_ms": 0.5, "worst_ms": {"a whole zone fails": {"apply_ms": 12.0, "decide_ms": 34.0, "number": 79_000}},
        "commit": "abc", "load": 0.5,
    });
    let text = rewritten(&page(), &results(&[row("50k"), churn])).unwrap();
    let expected = "| 50k | 238,946 | 4707, 18 | 3.50 ms | 1.50 ms of 100 | 4.00 (2.00, 2.00 times that) | 1,057, 13,044 \
                    | phase1 1.00, fold 0.250 | 1.25 us | 14.0 ns | 0.500 (1.00, met) |";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("Commits: 50k abc at load 0.500."), "{text}");
    assert!(text.contains("| 50k | a whole zone fails | 79,000 | 12.0 ms | 34.0 ms |"), "{text}");
}

#[test]
fn the_provider_has_tables_of_its_own() {
    let call = json!({
        "workload": "provider-create", "machines": 64_000, "callers": 64, "calls": 64_000, "seconds": 12.5,
        "per_second": 5120.4, "cpu_us_per_call": 151.25, "p50_ms": 11.25, "p99_ms": 40.5, "fsync_ms": 1.5,
        "peak_rss_bytes": 100_000_000, "cpu": "A processor", "cores": 2, "kernel": "6.1", "commit": "abc", "load": 0.25,
    });
    let list = json!({
        "workload": "provider-list-10k", "machines": 10_000, "callers": 1, "calls": 50, "seconds": 2.0, "per_second": 25.0,
        "cpu_us_per_call": 35_000.0, "p50_ms": 40.0, "p99_ms": 45.0, "bytes": 4_500_000, "first_byte_ms": 2.5,
        "peak_rss_bytes": 80_000_000, "cpu": "A processor", "cores": 2, "kernel": "6.1", "commit": "abc",
    });
    let mut start = list.clone();
    start["workload"] = "provider-start-500k".into();
    start["callers"] = 0.into();
    start["bytes"] = Value::Null;
    start["log_bytes"] = 250_000_000.into();
    start["target_ms"] = json!(2000.0);
    let text = rewritten(&page(), &results(&[row("5k"), call, list, start])).unwrap();
    for line in [
        "| provider-create | 64,000 | 64 | 64,000 | 5120 | 151 \u{b5}s | 11.2 ms | 40.5 ms | 1.50 ms |",
        "| provider-list-10k | 10,000 | 4.50 MB | 35.0 ms | 2.50 ms | 40.0 ms | 80 MB |",
        "| provider-start-500k | 10,000 | 250 MB | 40.0 ms, 45.0 ms | 2000 ms, met | 35.0 ms | 80 MB | A processor, 2 cores, Linux 6.1; \
         commit abc; load - |",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
    }
}

/// The committed page shows the committed numbers; nobody wrote into its tables by hand.
#[test]
fn the_committed_page_is_written_from_the_committed_numbers() {
    let page = include_str!("../../../../docs/benchmarks.md");
    let results = Results::parse(include_str!("../../results.jsonl")).unwrap();
    assert_eq!(rewritten(page, &results).unwrap(), page, "run `cargo xtask bench page`");
}

#[test]
fn all_measures_what_is_named_and_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (numbers, tables) = (folder.path().join("results.jsonl"), folder.path().join("page.md"));
    fs::write(&tables, page()).unwrap();
    fs::write(&numbers, format!("{}\n", row("5k"))).unwrap();
    let bench = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bigfleet-bench"));
        command.args(args).arg("--results").arg(&numbers).arg("--page").arg(&tables);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let only = ["all", "--least", "--workload", "domain-totals", "--workload", "pending-pods-1000"];
    let (good, stdout, stderr) = bench(&only);
    assert!(good && stdout.contains("| domain-totals | 12,000 |"), "{stdout}{stderr}");
    assert_eq!(fs::read_to_string(&tables).unwrap(), page(), "without --write nothing is written");

    let (good, _, stderr) = bench(&[&only[..], &["--write"]].concat());
    assert!(good && stderr.contains("2 of 2: pending-pods-1000"), "{stderr}");
    let written = fs::read_to_string(&tables).unwrap();
    for workload in ["| 5k | 238,946 |", "| domain-totals | 12,000 |", "| pending-pods-1000 | 120,000 |"] {
        assert!(written.contains(workload), "{workload} in {written}");
    }
    let names = Results::read(&numbers).unwrap();
    assert_eq!(names.rows().count(), 3);

    // A row that fails takes no other with it.
    let (good, _, stderr) =
        bench(&["all", "--least", "--workload", "6k", "--workload", "domain-totals", "--write"]);
    assert!(!good && stderr.contains("1 of 2 rows keep their last numbers:\n6k:"), "{stderr}");
    assert_eq!(Results::read(&numbers).unwrap().rows().count(), 3);

    fs::write(&tables, page()).unwrap();
    assert!(bench(&["page"]).0);
    assert_eq!(fs::read_to_string(&tables).unwrap().matches("| pending-pods-1000 |").count(), 2);
}
