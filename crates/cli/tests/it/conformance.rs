//! `bigfleet conformance` as people run it: a command that it starts and kills, files that it leaves, its status.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::process::{Program, bigfleet, finish, finish_within, run, stderr, stdout};

/// The command line of a provider of ours.
fn provider(name: &str) -> String {
    format!("'{}' provider {name}", env!("CARGO_BIN_EXE_bigfleet"))
}

fn certify(out: &Path, exec: &str, more: &[&str]) -> Output {
    let mut words = vec!["conformance", "--exec", exec, "--out", out.to_str().unwrap()];
    words.extend(more);
    finish(bigfleet(&words))
}

#[test]
fn fakecloud_survives_being_killed_and_reports_say_so() {
    let out = tempfile::tempdir().unwrap();
    let done = certify(out.path(), &provider("fakecloud"), &["--profile", "durable"]);
    assert_eq!(done.status.code(), Some(0), "{}{}", stderr(&done), stdout(&done));
    let last = stdout(&done).lines().last().unwrap().to_owned();
    assert_eq!(last, "CERTIFIED: all 7 behaviours of durable hold");
    assert!(stderr(&done).contains("ok       B1001"), "progress goes to standard error: {}", stderr(&done));
    let report = std::fs::read_to_string(out.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["verdict"], "CERTIFIED");
    assert_eq!(report["findings"].as_array().unwrap().len(), 10, "the N-ids are reported too");
    assert!(std::fs::read_to_string(out.path().join("junit.xml")).unwrap().contains("name=\"B1007 "));
    assert_eq!(std::fs::read_to_string(out.path().join("summary.txt")).unwrap(), stdout(&done));
    assert!(out.path().join("provider-0.log").exists(), "what providers print is kept");
}

/// The whole suite against a command; how long it takes must not decide.
pub(crate) fn certified(exec: &str, profiles: &str) -> serde_json::Value {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let words =
        ["conformance", "--exec", exec, "--profile", profiles, "--out", folder, "--settle-timeout=5m"];
    let done = finish_within(bigfleet(&words), Duration::from_secs(900));
    assert_eq!(done.status.code(), Some(0), "{exec}: {}{}", stderr(&done), stdout(&done));
    let report = std::fs::read_to_string(out.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["verdict"], "CERTIFIED");
    report
}

/// Ids of findings with this outcome.
fn with_outcome(report: &serde_json::Value, outcome: &str) -> Vec<String> {
    let all = report["findings"].as_array().unwrap().iter();
    let wanted = all.filter(|finding| finding["outcome"] == outcome);
    wanted.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn baremetal_is_certified() {
    let report = certified(&provider("baremetal"), "core,bare-metal");
    assert_eq!(with_outcome(&report, "skipped"), [""; 0]);
    // What needs Delete, and what needs TLS.
    assert_eq!(with_outcome(&report, "not-applicable"), ["DeleteIdempotent", "N308"]);
}

#[test]
fn a_program_as_back_end_is_certified() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/providers/directory.sh"));
    let machines = folder.path().join("machines");
    let command = format!("env MACHINES={} sh {}", machines.display(), script.display());
    let report = certified(&format!("{} --command \"{command}\"", provider("exec")), "core");
    assert_eq!(with_outcome(&report, "skipped"), [""; 0]);
}

#[test]
fn a_broken_clause_fails_and_says_how_it_is_mended() {
    let out = tempfile::tempdir().unwrap();
    let slow = provider("fakecloud --create-latency 5m");
    let done =
        certify(out.path(), &slow, &["--only", "FullLifecycle,GetUnknown", "--settle-timeout", "200ms"]);
    assert_eq!(done.status.code(), Some(1), "{}{}", stderr(&done), stdout(&done));
    let text = stdout(&done);
    for words in [
        "FullLifecycle FAILED",
        "  clause  Create, Configure, Drain and Delete each lead to their target",
        "  sent    Create machine_id=",
        "  got     operation_id=",
        "  mend    Begin with the four edges",
        "baseline   1 passed, 1 failed",
        "FAILED: 1 required behaviours do not hold: FullLifecycle",
    ] {
        assert!(text.contains(words), "{words:?} not in\n{text}");
    }
}

#[test]
fn a_part_is_incomplete_and_so_is_an_address_without_its_command() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let mut program = Program::start(
        &["provider", "fakecloud", "--addr", "127.0.0.1:0", "--metrics-addr", "0", "--seed-count", "60"],
        &out.path().join("log"),
    );
    let target = program.ready("provider").to_string();
    let part = run(&["conformance", "--target", &target, "--only", "B31*,B208", "--out", folder]);
    assert_eq!(part.status.code(), Some(3), "{}{}", stderr(&part), stdout(&part));
    assert!(stdout(&part).contains("INCOMPLETE: only B31*,B208 was asked for"), "{}", stdout(&part));
    assert!(stdout(&part).contains("extension  4 passed, 0 failed"), "{}", stdout(&part));
    let durable = run(&["conformance", "--target", &target, "--profile", "durable", "--out", folder]);
    assert_eq!(durable.status.code(), Some(3), "{}", stderr(&durable));
    assert!(stdout(&durable).contains("could not be looked at: B1001"), "{}", stdout(&durable));
    program.terminate();
}

#[test]
fn under_tls_every_shard_has_a_certificate_of_its_own() {
    let out = tempfile::tempdir().unwrap();
    let some = ["--tls", "--only", "FullLifecycle,B302,B308,B401,N308"];
    let done = certify(out.path(), &provider("fakecloud"), &some);
    assert_eq!(done.status.code(), Some(3), "{}{}", stderr(&done), stdout(&done));
    let text = stdout(&done);
    for words in [
        "fakecloud, mutual TLS",
        "does not apply B308: under TLS it is refused, see N308",
        "extension  2 passed, 0 failed, 0 skipped, 1 do not apply",
        "N-ids      1 passed",
    ] {
        assert!(text.contains(words), "{words:?} not in\n{text}");
    }
}

#[test]
fn what_cannot_be_tested_is_refused_before_anything_starts() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("report");
    let folder = folder.to_str().unwrap();
    for (words, says) in [
        (&["--target", "h:1", "--exec", "x"][..], "only one of them"),
        (&[], "one of them says what to test"),
        (&["--target", "h:1", "--fault-exec", "x"], "goes with --exec"),
        (&["--target", "h:1", "--profile", "core,moon"], "\"moon\" is no profile"),
        (&["--target", "h:1", "--profile", ","], "names no profile"),
        (&["--exec", "an 'open quote"], "a quote is open"),
        (&["--target", "h:1", "--tls"], "trusts an authority of its own"),
        (&["--target", "h:1", "--tls-ca", "ca.crt"], "both of them or not at all"),
        (&["--target", "h:1", "--tls-cert=x"], "mints a certificate for each shard id"),
        (&["--target", "h:1", "--only", "B999,Full"], "--only B999,Full chooses no behaviour"),
    ] {
        let mut all = vec!["conformance", "--out", folder];
        all.extend(words);
        let refused = run(&all);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{words:?}: {}", stderr(&refused));
    }
    let missing = run(&["conformance", "--out", folder, "--exec", "/nonexistent/provider"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot start \"/nonexistent/provider\""), "{}", stderr(&missing));
    assert_eq!(
        stderr(&missing).matches("No such file").count(),
        1,
        "a cause is said once: {}",
        stderr(&missing)
    );
    let ends = run(&["conformance", "--out", folder, "--exec", &provider("fakecloud --no-such-flag")]);
    assert_eq!(ends.status.code(), Some(1));
    assert!(
        stderr(&ends).contains("ended with") && stderr(&ends).contains("no-such-flag"),
        "{}",
        stderr(&ends)
    );
}

#[test]
fn every_behaviour_is_listed() {
    let listed = stdout(&run(&["conformance", "--list"]));
    let extension = listed.lines().filter(|line| line.starts_with('B'));
    assert_eq!(extension.count(), 93);
    assert!(listed.contains("FullLifecycle"), "{listed}");
}
