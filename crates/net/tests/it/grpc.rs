//! Serving, stopping and keep-alive of the gRPC server.

use std::time::Duration;

use bigfleet_net::channel::{self, Options};
use bigfleet_net::grpc::{Error, Server, Stopped};
use bigfleet_net::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::fake::Fake;
use crate::{LONG, SHORT};

struct Running {
    addr: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<Stopped, Error>>,
    dropped: UnboundedReceiver<()>,
}

async fn start(grace: Duration) -> Running {
    let (fake, dropped) = Fake::new();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap()).add_service(fake);
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    Running { addr, stop: stop.clone(), serving: tokio::spawn(server.serve(stop, grace)), dropped }
}

async fn watch(addr: std::net::SocketAddr) -> Streaming<HealthCheckResponse> {
    let channel = channel::connect_lazy(&addr.to_string(), &Options::default()).unwrap();
    let request = HealthCheckRequest { service: String::new() };
    timeout(LONG, HealthClient::new(channel).watch(request)).await.unwrap().unwrap().into_inner()
}

#[tokio::test]
async fn a_server_without_open_streams_drains_and_frees_its_port() {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap()).add_service(health);
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone(), LONG));
    let channel = channel::connect_lazy(&addr.to_string(), &Options::default()).unwrap();
    let mut client = HealthClient::new(channel);
    let answer = client.check(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(answer.status, 1, "SERVING");
    stop.cancel();
    assert_eq!(timeout(LONG, serving).await.unwrap().unwrap().unwrap(), Stopped::Drained);
    listen::bind(&addr.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_permanent_stream_is_cut_once_the_grace_has_passed() {
    let mut running = start(SHORT).await;
    let mut stream = watch(running.addr).await;
    running.stop.cancel();
    assert_eq!(timeout(LONG, running.serving).await.unwrap().unwrap().unwrap(), Stopped::Cut);
    timeout(LONG, running.dropped.recv()).await.expect("the server kept the stream").unwrap();
    timeout(LONG, stream.message()).await.expect("the client still waits").unwrap_err();
    listen::bind(&running.addr.to_string()).await.unwrap();
}

/// The control of the test above: within its grace a stream lives, and nothing but the cut ends it.
#[tokio::test]
async fn a_permanent_stream_lives_through_its_grace() {
    let mut running = start(LONG).await;
    let mut stream = watch(running.addr).await;
    running.stop.cancel();
    assert!(timeout(SHORT, &mut running.serving).await.is_err(), "stopped with a stream open");
    assert!(running.dropped.try_recv().is_err(), "the stream was dropped within its grace");
    assert!(timeout(SHORT, stream.message()).await.is_err(), "the client's stream ended within the grace");
    // Dropping the server cuts as well.
    running.serving.abort();
    timeout(LONG, running.dropped.recv()).await.expect("the server kept the stream").unwrap();
    timeout(LONG, stream.message()).await.expect("the client still waits").unwrap_err();
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_given_up() {
    let (fake, _dropped) = Fake::new();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap())
        .add_service(fake)
        .keep_alive(SHORT / 6, SHORT / 6);
    let mut dead = TcpStream::connect(server.dial_addr()).await.unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve(stop.clone(), LONG));
    // The preface and an empty SETTINGS frame, then silence.
    dead.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut got = Vec::new();
    let _ = timeout(LONG, dead.read_to_end(&mut got)).await.expect("the server keeps a dead peer");
    assert!(!got.is_empty(), "the server never spoke");
    stop.cancel();
    timeout(LONG, serving).await.unwrap().unwrap().unwrap();
}
