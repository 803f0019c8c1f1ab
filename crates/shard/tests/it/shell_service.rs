//! Start, readiness, readers and the end of a shard.

use std::fs;
use std::time::{Duration, Instant};

use bigfleet_shard::service::{Shard, StartError};
use tonic::Code;

use crate::shell_fake::{Fake, idle};
use crate::shell_logs;
use crate::shell_operator::Operator;
use crate::shell_shard::{eventually, get, inspect, options, ready, start, stop};

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_unready_until_its_first_list_and_reads_say_so() {
    shell_logs::keep();
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens there yet.
    let provider = bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap().dial_addr().to_string();
    let mut handle = start(options(dir.path(), &provider)).await;
    let admin = handle.metrics_addr().unwrap();
    assert_eq!(get(admin, "/healthz").await.0, 200);
    let complained = async || (!shell_logs::with(&["cannot be reached", &provider]).is_empty()).then_some(());
    eventually("a complaint that names the provider", complained).await;
    assert_eq!(get(admin, "/readyz").await, (503, "first provider reconcile not yet complete\n".into()));
    let (header, needs) = inspect(handle.grpc_addr(), "", 0).await.unwrap();
    assert_eq!((header.cycle, header.computed_at_unix_nanos, header.total_needs), (0, 0, 0));
    assert!(needs.is_empty());
    let unfinished = tokio::time::timeout(Duration::from_millis(10), handle.wait()).await;
    assert!(unfinished.is_err(), "it ended: {unfinished:?}");

    let _provider = Fake::with(vec![idle("m-1")]).serve(&provider).await;
    ready(&handle).await;
    assert_eq!(get(admin, "/readyz").await, (200, "ok\n".into()));
    let epoch = format!("bigfleet_shard_epoch {}", handle.epoch());
    assert!(get(admin, "/metrics").await.1.lines().any(|line| line == epoch));
    stop(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cycles_and_their_phases_are_timed() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    let handle = start(options(dir.path(), provider.addr)).await;
    ready(&handle).await;
    let admin = handle.metrics_addr().unwrap();
    let timed = async || {
        let page = get(admin, "/metrics").await.1;
        let counted = |series: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(series));
            line.and_then(|rest| rest.trim().parse::<u64>().ok()).is_some_and(|n| n > 0)
        };
        let phase =
            |name: &str| format!("bigfleet_shard_cycle_phase_duration_seconds_count{{phase=\"{name}\"}}");
        let phases = ["reconcile", "phase1", "emit", "execute"];
        let all = counted("bigfleet_shard_cycle_duration_seconds_count")
            && phases.iter().all(|name| counted(&phase(name)));
        all.then_some(())
    };
    eventually("the timings of a cycle", timed).await;
    stop(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_limit_and_a_bad_cluster_are_invalid_arguments() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    let handle = start(options(dir.path(), provider.addr)).await;
    for (cluster, limit, part) in [("", -1, "limit"), ("a b", 0, "cluster_id")] {
        let status = inspect(handle.grpc_addr(), cluster, limit).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().starts_with(part), "{status:?}");
    }
    stop(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_shard_from_starting_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let good = options(dir.path(), "127.0.0.1:1");

    let mut bad = good.clone();
    bad.control.reclaim_cap_fraction = 1.5;
    let error = Shard::start(bad).await.unwrap_err();
    assert_eq!(error.to_string(), "--reclaim-cap-fraction is 1.5: it takes 0 (no cap) to 1");

    let mut bad = good.clone();
    bad.provider_addr = "provider".into();
    let error = Shard::start(bad).await.unwrap_err();
    assert!(error.to_string().starts_with("--provider-addr: \"provider\""), "{error}");

    let mut bad = good.clone();
    bad.audit_log = Some(dir.path().join("missing/audit"));
    assert!(matches!(Shard::start(bad).await.unwrap_err(), StartError::Audit(_)));

    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut bad = good.clone();
    bad.listen = taken.local_addr().unwrap().to_string().parse().unwrap();
    let error = Shard::start(bad).await.unwrap_err();
    assert!(error.to_string().starts_with("--listen: cannot listen on 127.0.0.1"), "{error}");

    // None of these kept the lock.
    let handle = start(good.clone()).await;
    assert!(matches!(Shard::start(good).await.unwrap_err(), StartError::Epoch(_)));
    stop(handle).await;

    fs::write(dir.path().join("epoch"), "0x10").unwrap();
    let error = Shard::start(options(dir.path(), "127.0.0.1:1")).await.unwrap_err();
    assert!(matches!(error, StartError::Epoch(_)) && error.to_string().contains("0x10"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_takes_a_higher_epoch_and_a_free_directory() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    let first = start(options(dir.path(), provider.addr)).await;
    let epoch = first.epoch();
    stop(first).await;
    let second = start(options(dir.path(), provider.addr)).await;
    assert!(second.epoch() > epoch, "{} after {epoch}", second.epoch());
    ready(&second).await;
    stop(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_metrics_port_keeps_nobody_from_working() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = options(dir.path(), provider.addr);
    options.metrics_addr = taken.local_addr().unwrap().to_string().parse().unwrap();
    let handle = start(options).await;
    assert_eq!(handle.metrics_addr(), None);
    ready(&handle).await;
    drop(taken);
    eventually("the metrics port", async || handle.metrics_addr()).await;
    stop(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_ends_sessions_with_unavailable_and_in_time() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    let handle = start(options(dir.path(), provider.addr)).await;
    ready(&handle).await;
    let mut streams = Vec::new();
    for n in 0..20 {
        streams.push(Operator::hello(handle.grpc_addr(), &format!("c-{n}")).await);
    }
    let begun = Instant::now();
    stop(handle).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    for stream in streams {
        let (code, message) = stream.end().await;
        assert_eq!((code, message.as_str()), (Code::Unavailable, "the shard is stopping; connect again"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_handle_stops_the_shard() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Fake::default().serve("127.0.0.1:0").await);
    drop(start(options(dir.path(), provider.addr)).await);
    let again = async || Shard::start(options(dir.path(), provider.addr)).await.ok();
    stop(eventually("the data directory", again).await).await;
}
