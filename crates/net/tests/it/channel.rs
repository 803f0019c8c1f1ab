//! Client channels against servers that are late, refusing or dead.

use std::sync::atomic::Ordering;

use bigfleet_net::channel::{self, Options};
use bigfleet_net::grpc::Server;
use bigfleet_net::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::fake::Fake;
use crate::{LONG, SHORT};

fn request() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn a_channel_waits_for_no_server_and_finds_a_late_one() {
    let listener = listen::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.dial_addr().to_string();
    drop(listener);
    let mut client = HealthClient::new(channel::connect_lazy(&addr, &Options::default()).unwrap());
    let refused = timeout(LONG, client.check(request())).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);

    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::new(listen::bind(&addr).await.unwrap()).add_service(health);
    tokio::spawn(server.serve(CancellationToken::new(), LONG));
    timeout(LONG, client.check(request())).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_request_is_sent_once() {
    let (fake, _dropped) = Fake::new();
    let calls = fake.calls.clone();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap()).add_service(fake);
    let addr = server.dial_addr().to_string();
    tokio::spawn(server.serve(CancellationToken::new(), LONG));
    let mut client = HealthClient::new(channel::connect_lazy(&addr, &Options::default()).unwrap());
    let refused = timeout(LONG, client.check(request())).await.unwrap().unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "not now"));
    tokio::time::sleep(SHORT).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_answers_no_ping_fails_the_call() {
    let socket = listen::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.dial_addr().to_string();
    let socket = socket.into_socket();
    tokio::spawn(async move {
        let (mut stream, _) = socket.accept().await.unwrap();
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut sink = [0; 1024];
        // Reads, so that the client can write, and never answers.
        while stream.read(&mut sink).await.is_ok_and(|n| n > 0) {}
    });
    let options =
        Options { keep_alive_interval: SHORT / 6, keep_alive_timeout: SHORT / 6, ..Options::default() };
    let mut client = HealthClient::new(channel::connect_lazy(&addr, &options).unwrap());
    timeout(LONG, client.check(request())).await.expect("waits for a dead server").unwrap_err();
}
