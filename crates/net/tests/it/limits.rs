//! How many connections a server takes, and how old they become.

use std::time::Instant;

use bigfleet_net::channel::{self, Options};
use bigfleet_net::grpc::Server;
use bigfleet_net::listen;
use bigfleet_net::tls::{Files, Tls};
use prometheus_client::metrics::counter::Counter;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::{LONG, SHORT};

fn connect(addr: std::net::SocketAddr, tls: Option<Tls>) -> HealthClient<Channel> {
    let options = Options { tls, ..Options::default() };
    HealthClient::new(channel::connect_lazy(&addr.to_string(), &options).unwrap())
}

async fn asks(client: &mut HealthClient<Channel>) -> bool {
    client.check(HealthCheckRequest { service: String::new() }).await.is_ok()
}

#[tokio::test]
async fn a_connection_too_many_is_closed_and_counted() {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let refused = Counter::default();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap())
        .connections(1, refused.clone())
        .add_service(health);
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone(), LONG));
    let (mut first, mut second) = (connect(addr, None), connect(addr, None));
    assert!(asks(&mut first).await);
    assert!(!asks(&mut second).await);
    assert!(refused.get() > 0 && asks(&mut first).await);
    // What has ended makes room.
    drop(first);
    let begun = Instant::now();
    while !asks(&mut second).await {
        assert!(begun.elapsed() < LONG, "never let in");
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_under_tls_ends_at_its_age() {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let tls = Tls::load(Files {
        cert: write("tls.crt", leaf.pem()),
        key: write("tls.key", key.serialize_pem()),
        ca: write("ca.crt", authority.pem()),
    })
    .unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::new(listen::bind("127.0.0.1:0").await.unwrap())
        .tls(Some(tls.clone()))
        .connections(1, Counter::default())
        .connection_age(SHORT)
        .add_service(health);
    let (addr, stop) = (server.dial_addr(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone(), LONG));
    let (mut first, mut second) = (connect(addr, Some(tls.clone())), connect(addr, Some(tls)));
    assert!(asks(&mut first).await);
    // There is one place, and the first caller stays: only its age makes room.
    let begun = Instant::now();
    while !asks(&mut second).await {
        assert!(begun.elapsed() < LONG, "the old connection never ends");
        tokio::time::sleep(SHORT / 10).await;
    }
    drop((first, second));
    stop.cancel();
    serving.await.unwrap().unwrap();
}
