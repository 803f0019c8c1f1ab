//! A shard as tests start it, and what it shows to the outside.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1::inspect_needs_response::Frame;
use bigfleet_proto::v1alpha1::shard_read_client::ShardReadClient;
use bigfleet_proto::v1alpha1::{InspectNeedsHeader, InspectNeedsRequest, NeedView};
use bigfleet_shard::options::Options;
use bigfleet_shard::service::{Handle, Shard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;

use crate::shell_operator::LONG;

/// Options on loopback with free ports; cycles and Lists come quickly, and Reclaims at once.
pub(crate) fn options(dir: &Path, provider: impl ToString) -> Options {
    let mut options = Options::new(provider.to_string()).unwrap();
    options.listen = "127.0.0.1:0".parse().unwrap();
    options.metrics_addr = "127.0.0.1:0".parse().unwrap();
    options.data_dir = dir.to_owned();
    options.control.cycle_interval = Duration::from_millis(500);
    options.control.cycle_min_gap = Duration::from_millis(20);
    options.control.policy.reclaim_after = Duration::ZERO;
    options
}

pub(crate) async fn start(options: Options) -> Handle {
    Shard::start(options).await.unwrap()
}

/// Stops it and asserts that this is the whole story.
pub(crate) async fn stop(mut handle: Handle) {
    handle.shutdown();
    tokio::time::timeout(LONG, handle.wait()).await.expect("the shard does not stop").unwrap();
}

pub(crate) async fn ready(handle: &Handle) {
    tokio::time::timeout(LONG, handle.readiness().wait_ready()).await.expect("never ready");
}

/// Waits until `probe` finds what it looks for.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An HTTP GET: the status code and the body.
pub(crate) async fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The sum of all samples of a series whose labels hold every one of `labels`; 0 when there is none.
pub(crate) async fn metric(handle: &Handle, name: &str, labels: &[&str]) -> f64 {
    let (code, text) = get(handle.metrics_addr().expect("no metrics listener"), "/metrics").await;
    assert_eq!(code, 200);
    text.lines()
        .filter(|line| {
            let rest = line.strip_prefix("bigfleet_shard_").and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with([' ', '{']) && labels.iter().all(|l| rest.contains(l)))
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// What InspectNeeds shows.
pub(crate) async fn inspect(
    addr: SocketAddr,
    cluster_id: &str,
    limit: i32,
) -> Result<(InspectNeedsHeader, Vec<NeedView>), Status> {
    let channel = channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap();
    let request = InspectNeedsRequest { cluster_id: cluster_id.into(), limit };
    let mut stream = ShardReadClient::new(channel).inspect_needs(request).await?.into_inner();
    let Some(Frame::Header(header)) = stream.message().await?.and_then(|m| m.frame) else {
        panic!("the header does not come first");
    };
    let mut needs = Vec::new();
    while let Some(message) = stream.message().await? {
        let Some(Frame::Need(need)) = message.frame else { panic!("a second header") };
        needs.push(need);
    }
    Ok((header, needs))
}
