//! What people type and what they get: programs, flags, exit codes, signals.

use std::path::Path;
use std::process::Command;

use crate::peers::{RawOperator, need, rollup};
use crate::process::{Program, STOP_WITHIN, bigfleet, eventually, finish, get, metric, run, stderr, stdout};

fn within(folder: &Path, args: &[&str]) -> Command {
    let mut command = bigfleet(args);
    command.current_dir(folder);
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn version_names_the_version_and_the_protocol() {
    let expected = format!("bigfleet {} (protocol v1alpha1)\n", env!("CARGO_PKG_VERSION"));
    for args in [["version"], ["--version"]] {
        let output = run(&args);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), expected.clone()));
    }
}

#[test]
fn completions_are_a_script_that_bash_takes() {
    let output = run(&["completions", "bash"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let script = stdout(&output);
    for word in ["_bigfleet", "all-in-one", "--provider-addr", "machines"] {
        assert!(script.contains(word), "{word} is not completed");
    }
    let mut bash = Command::new("bash");
    bash.args(["-n", "-c", &script]);
    let parsed = finish(bash);
    assert!(parsed.status.success(), "{}", stderr(&parsed));
    assert_eq!(run(&["completions", "cmd.exe"]).status.code(), Some(2));
}

#[test]
fn print_config_shows_every_setting_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shard.yaml");
    std::fs::write(&file, "cycle-interval: 7s\ncycle-min-gap: 70ms\nreclaim-after: 77s\n").unwrap();
    let mut command = within(
        folder.path(),
        &["shard", "--provider-addr", "127.0.0.1:1", "--cycle-interval=9s", "--print-config", "--config"],
    );
    command.arg(&file).env("BIGFLEET_CYCLE_INTERVAL", "8s").env("BIGFLEET_CYCLE_MIN_GAP", "80ms");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for line in [
        "cycle-interval = \"9s\" (flag)",
        "cycle-min-gap = \"80ms\" (environment)",
        "reclaim-after = \"1m17s\" (file)",
        "execute-concurrency = \"32\" (default)",
        "provider-addr = \"127.0.0.1:1\" (flag)",
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
    }
    std::fs::remove_file(file).unwrap();
    assert!(is_empty(folder.path()), "--print-config left something behind");
}

/// The same for the programs of a cluster: every flag by file, variable and command line.
#[test]
fn the_operator_and_the_pod_controller_read_file_environment_and_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    let settings = |args: &[&str], text: &str, variables: &[(&str, &str)]| {
        std::fs::write(&file, text).unwrap();
        let mut command = within(folder.path(), args);
        command.args(["--print-config", "--config"]).arg(&file).envs(variables.iter().copied());
        let output = finish(command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let all = |text: &str, lines: &[&str]| {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "no line {line} in\n{text}");
        }
    };
    let operator = settings(
        &["operator", "--daemonset-overhead=auto", "--qps=3"],
        "cluster-id: c-file\nshard-addr: file:1\nqps: 1\nrollup-interval: 20s\ndelete-node-on-release: true\n",
        &[
            ("BIGFLEET_SHARD_ADDR", "env:1"),
            ("BIGFLEET_QPS", "2"),
            ("BIGFLEET_DAEMONSET_OVERHEAD", "off"),
            ("BIGFLEET_FORCE_DELETE_AT_DEADLINE", "true"),
        ],
    );
    all(
        &operator,
        &[
            "cluster-id = \"c-file\" (file)",
            "shard-addr = \"env:1\" (environment)",
            "qps = \"3\" (flag)",
            "rollup-interval = \"20s\" (file)",
            "delete-node-on-release = \"true\" (file)",
            "force-delete-at-deadline = \"true\" (environment)",
            "daemonset-overhead = \"auto\" (flag)",
            "ack-concurrency = \"16\" (default)",
        ],
    );
    let controller = settings(
        &["pod-controller", "--burst=9"],
        "burst: 7\nexclude-namespaces: a,b\nleader-elect: false\n",
        &[
            ("BIGFLEET_BURST", "8"),
            ("BIGFLEET_EXCLUDE_NAMESPACES", "x"),
            ("BIGFLEET_TERMINATING_POD_GRACE", "9s"),
        ],
    );
    all(
        &controller,
        &[
            "burst = \"9\" (flag)",
            "exclude-namespaces = \"x\" (environment)",
            "leader-elect = \"false\" (file)",
            "terminating-pod-grace = \"9s\" (environment)",
        ],
    );
}

#[test]
fn settings_of_the_operator_and_the_pod_controller_are_refused_whatever_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, "burst: many\nno-such-flag: 1\n").unwrap();
    for (args, variable, expected) in [
        (
            &["operator", "--cluster-id=c", "--shard-addr=h:1", "--leader-elect=perhaps"][..],
            ("BIGFLEET_DAEMONSET_OVERHEAD", "some"),
            &[
                "--leader-elect \"perhaps\"",
                "BIGFLEET_DAEMONSET_OVERHEAD \"some\": is none of off, auto",
                "many",
                "no-such-flag",
            ][..],
        ),
        (
            &["pod-controller", "--qps=0"],
            ("BIGFLEET_TERMINATING_POD_GRACE", "soon"),
            &["--qps", "BIGFLEET_TERMINATING_POD_GRACE \"soon\"", "many", "no-such-flag"],
        ),
    ] {
        let mut command = within(folder.path(), args);
        command.arg("--config").arg(&file).env(variable.0, variable.1);
        let output = finish(command);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        for part in expected {
            assert!(said.contains(part), "{part} is not named: {said}");
        }
    }
}

#[test]
fn a_single_dash_does_for_long_flags() {
    let output = run(&["shard", "-provider-addr=127.0.0.1:1", "-id", "east-1", "-dry-run", "-print-config"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for line in ["id = \"east-1\" (flag)", "dry-run = \"true\" (flag)"] {
        assert!(stdout(&output).lines().any(|l| l == line), "{}", stdout(&output));
    }
    let unset = run(&["shard", "-provider-addr=127.0.0.1:1", "-empty-rollup-guard=false", "-print-config"]);
    assert!(stdout(&unset).contains("empty-rollup-guard = \"false\" (flag)"), "{}", stdout(&unset));
}

#[test]
fn other_names_of_the_executable_stand_for_subcommands() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, args: &[&str]| {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bigfleet"), &link).unwrap();
        let mut command = Command::new(link);
        command.args(args);
        finish(command)
    };
    let ctl = named("bigfleetctl", &["needs", "--shard", "127.0.0.1:1", "--timeout", "5"]);
    assert_eq!(ctl.status.code(), Some(1));
    assert!(stderr(&ctl).contains("asking shard 127.0.0.1:1 (--shard) for its Needs"), "{}", stderr(&ctl));
    let provider = named("bigfleet-provider-fakecloud", &["--seed-machines=3", "--print-config"]);
    assert_eq!(provider.status.code(), Some(0), "{}", stderr(&provider));
    assert!(stdout(&provider).contains("seed-machines = \"3\" (flag)"), "{}", stdout(&provider));
    let operator = named("bigfleet-operator", &[]);
    assert_eq!(operator.status.code(), Some(2));
    assert!(stderr(&operator).contains("--cluster-id: is required"), "{}", stderr(&operator));
}

/// What is typed, and what standard error has to say.
type Refused = (&'static [&'static str], &'static str);

fn all_refused(cases: &[Refused]) {
    let folder = tempfile::tempdir().unwrap();
    for (args, message) in cases {
        let output = finish(within(folder.path(), args));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(message), "{args:?} does not say {message:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(&output));
        assert!(is_empty(folder.path()), "{args:?} left something behind");
    }
}

#[test]
fn what_cannot_be_used_is_refused_without_side_effects() {
    const SHARD: &str = "--provider-addr=127.0.0.1:1";
    all_refused(&[
        (&[], "subcommand"),
        (&["fly"], "fly"),
        (&["provider"], "subcommand"),
        (&["provider", "moon"], "moon"),
        (&["ctl"], "subcommand"),
        (&["ctl", "needs", "--output", "xml"], "xml"),
        (&["shard"], "--provider-addr: is required"),
        (&["shard", SHARD, "--no-such-flag"], "--no-such-flag"),
        (&["shard", SHARD, "--cycle-interval=soon"], "--cycle-interval \"soon\": "),
        (&["shard", SHARD, "--cycle-interval=0"], "--cycle-interval \"0\": must be longer than zero"),
        (&["shard", SHARD, "--reclaim-cap-fraction=1.5"], "--reclaim-cap-fraction \"1.5\": "),
        (&["shard", SHARD, "--execute-concurrency=0"], "--execute-concurrency \"0\": "),
        (&["shard", SHARD, "--cycle-min-gap=20s"], "--cycle-min-gap is 20s: "),
        (&["shard", SHARD, "--max-rollup-bytes=1Gi"], "--max-rollup-bytes \"1Gi\": "),
        (&["shard", SHARD, "--listen=7780"], "--listen \"7780\": "),
        (&["shard", SHARD, "--id=a b"], "--id: "),
        (&["shard", SHARD, "--dry-run=maybe"], "--dry-run \"maybe\": is neither true nor false"),
        (&["shard", SHARD, "--config=missing.yaml"], "--config missing.yaml: "),
        (&["provider", "fakecloud", "--seed-machines=-1"], "--seed-machines \"-1\": "),
        (&["provider", "fakecloud", "--archetypes=missing.yaml"], "--archetypes missing.yaml: "),
        (&["all-in-one", "--seed-profile=moon"], "--seed-profile \"moon\": "),
        (&["all-in-one", "--cycle-min-gap=20s"], "--cycle-min-gap is 20s: "),
    ]);
}

#[test]
fn every_unusable_setting_is_named_at_once() {
    let mut command = bigfleet(&["shard", "--cycle-interval=soon"]);
    command.env("BIGFLEET_RECLAIM_AFTER", "never");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    for part in
        ["--cycle-interval \"soon\"", "BIGFLEET_RECLAIM_AFTER \"never\"", "--provider-addr: is required"]
    {
        assert!(said.contains(part), "{part} is not named: {said}");
    }
}

#[test]
fn flags_of_later_parts_are_refused_with_the_reason() {
    const SHARD: &str = "--provider-addr=127.0.0.1:1";
    const OPERATOR: [&str; 3] = ["operator", "--cluster-id=c", "--shard-addr=127.0.0.1:1"];
    all_refused(&[
        (&["shard", SHARD, "--tls-cert=a.pem"], "--tls-cert: this version has no TLS yet"),
        (&["provider", "fakecloud", "--tls-key=a.pem"], "--tls-cert, --tls-ca missing beside --tls-key"),
        (&["all-in-one", "--tls-ca=a.pem"], "--tls-ca: this version has no TLS yet"),
        (
            &["shard", SHARD, "--coordinator-addr=c:1"],
            "--coordinator-addr: this version has no coordinator yet",
        ),
        (&["all-in-one", "--raft-bind=:1"], "--raft-bind: this version has no coordinator yet"),
        (&["all-in-one", "--dashboard-addr=:1"], "--dashboard-addr: this version has no dashboard yet"),
        (&["shard", SHARD, "--seed-machines=3"], "--seed-machines: belongs to `bigfleet provider fakecloud`"),
        (&["shard", SHARD, "--incremental-reconcile"], "--incremental-reconcile: "),
        (
            &[OPERATOR[0], OPERATOR[1], OPERATOR[2], "--mint-bootstrap-tokens"],
            "--mint-bootstrap-tokens: this version mints no tokens",
        ),
        (&["coordinator", "--listen=:1"], "`bigfleet coordinator` is not built yet"),
        (&["dashboard"], "`bigfleet dashboard` is not built yet"),
    ]);
}

/// Example 49 of the cluster side: found before anything is dialled.
#[test]
fn a_bootstrap_template_that_does_not_parse_ends_the_operator_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bootstrap.tmpl");
    std::fs::write(&path, "{{ .Unclosed ").unwrap();
    let template = format!("--bootstrap-template-file={}", path.display());
    let output = run(&["operator", "--cluster-id=c", "--shard-addr=127.0.0.1:1", &template]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("bootstrap.tmpl is wrong: line 1"), "{said}");
}

/// Runs `ctl` against a shard and a provider.
fn ctl(shard: &str, provider: &str, args: &[&str]) -> String {
    let mut all = vec!["ctl", "--shard", shard, "--provider", provider];
    all.extend(args);
    let output = run(&all);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_in_one_answers_everybody_and_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut program = Program::start(
        &[
            "all-in-one",
            "--shard-listen=127.0.0.1:0",
            "--shard-metrics-addr=127.0.0.1:0",
            "--provider-listen=127.0.0.1:0",
            "--data-dir",
            data.to_str().unwrap(),
        ],
        &folder.path().join("log"),
    );
    let (provider, shard) = (program.ready("provider"), program.ready("shard"));
    let admin = program.ready("shard-metrics");
    for addr in [provider, shard, admin] {
        assert_ne!(addr.port(), 0);
    }
    assert_eq!(get(admin, "/healthz").0, 200);
    eventually("readiness", || (get(admin, "/readyz").0 == 200).then_some(()));
    assert!(get(admin, "/metrics").1.contains("# TYPE bigfleet_shard_cycle_duration_seconds histogram"));
    assert!(metric(admin, "bigfleet_shard_epoch").is_some_and(|epoch| epoch > 1e12));
    assert_eq!(get(admin, "/no-such-page").0, 404);

    // A session whose Need nothing can serve, which also has to end at the stop.
    let mut operator = RawOperator::connect(shard, "east").await;
    operator.rollup(rollup("east", 7, vec![need("no-such-type", "3")])).await;
    assert_eq!(operator.acknowledged("rollup").await.rollup_timestamp_unix_nanos, 7);
    let (shard, provider) = (shard.to_string(), provider.to_string());
    let needs = eventually("the Need in `ctl needs`", || {
        let text = ctl(&shard, &provider, &["needs", "--output", "json"]);
        let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
        (rows.as_array().unwrap().len() == 1).then_some(rows)
    });
    let row = &needs[0];
    assert_eq!((&row["cluster"], &row["satisfied"]), (&"east".into(), &false.into()), "{row}");
    assert_eq!(row["unmet_reason"], "UNMET_REASON_NO_MATCHING_SUPPLY", "{row}");
    assert_eq!(row["residual"]["cpu"], "3", "{row}");

    let table = ctl(&shard, &provider, &["needs"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("CLUSTER") && lines[0].ends_with("WHY"), "{table}");
    assert!(
        lines[1].starts_with("east ") && lines[1].contains("no machine of this shard could serve it"),
        "{table}"
    );
    assert_eq!(ctl(&shard, &provider, &["needs", "--no-headers"]).lines().count(), 1);
    assert_eq!(ctl(&shard, &provider, &["needs", "--cluster", "west", "--no-headers"]), "");

    let text = ctl(&shard, &provider, &["machines", "--output", "json"]);
    let machines: serde_json::Value = serde_json::from_str(&text).unwrap();
    let machines = machines.as_array().unwrap();
    assert_eq!(machines.len(), 16, "{text}");
    assert!(machines.iter().all(|m| m["state"] == "Idle" && m["instance_type"].is_string()), "{text}");
    let table = ctl(&shard, &provider, &["machines"]);
    assert!(table.starts_with("MACHINE") && table.lines().count() == 17, "{table}");
    assert_eq!(ctl(&shard, &provider, &["machines", "--state", "failed", "--no-headers"]), "");
    let watch = ctl(&shard, &provider, &["watch", "--count", "1"]);
    assert!(watch.contains("16 Idle") && watch.contains("1 unmet"), "{watch}");

    let (status, took) = program.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(took < STOP_WITHIN, "the stop took {took:?}");
}

#[test]
fn a_data_directory_serves_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let args = [
        "shard",
        "--provider-addr=127.0.0.1:1",
        "--metrics-addr=0",
        "--listen=127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let mut first = Program::start(&args, &folder.path().join("log"));
    first.ready("shard");
    let epoch = std::fs::read(data.join("epoch")).unwrap();
    let second = run(&args);
    assert_eq!(second.status.code(), Some(1));
    let said = stderr(&second);
    assert!(said.contains(&format!("another process uses the data directory {}", data.display())), "{said}");
    assert_eq!(std::fs::read(data.join("epoch")).unwrap(), epoch, "the second process took an epoch");
    assert!(first.runs());
    assert_eq!(first.terminate().0.code(), Some(0));
    // The lock goes with its process.
    let mut third = Program::start(&args, &folder.path().join("log"));
    third.ready("shard");
    assert_eq!(third.terminate().0.code(), Some(0));
    assert!(std::fs::read(data.join("epoch")).unwrap() != epoch, "an epoch was used twice");
}

/// Memory holds keys and bootstrap blobs: whatever the limit of the shell, nothing of it gets into a dump.
#[test]
fn no_program_leaves_a_core_dump() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("with-dumps");
    let program = env!("CARGO_BIN_EXE_bigfleet");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nulimit -S -c \"$(ulimit -H -c)\"\nexec '{program}' \"$@\"\n"),
    )
    .unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["provider", "fakecloud", "--addr=127.0.0.1:0", "--metrics-addr=0"];
    let mut program = Program::start_as(&script, &args, &folder.path().join("log"));
    program.ready("provider");
    assert_eq!(program.core_limit(), "0");
    assert!(program.terminate().0.success());
}
