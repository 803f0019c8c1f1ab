//! The admin listener's pages and its supervision.

use std::net::SocketAddr;
use std::sync::Arc;

use bigfleet_net::admin::{BuildInfo, Pages, Readiness, Server, supervise};
use bigfleet_net::{listen, metrics};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{LONG, SHORT};

const REASON: &str = "first provider reconcile not yet complete";

fn pages() -> Pages {
    let mut registry = Registry::default();
    metrics::counter(&mut registry, "x_cycles", "Cycles").inc_by(3);
    let build = BuildInfo { version: "1.2.3", commit: "abc", role: "shard" };
    build.register(&mut registry);
    Pages { registry: Arc::new(registry), readiness: Readiness::latched(REASON), build }
}

/// The whole answer, lower-case head included.
async fn send(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

async fn get(addr: SocketAddr, path: &str) -> String {
    send(addr, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn pages_answer_as_published() {
    let pages = pages();
    let readiness = pages.readiness.clone();
    let server = Server::bind(&"127.0.0.1:0".parse().unwrap(), pages).await.unwrap();
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone()));

    let metrics = get(addr, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    assert!(metrics.contains("\nx_cycles_total 3\n"), "{metrics}");
    let info = "\nbigfleet_build_info{version=\"1.2.3\",commit=\"abc\",role=\"shard\"} 1\n";
    assert!(metrics.contains(info), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");

    assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
    let waiting = get(addr, "/readyz").await;
    assert!(
        waiting.starts_with("HTTP/1.1 503") && waiting.ends_with(&format!("\r\n\r\n{REASON}\n")),
        "{waiting}"
    );
    readiness.set_ready();
    assert!(get(addr, "/readyz").await.starts_with("HTTP/1.1 200"));

    let build = get(addr, "/buildinfo").await;
    let json: serde_json::Value = serde_json::from_str(build.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(json, serde_json::json!({ "version": "1.2.3", "commit": "abc", "role": "shard" }));

    assert!(get(addr, "/debug/pprof/heap").await.starts_with("HTTP/1.1 404"));
    let post = send(addr, "POST /metrics HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    let huge = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200));
    let refused = send(addr, &huge).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");

    stop.cancel();
    timeout(LONG, serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_taken_port_is_tried_again_until_it_is_free() {
    let taken = listen::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr();
    let stop = CancellationToken::new();
    let mut supervised = supervise(addr.to_string().parse().unwrap(), pages(), stop.clone());
    assert!(timeout(SHORT, supervised.wait_bound()).await.is_err(), "bound a taken port");
    assert_eq!(supervised.local_addr(), None);
    drop(taken);
    assert_eq!(timeout(LONG, supervised.wait_bound()).await.unwrap(), Some(addr));
    assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
    stop.cancel();
    timeout(LONG, supervised.join()).await.unwrap();
    listen::bind(&addr.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_supervised_listener_stops_while_it_waits() {
    let taken = listen::bind("127.0.0.1:0").await.unwrap();
    let stop = CancellationToken::new();
    let mut supervised = supervise(taken.local_addr().to_string().parse().unwrap(), pages(), stop.clone());
    stop.cancel();
    assert_eq!(timeout(LONG, supervised.wait_bound()).await.unwrap(), None);
    timeout(LONG, supervised.join()).await.unwrap();
}
