//! Leader election, and the operator that depends on it, against the API server in this process.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_kubernetes::client::{Limits, calls, limited};
use bigfleet_kubernetes::lease::{Elector, Options};
use bigfleet_kubernetes::{operator, shell};
use bigfleet_net::admin::Addr;
use bigfleet_operator::service;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_types::{Clock, ClusterId, UnixNanos};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::fake_api::{Fake, status};

const PATH: &str = "namespaces/sys/leases/op";
const S: Duration = Duration::from_secs(1);

/// Tokio's clock, which tests pause.
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> UnixNanos {
        UnixNanos(1_700_000_000_000_000_000).after(self.0.elapsed())
    }
}

fn elector(fake: &Fake, identity: &str) -> Elector {
    Elector::new(fake.client(), Options::new("sys", "op", identity), Arc::new(Paused(Instant::now())))
}

fn holder(fake: &Fake) -> String {
    fake.get(PATH).unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_a_release_hands_over_at_once() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let first = elector(&fake, "a").acquire(&stop, || panic!("nobody else")).await.unwrap();
    assert_eq!((holder(&fake), first.transitions()), ("a".to_owned(), 0));
    let spec = &fake.get(PATH).unwrap()["spec"];
    assert_eq!(spec["leaseDurationSeconds"], 15);
    let second = elector(&fake, "b");
    let end = stop.clone();
    let waiting = tokio::spawn(async move {
        let mut stood_by = 0;
        let won = second.acquire(&end, || stood_by += 1).await;
        (won, stood_by)
    });
    tokio::time::sleep(60 * S).await;
    assert!(!waiting.is_finished() && !first.lost().is_cancelled());
    assert_eq!(holder(&fake), "a");
    let released = Instant::now();
    first.release().await;
    let (won, stood_by) = waiting.await.unwrap();
    let won = won.unwrap();
    assert!(released.elapsed() <= 3 * S, "{:?}", released.elapsed());
    assert!(stood_by > 20, "{stood_by}");
    assert_eq!((holder(&fake), won.transitions()), ("b".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_when_its_lease_has_stood_still() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    // A clock that is years ahead, or behind, decides nothing.
    for stamp in ["2099-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z"] {
        let spec = json!({ "holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": stamp });
        fake.put(
            PATH,
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec }),
            false,
        );
        let began = Instant::now();
        let won = elector(&fake, "b").acquire(&stop, || {}).await.unwrap();
        let took = began.elapsed();
        assert!((15 * S..=18 * S).contains(&took), "{took:?}");
        won.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_another_may_follow() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let first = elector(&fake, "a").acquire(&stop, || {}).await.unwrap();
    fake.answer("PUT", "leases", 500, status(500, "InternalError", "no"), usize::MAX);
    let began = Instant::now();
    first.lost().cancelled().await;
    let took = began.elapsed();
    assert!((8 * S..=10 * S + S / 10).contains(&took), "{took:?}");
    // One failure or two do not matter.
    fake.forget_answers();
    fake.remove(PATH, false);
    let again = elector(&fake, "a").acquire(&stop, || {}).await.unwrap();
    fake.answer("PUT", "leases", 500, status(500, "InternalError", "no"), 2);
    assert!(timeout(60 * S, again.lost().cancelled()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_is_lost_at_once() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let first = elector(&fake, "a").acquire(&stop, || {}).await.unwrap();
    let mut lease = fake.get(PATH).unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    fake.put(PATH, lease, false);
    timeout(3 * S, first.lost().cancelled()).await.unwrap();
    first.release().await;
    assert_eq!(holder(&fake), "thief");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_write_at_once_one_wins() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let (elector, stop) = (elector(&fake, name), stop.clone());
        all.push(tokio::spawn(async move { elector.acquire(&stop, || {}).await }));
    }
    tokio::time::sleep(60 * S).await;
    assert_eq!(all.iter().filter(|task| task.is_finished()).count(), 1);
    stop.cancel();
    let mut winners = Vec::new();
    for task in all {
        winners.extend(task.await.unwrap());
    }
    assert_eq!(winners.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_in_time_and_is_counted() {
    let silent = axum::Router::new().fallback(std::future::pending::<axum::response::Response>);
    let mut registry = Registry::default();
    let counter = calls(&mut registry, "x");
    let limits = Limits { timeout: 5 * S, ..Limits::default() };
    let client = limited(kube::Client::new(silent, "default"), limits, counter);
    let began = Instant::now();
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
    let error = nodes.list(&kube::api::ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("has not answered list nodes within 5 s"), "{error}");
    assert!(began.elapsed() < 6 * S);
    let text = crate::shell_watch::metrics(&registry);
    assert!(
        text.contains("x_api_requests_total{verb=\"list\",resource=\"nodes\",code=\"timeout\"} 1"),
        "{text}"
    );
}

fn options() -> operator::Options {
    let cluster = ClusterId::parse("c1").unwrap();
    let statics = Statics::default();
    operator::Options {
        // Nobody listens there: an operator without a shard still reads its cluster.
        service: service::Options::new(cluster.clone(), "127.0.0.1:1"),
        limits: Limits::default(),
        lease: Some(Options { retry: S / 10, ..Options::new("sys", "op", "me") }),
        shell: shell::Options::default(),
        metrics_addr: Addr::On("127.0.0.1:0".parse().unwrap()),
        bootstrap: Bootstrap::new(cluster, None, statics, 600 * S),
    }
}

async fn page(addr: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Real time: sockets are real.
#[tokio::test]
async fn an_operator_is_ready_without_a_shard_and_gives_its_lease_back() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let running =
        tokio::spawn(operator::run(fake.client(), options(), |addr| tell.send(addr).unwrap(), stop.clone()));
    let addr = told.await.unwrap();
    let patience = Instant::now() + 60 * S;
    while !page(addr, "/readyz").await.starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < patience, "{}", page(addr, "/readyz").await);
        tokio::time::sleep(S / 50).await;
    }
    let metrics = page(addr, "/metrics").await;
    for line in [
        "bigfleet_operator_leader 1",
        "bigfleet_operator_session_up 0",
        "bigfleet_operator_crs{phase=\"Pending\"} 0",
        "bigfleet_operator_crs{phase=\"Acknowledged\"} 0",
        "bigfleet_operator_session_age_seconds 0.0",
        "bigfleet_operator_rollup_duration_seconds_count 0",
        "bigfleet_operator_rollup_phase_duration_seconds_count{phase=\"list\"} 0",
        "bigfleet_operator_rollup_phase_duration_seconds_count{phase=\"build\"} 0",
        "bigfleet_operator_rollup_phase_duration_seconds_count{phase=\"enqueue\"} 0",
        "bigfleet_operator_acknowledge_duration_seconds_count 0",
        "bigfleet_operator_acknowledged_total 0",
        "bigfleet_operator_outbox_dropped_total 0",
        "bigfleet_operator_node_state_update_duration_seconds_count{phase=\"Ready\"} 0",
        "bigfleet_operator_upcoming_node_writes_total{op=\"create\",outcome=\"success\"} 0",
        "bigfleet_operator_upcoming_node_writes_total{op=\"status_update\",outcome=\"noop\"} 0",
        "bigfleet_operator_dispatch_inflight 0",
        "bigfleet_operator_bootstrap_duration_seconds_count 0",
        "bigfleet_operator_session_reconnects_total{reason=\"replaced\"} 0",
        "bigfleet_operator_cache_synced{kind=\"Node\"} 1",
        "bigfleet_operator_api_requests_total{verb=\"create\",resource=\"leases\",code=\"201\"} 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    assert_eq!(holder(&fake), "me");
    stop.cancel();
    timeout(10 * S, running).await.unwrap().unwrap().unwrap();
    assert_eq!(holder(&fake), "");
    // Without a session nothing but the lease was written.
    for verb in ["POST", "PUT", "PATCH", "DELETE"] {
        assert_eq!(fake.calls(verb, "").len(), fake.calls(verb, "leases").len(), "{verb}");
    }
}

#[tokio::test]
async fn drill20_an_operator_that_loses_its_lease_ends_with_an_error() {
    let fake = Fake::default();
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator::run(fake.client(), options(), |_| {}, stop.clone()));
    while fake.calls("watch", "capacityrequests").is_empty() {
        assert!(!running.is_finished());
        tokio::time::sleep(S / 50).await;
    }
    let mut lease = fake.get(PATH).unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    fake.put(PATH, lease, false);
    let error = timeout(30 * S, running).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("the lease sys/op was lost"), "{error}");
    assert_eq!(holder(&fake), "thief");
}
