//! Bad input, line by line: each gets its exit code or status, a message that names the field, its counter, and leaves
//! in force what was in force.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bigfleet_net::clock::SystemClock;
use bigfleet_operator::memory::{self, Deployment, MemoryCluster};
use bigfleet_operator::service;
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_proto::v1alpha1::NeedView;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_types::{ClusterId, MachineState};
use tokio_util::sync::CancellationToken;

use crate::peers::{RawOperator, idle, need, needs, rollup, serve_fixed};
use crate::process::{PATIENCE, Program, STOP_WITHIN, eventually, get, metric, run, stderr, stdout};
use crate::provider::Client;

fn shard(folder: &Path, provider: &str) -> Program {
    let data = folder.join("data");
    let args = [
        "shard",
        "--listen=127.0.0.1:0",
        "--metrics-addr=127.0.0.1:0",
        "--cycle-interval=500ms",
        "--provider-addr",
        provider,
        "--data-dir",
        data.to_str().unwrap(),
    ];
    Program::start(&args, &folder.join("log"))
}

fn stops_well(program: Program) {
    let (status, took) = program.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(took < STOP_WITHIN, "the stop took {took:?}");
}

#[test]
fn a_wrong_flag_exits_2_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let output = run(&[
        "shard",
        "--provider-addr=127.0.0.1:1",
        "--data-dir",
        data.to_str().unwrap(),
        "--cycle-interval=-5s",
    ]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("--cycle-interval \"-5s\": "), "{}", stderr(&output));
    assert!(!data.exists());
}

#[test]
fn an_unreachable_provider_leaves_the_shard_up_and_unready() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = shard(folder.path(), "127.0.0.1:1");
    let admin = program.ready("shard-metrics");
    assert_eq!(get(admin, "/healthz").0, 200);
    let (status, body) = get(admin, "/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("first provider reconcile not yet complete"), "{body}");
    eventually("a log line about the provider", || {
        let log = program.logged();
        log.lines()
            .any(|line| line.contains("127.0.0.1:1") && (line.contains("WARN") || line.contains("ERROR")))
            .then_some(())
    });
    assert!(program.runs(), "an unreachable provider ended the shard");
    assert_eq!(get(admin, "/readyz").0, 503);
    stops_well(program);
}

#[test]
fn an_epoch_file_with_garbage_is_fatal_and_stays_as_it_is() {
    for garbage in ["twelve\n", "", "-5\n", "99999999999999999999\n"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("epoch");
        std::fs::write(&file, garbage).unwrap();
        let dir = folder.path().to_str().unwrap();
        let output = run(&[
            "shard",
            "--listen=127.0.0.1:0",
            "--metrics-addr=0",
            "--provider-addr=127.0.0.1:1",
            "--data-dir",
            dir,
        ]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()), "{garbage:?}");
        assert!(stderr(&output).contains(&file.display().to_string()), "{garbage:?}: {}", stderr(&output));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), garbage);
    }
}

/// The verdicts of a cycle that began after this call.
async fn after_two_cycles(shard: SocketAddr) -> Vec<NeedView> {
    let (first, _) = needs(shard).await.unwrap();
    let wait = async {
        loop {
            let (cycle, views) = needs(shard).await.unwrap();
            if cycle >= first + 2 {
                return views;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the shard decides no more")
}

/// Refused roll-ups over one session: each is answered with the path of its field, the old demand stays, and so does
/// the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_rollup_changes_nothing_and_keeps_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let (provider, _served) = serve_fixed(vec![idle("m-0", "metal")]).await;
    let mut program = shard(folder.path(), &provider.to_string());
    let (shard, admin) = (program.ready("shard"), program.ready("shard-metrics"));
    let mut operator = RawOperator::connect(shard, "east").await;
    let good = || need("no-such-type", "3");
    operator.rollup(rollup("east", 1, vec![good()])).await;
    assert_eq!(operator.acknowledged("rollup").await.rollup_timestamp_unix_nanos, 1);

    let mut unparsable = good();
    unparsable.aggregate_resources.insert("memory".into(), "12 potatoes".into());
    let mut unknown = good();
    unknown.requirements[0].operator = 17;
    let mut unspecified = good();
    unspecified.requirements[0].operator = Operator::Unspecified.into();
    let cases = [
        (rollup("west", 2, vec![good()]), "cluster_id: ", "west"),
        (rollup("", 3, vec![good()]), "cluster_id: ", "must not be empty"),
        (
            rollup("east", 4, vec![good(), unparsable]),
            "needs[1].aggregate_resources[\"memory\"]: ",
            "12 potatoes",
        ),
        (rollup("east", 5, vec![unknown]), "needs[0].requirements[0].operator: ", "17"),
        (rollup("east", 6, vec![unspecified]), "needs[0].requirements[0].operator: ", "must be specified"),
    ];
    let mut refused = 0.0;
    for (bad, path, word) in cases {
        let timestamp = bad.timestamp_unix_nanos;
        operator.rollup(bad).await;
        let ack = operator.acknowledged("rollup_rejected").await;
        assert!(ack.reason.starts_with(path) && ack.reason.contains(word), "{path}: {}", ack.reason);
        assert_eq!(ack.rollup_timestamp_unix_nanos, timestamp, "{path}");
        refused += 1.0;
        let series = "bigfleet_shard_rollups_rejected_total{cluster=\"east\"}";
        assert_eq!(metric(admin, series), Some(refused), "{path}");
        let views = after_two_cycles(shard).await;
        assert_eq!(views.len(), 1, "{path}: {views:?}");
        let row = views[0].need.as_ref().unwrap();
        assert_eq!(
            (views[0].cluster_id.as_str(), row.aggregate_resources["cpu"].as_str()),
            ("east", "3"),
            "{path}"
        );
    }

    // The same session goes on.
    operator.rollup(rollup("east", 9, vec![need("no-such-type", "5")])).await;
    assert_eq!(operator.acknowledged("rollup").await.rollup_timestamp_unix_nanos, 9);
    assert_eq!(metric(admin, "bigfleet_shard_active_sessions"), Some(1.0));
    let log = program.logged();
    assert!(log.contains("a roll-up names another cluster than its session"), "no security line in\n{log}");
    stops_well(program);
}

/// One record of the provider has a price that is no number; the other machine is used all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_with_a_nan_price_is_refused_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut bad = idle("bad-0", "metal");
    bad.price_per_hour = f64::NAN;
    let (provider, _served) = serve_fixed(vec![bad, idle("good-0", "metal")]).await;
    let mut program = shard(folder.path(), &provider.to_string());
    let (shard, admin) = (program.ready("shard"), program.ready("shard-metrics"));
    eventually("readiness", || (get(admin, "/readyz").0 == 200).then_some(()));
    let refused = "bigfleet_shard_machines_rejected_total{reason=\"price\"}";
    assert!(metric(admin, refused).is_some_and(|n| n >= 1.0), "{:?}", metric(admin, refused));
    assert!(program.logged().lines().any(|line| line.contains("bad-0")), "{}", program.logged());

    // Two machines' worth is wanted; exactly the good one is there to be claimed.
    let mut operator = RawOperator::connect(shard, "east").await;
    operator.rollup(rollup("east", 1, vec![need("metal", "8")])).await;
    operator.acknowledged("rollup").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, views) = needs(shard).await.unwrap_or_default();
        if let Some(view) = views.first()
            && view.bootstrap_count == 1
        {
            let left = view.residual_deficit.as_ref().map(|r| r.resources["cpu"].as_str());
            assert_eq!((view.satisfied, left), (false, Some("4")), "{view:?}");
            break;
        }
        assert!(Instant::now() < deadline, "the good machine was not used: {views:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stops_well(program);
}

/// An operator whose template asks for what no request has: the shard is told why, the machine stays free and the Need
/// short; the operator and its session live on.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_template_is_a_shortfall_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (provider, _served) = serve_fixed(vec![idle("m-0", "metal")]).await;
    let mut program = shard(folder.path(), &provider.to_string());
    let (shard, admin) = (program.ready("shard"), program.ready("shard-metrics"));

    let (id, stop) = (ClusterId::parse("east").unwrap(), CancellationToken::new());
    let clock = Arc::new(SystemClock::start());
    let cluster = MemoryCluster::start(id.clone(), memory::Config::default(), clock.clone(), stop.clone());
    let mut deployment = Deployment { name: "web".into(), replicas: 1, ..Deployment::default() };
    deployment.pod.requests.insert("cpu".into(), "1".into());
    cluster.apply_deployment(deployment).unwrap();
    let template = Template::parse("token: {{ .Nope }}\n").unwrap();
    let blobs = Bootstrap::new(id.clone(), Some(template), Statics::default(), Duration::from_secs(600));
    let options = service::Options::new(id, shard.to_string());
    let operator = service::start(options, Arc::new(blobs), Arc::new(cluster), clock, &stop).unwrap();

    let refused = "bigfleet_shard_action_execute_outcomes_total{kind=\"Bootstrap\",outcome=\"blob_error\"}";
    eventually("a refused blob", || metric(admin, refused).filter(|n| *n >= 1.0));
    let log = program.logged();
    let line = log.lines().find(|line| line.contains("the operator cannot bootstrap this profile")).unwrap();
    assert!(line.contains("render: line 1, column ") && line.contains("Nope"), "{line}");
    assert!(!log.contains("token:"), "the template's content is in the log:\n{log}");
    eventually("a shortfall", || metric(admin, "bigfleet_shard_shortfalls").filter(|n| *n == 1.0));
    eventually("an Idle machine, and no other", || {
        let (_, page) = get(admin, "/metrics");
        let machines = page.lines().filter(|line| line.starts_with("bigfleet_shard_inventory_machines{"));
        let some: Vec<&str> = machines.filter(|line| !line.ends_with(" 0")).collect();
        (some.len() == 1 && some[0].contains("\"Idle\"") && some[0].ends_with(" 1")).then_some(())
    });
    assert!(operator.session_stats().connected);
    operator.stop().await;
    stops_well(program);
}

/// A broken inventory stops the start, and says where it is broken.
#[test]
fn a_broken_inventory_is_refused_at_start_with_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rack.yaml");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/providers/rack.yaml");
    let text = std::fs::read_to_string(example).unwrap();
    let line = text.lines().position(|line| line.contains("cpu: \"64\"")).unwrap() + 1;
    std::fs::write(&path, text.replacen("cpu: \"64\"", "cpu: lots", 1)).unwrap();
    let inventory = format!("--inventory={}", path.display());
    let refused = run(&["provider", "baremetal", "--addr=127.0.0.1:0", "--metrics-addr=0", &inventory]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let place = format!("{}:{line}: machines[0].resources", path.display());
    assert!(stderr(&refused).contains(&place), "{place} not in {}", stderr(&refused));
}

/// What a crash cut short is cut off and said; damage before the end stops the start and says what to do.
#[tokio::test]
async fn a_torn_log_is_cut_and_said_so_and_a_damaged_one_refuses_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("log"));
    let flag = format!("--state={}", state.display());
    let args = ["provider", "fakecloud", "--addr=127.0.0.1:0", "--metrics-addr=0", "--seed-count=4", &flag];
    let mut program = Program::start(&args, &log);
    let mut client = Client::connect(program.ready("provider"));
    client.create("seed-1").await.unwrap();
    client.settled("seed-1", MachineState::Idle).await;
    program.kill();

    let file = state.join("machines.log");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&whole[..], &whole[8..24]].concat()).unwrap();
    let mut program = Program::start(&args, &log);
    let mut client = Client::connect(program.ready("provider"));
    assert!(program.logged().contains("cut an incomplete write from the end"), "{}", program.logged());
    client.settled("seed-1", MachineState::Idle).await;
    program.kill();

    let mut damaged = std::fs::read(&file).unwrap();
    damaged[60] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let refused = run(&args);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    for words in ["machines.log is damaged at byte", "Restore the file from a backup, or move it away"] {
        assert!(stderr(&refused).contains(words), "{words:?} not in {}", stderr(&refused));
    }
    assert_eq!(std::fs::read(&file).unwrap(), damaged, "nothing was changed");
}
