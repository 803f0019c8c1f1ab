//! Health, metrics, readiness, refusal to start, reconciliation with a back end that has a mind of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bigfleet_provider_kit::backend::{Backend, Created, Error, Operation};
use bigfleet_provider_kit::fakecloud::{FakeCloud, Profile};
use bigfleet_provider_kit::{Blob, Instance, MemStore, Options, Provider, StartError, Timeouts};
use bigfleet_types::MachineState::{Failed, Idle, Speculative};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use crate::fixture::{Client, eventually, number, options, serve};

#[tokio::test]
async fn health_metrics_and_pages_are_served() {
    let mut cloud = serve(
        FakeCloud::new(options()).unwrap().kit(|kit| kit.metrics_addr = "127.0.0.1:0".parse().unwrap()),
    )
    .await;
    let channel = bigfleet_net::channel::connect_lazy(
        &cloud.handle.dial_addr().to_string(),
        &bigfleet_net::channel::Options::default(),
    )
    .unwrap();
    let service = "bigfleet.v1alpha1.CapacityProvider".to_owned();
    let health = HealthClient::new(channel).check(HealthCheckRequest { service }).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    cloud.client.create("ghost").await.unwrap_err();
    let addr = cloud.handle.kit().admin_addr().await.unwrap();
    let page = |path: &'static str| async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(page("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(page("/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = page("/metrics").await;
    let line = "bigfleet_fakecloud_grpc_requests_total{method=\"Create\",code=\"NOT_FOUND\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    cloud.stop().await;
}

/// A back end whose machines the test moves.
struct Moody {
    instances: Mutex<Vec<Instance>>,
}

#[async_trait]
impl Backend for Moody {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        let described = self.instances.lock().unwrap().clone();
        assert!(described.iter().all(|i| i.instance_type != "panic"), "on purpose");
        Ok(described)
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        match operation.id.as_str() {
            "nameless" => Ok(Created::host("", "")),
            "panics" => panic!("on purpose"),
            "slow" => std::future::pending().await,
            "no-quota" => Err(Error::untouched("no quota left")),
            id => Ok(Created::host("moody", id)),
        }
    }

    async fn configure(&self, _operation: Operation<'_>, _blob: &Blob) -> Result<(), Error> {
        Ok(())
    }

    async fn drain(&self, _operation: Operation<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn in_stock(&self, machine: &bigfleet_proto::v1alpha1::Machine) -> Result<(), String> {
        assert_ne!(machine.id, "panics-early");
        Ok(())
    }

    async fn confirm_node_ready(&self, operation: Operation<'_>) -> Result<(), Error> {
        Err(Error::new(format!("{} never became Ready", operation.id)))
    }
}

fn slot(id: &str) -> Instance {
    Instance { id: id.into(), host: None, ..Profile::Dev.instances().remove(0) }
}

fn host(id: &str) -> Instance {
    Instance { id: id.into(), ..Profile::Dev.instances().remove(0) }
}

async fn start(instances: Vec<Instance>) -> (Arc<Moody>, Result<bigfleet_provider_kit::Handle, StartError>) {
    let backend = Arc::new(Moody { instances: Mutex::new(instances) });
    let kit = Options {
        reconcile_interval: None,
        timeouts: Timeouts { create: Duration::from_millis(200), ..Timeouts::default() },
        ..Options::default()
    };
    let listener = bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap();
    let handle =
        Provider::start(listener, Arc::clone(&backend) as Arc<dyn Backend>, kit, Box::new(MemStore)).await;
    (backend, handle)
}

#[tokio::test]
async fn work_that_goes_wrong_fails_the_machine_and_says_why() {
    let (_, handle) = start(["nameless", "panics", "panics-early", "slow", "fine"].map(slot).to_vec()).await;
    let handle = handle.unwrap();
    let client = Client::connect(&handle.dial_addr().to_string(), "s", 1);
    for (id, words) in [("nameless", "without a name"), ("panics", "panicked"), ("slow", "timeout")] {
        client.create(id).await.unwrap();
        let failed = eventually(id, async || {
            Some(client.get(id).await.unwrap()).filter(|m| m.state == number(Failed))
        })
        .await;
        assert!(failed.last_error.contains(words), "{}", failed.last_error);
        assert_eq!(failed.host, None);
    }
    // A panic within a call is an answer like any other, and the next calls are served.
    assert_eq!(client.create("panics-early").await.unwrap_err().code(), tonic::Code::Internal);
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &handle.pages().registry).unwrap();
    assert!(metrics.contains("bigfleet_provider_panics_total 2\n"), "{metrics}");
    client.create("fine").await.unwrap();
    eventually("fine", async || (client.get("fine").await.unwrap().state == number(Idle)).then_some(()))
        .await;
    client.configure("fine", "a").await.unwrap();
    let failed = eventually("not ready", async || {
        Some(client.get("fine").await.unwrap()).filter(|m| m.state == number(Failed))
    })
    .await;
    assert_eq!(failed.last_error, "fine never became Ready");
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_impossible_machine_stops_the_start_but_not_a_later_look() {
    let broken = Instance { price_per_hour: -1.0, ..slot("broken") };
    let (_, refused) = start(vec![broken.clone()]).await;
    assert!(refused.unwrap_err().to_string().contains("price_per_hour"));
    let (_, refused) = start(vec![slot("twice"), slot("twice")]).await;
    assert!(refused.unwrap_err().to_string().contains("described twice"));

    let (backend, handle) =
        start(vec![slot("slot"), slot("gone"), host("host"), host("lost"), slot("broken")]).await;
    let handle = handle.unwrap();
    let provider = handle.provider();
    let revision = provider.revision();
    assert_eq!(provider.reconcile().await.unwrap().changed, 0);
    assert_eq!(provider.revision(), revision, "nothing new, nothing moves");
    let cheaper = Instance { price_per_hour: 0.5, ..slot("slot") };
    *backend.instances.lock().unwrap() = vec![cheaper, host("host"), slot("new"), broken];
    let look = provider.reconcile().await.unwrap();
    assert_eq!((look.changed, look.invalid), (4, 1));
    let state = |id: &str| provider.machine(id).map(|m| m.state);
    assert_eq!(state("gone"), None, "a slot goes");
    assert_eq!(state("lost"), Some(number(Failed)), "a host fails");
    assert!(provider.machine("lost").unwrap().last_error.contains("host gone"));
    assert_eq!(state("new"), Some(number(Speculative)));
    assert_eq!(state("host"), Some(number(Idle)));
    assert_eq!(state("broken"), Some(number(Speculative)), "invalid is not gone");
    assert!((provider.machine("slot").unwrap().price_per_hour - 0.5).abs() < 1e-9);
    // A host that the back end still names, but without a host behind it.
    *backend.instances.lock().unwrap() = vec![slot("slot"), slot("host"), slot("new"), slot("broken")];
    provider.reconcile().await.unwrap();
    assert_eq!(state("host"), Some(number(Failed)));
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_back_end_that_panics_while_it_is_asked_is_asked_again() {
    let (backend, handle) = start(vec![slot("a")]).await;
    let handle = handle.unwrap();
    let provider = handle.provider();
    *backend.instances.lock().unwrap() = vec![Instance { instance_type: "panic".into(), ..slot("a") }];
    assert!(provider.reconcile().await.unwrap_err().contains("panicked"));
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &handle.pages().registry).unwrap();
    assert!(metrics.contains("bigfleet_provider_panics_total 1\n"), "{metrics}");
    *backend.instances.lock().unwrap() = vec![slot("a"), slot("b")];
    assert_eq!(provider.reconcile().await.unwrap().changed, 1);
    handle.shutdown().await.unwrap();

    let (_, refused) = start(vec![Instance { instance_type: "panic".into(), ..slot("a") }]).await;
    assert!(refused.unwrap_err().to_string().contains("panicked"), "at the start it is fatal");
}

#[tokio::test]
async fn a_create_that_made_nothing_is_repaired_by_the_next_look_and_no_other() {
    let (backend, handle) = start(["no-quota", "nameless"].map(slot).to_vec()).await;
    let handle = handle.unwrap();
    let (provider, client) = (handle.provider(), Client::connect(&handle.dial_addr().to_string(), "s", 1));
    for id in ["no-quota", "nameless"] {
        client.create(id).await.unwrap();
        eventually(id, async || (client.get(id).await.unwrap().state == number(Failed)).then_some(())).await;
    }
    assert_eq!(client.get("no-quota").await.unwrap().last_error, "no quota left");
    *backend.instances.lock().unwrap() = vec![slot("nameless")];
    provider.reconcile().await.unwrap();
    assert_eq!(client.get("no-quota").await.unwrap().state, number(Failed), "the back end does not show it");
    *backend.instances.lock().unwrap() = ["no-quota", "nameless"].map(slot).to_vec();
    assert_eq!(provider.reconcile().await.unwrap().changed, 1);
    let repaired = client.get("no-quota").await.unwrap();
    assert_eq!((repaired.state, repaired.last_error.as_str()), (number(Speculative), ""));
    assert_eq!(client.get("nameless").await.unwrap().state, number(Failed));
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_schema_is_told_by_flag_only() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
    for on in [true, false] {
        let cloud = serve(FakeCloud::new(options()).unwrap().kit(|kit| kit.reflection = on)).await;
        let addr = cloud.handle.dial_addr().to_string();
        let channel =
            bigfleet_net::channel::connect_lazy(&addr, &bigfleet_net::channel::Options::default()).unwrap();
        let ask = ServerReflectionRequest {
            message_request: Some(MessageRequest::FileContainingSymbol(
                "bigfleet.v1alpha1.CapacityProvider".into(),
            )),
            ..ServerReflectionRequest::default()
        };
        let answer =
            ServerReflectionClient::new(channel).server_reflection_info(futures::stream::iter([ask])).await;
        if on {
            let first: ServerReflectionResponse =
                answer.unwrap().into_inner().message().await.unwrap().unwrap();
            assert!(matches!(first.message_response, Some(MessageResponse::FileDescriptorResponse(_))));
        } else {
            assert_eq!(answer.unwrap_err().code(), tonic::Code::Unimplemented);
        }
        cloud.stop().await;
    }
}
