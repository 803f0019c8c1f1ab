//! The scenarios that come with the repository: each comes out as it expects, with the trace that is committed.

use std::path::{Path, PathBuf};

use crate::c_golden::compare;
use crate::run;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

#[test]
fn every_example_comes_out_as_it_expects_with_its_trace() {
    let traces = folder("tests/fixtures/traces");
    let scenarios = files(&folder("../../examples/scenarios"), "yaml");
    assert!(scenarios.len() >= 7, "{scenarios:?}");
    let mut expected = Vec::new();
    for scenario in scenarios {
        let (trace, failures) = run(&std::fs::read_to_string(&scenario).unwrap());
        assert_eq!(failures, Vec::<String>::new(), "{}: {trace}", scenario.display());
        let path = traces.join(scenario.file_name().unwrap()).with_extension("jsonl");
        compare(&path, &trace);
        expected.push(path);
    }
    assert_eq!(files(&traces, "jsonl"), expected, "a trace without a scenario");
}

/// What the document shows can be typed off.
#[test]
fn the_scenario_of_the_document_comes_out_as_it_expects() {
    let document = std::fs::read_to_string(folder("../../docs/simulate.md")).unwrap();
    let scenario = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let (trace, failures) = run(scenario);
    assert_eq!(failures, Vec::<String>::new(), "{trace}");
}
