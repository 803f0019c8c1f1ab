//! `bigfleet simulate`: a scenario in, a trace out, and the three ways to end.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::process::{bigfleet, finish, run, stderr, stdout};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_examples_print_their_traces() {
    for name in ["priority-inversion", "stockout", "scale-down"] {
        let file = repository(&format!("examples/scenarios/{name}.yaml"));
        let trace = repository(&format!("crates/sim/tests/fixtures/traces/{name}.jsonl"));
        let output = run(&["simulate", file.to_str().unwrap()]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        assert_eq!(stdout(&output), std::fs::read_to_string(trace).unwrap());
        let mut piped = bigfleet(&["simulate", "-"]);
        piped.stdin(File::open(&file).unwrap());
        let piped = finish(piped);
        assert_eq!((piped.status.code(), stdout(&piped)), (Some(0), stdout(&output)));
    }
}

#[test]
fn an_expectation_that_fails_exits_1_behind_the_whole_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.yaml");
    let text = std::fs::read_to_string(repository("examples/scenarios/stockout.yaml")).unwrap();
    std::fs::write(&file, text + "- {actions: 99, shortfalls: 9}\n").unwrap();
    let name = file.to_str().unwrap();
    let output = run(&["simulate", name]);
    let trace =
        std::fs::read_to_string(repository("crates/sim/tests/fixtures/traces/stockout.jsonl")).unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), trace));
    let failures = stderr(&output);
    let lines: Vec<_> = failures.lines().collect();
    assert_eq!(lines.len(), 2, "{failures}");
    assert!(lines[0].starts_with(&format!("{name}: $.expect[3].actions: expected 99 ")), "{failures}");
    assert!(lines[1].starts_with(&format!("{name}: $.expect[3].shortfalls: expected 9 ")), "{failures}");
}

#[test]
fn a_refused_scenario_exits_2_with_one_line_that_names_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, "format: bigfleet.scenario/v1\nsteps:\n- cycles: 1\n- cycles: many\n").unwrap();
    let name = file.to_str().unwrap();
    let refused = run(&["simulate", name]);
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(2), String::new()));
    assert_eq!(stderr(&refused), format!("{name}: $.steps[1].cycles: \"many\" is not a number\n"));
    let missing = run(&["simulate", folder.path().join("none").to_str().unwrap()]);
    assert_eq!((missing.status.code(), stdout(&missing)), (Some(2), String::new()));
    assert_eq!(run(&["simulate"]).status.code(), Some(2));
}
