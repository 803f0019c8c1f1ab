//! The provider client over real gRPC.

use std::time::Duration;

use bigfleet_proto::v1alpha1::Machine;
use bigfleet_shard::io::{CallError, Mutation};
use bigfleet_shard::metrics::Metrics;
use bigfleet_shard::provider_client::{Options, ProviderClient};
use bigfleet_types::{Attribution, ClusterId, MachineId, ShardId, StampedPenalty};
use prometheus_client::registry::Registry;
use tonic::Status;

use crate::shell_fake::{Asked, Fake, Served, idle};
use crate::shell_logs;

fn options(addr: impl ToString) -> Options {
    Options {
        addr: addr.to_string(),
        shard: ShardId::trusted("shard-7"),
        epoch: 77,
        max_list_bytes: bigfleet_net::limits::LIST_BYTES,
    }
}

fn client(options: Options) -> (ProviderClient, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    (ProviderClient::new(options, metrics).unwrap(), registry)
}

fn text(registry: &Registry) -> String {
    let mut out = String::new();
    prometheus_client::encoding::text::encode(&mut out, registry).unwrap();
    out
}

async fn served(machines: Vec<Machine>) -> Served {
    Fake::with(machines).serve("127.0.0.1:0").await
}

fn id(text: &str) -> MachineId {
    MachineId::trusted(text)
}

#[tokio::test]
async fn every_attempt_carries_a_fresh_token_and_all_its_fields() {
    let served = served(vec![idle("a"), idle("b")]).await;
    let (client, _registry) = client(options(served.addr));
    let cluster = ClusterId::trusted("c-1");
    let attribution = Attribution {
        priority: Some(1000),
        reclamation: Some(StampedPenalty::Infinite),
        ..Attribution::default()
    };
    served.fake.refuse(Status::internal("not today"));
    let machine = id("a");
    let create = || client.mutate(&machine, Mutation::Create);
    assert_eq!(create().await.unwrap_err(), CallError::Rejected("INTERNAL: not today".into()));
    let acked = create().await.unwrap();
    assert_eq!((acked.operation_id.as_str(), acked.machine.id), ("op-2", Some(id("a"))));
    let configure = Mutation::Configure { cluster, blob: bytes::Bytes::from("secret").into(), attribution };
    client.mutate(&id("b"), configure).await.unwrap();
    client.mutate(&id("b"), Mutation::Drain { grace: Duration::from_millis(90_999) }).await.unwrap();
    client.mutate(&id("a"), Mutation::Delete).await.unwrap();

    let asked = served.fake.asked();
    let tokens: Vec<_> = asked.iter().map(Asked::token).collect();
    let want: Vec<_> = (1..=5).map(|n| ("shard-7".to_owned(), 77, n)).collect();
    assert_eq!(tokens, want, "a number was used twice, or left out");
    let Asked::Configure(configure) = &asked[2] else { panic!("{asked:?}") };
    assert_eq!((configure.cluster_id.as_str(), &configure.bootstrap_blob[..]), ("c-1", &b"secret"[..]));
    assert_eq!(configure.shard_metadata["bigfleet.lucy.sh/assigned-priority"], "1000");
    assert_eq!(configure.shard_metadata["bigfleet.lucy.sh/assigned-reclamation-penalty-dollars"], "+Inf");
    let Asked::Drain(drain) = &asked[3] else { panic!("{asked:?}") };
    assert_eq!((drain.machine_id.as_str(), drain.grace_period_seconds), ("b", 90));
}

#[tokio::test]
async fn answers_are_sorted_and_never_asked_for_twice() {
    let served = served(vec![idle("a")]).await;
    let (client, registry) = client(options(served.addr));
    for (status, want) in [
        (
            Status::failed_precondition("stale token"),
            CallError::Fenced("FAILED_PRECONDITION: stale token".into()),
        ),
        (Status::not_found("x"), CallError::NotFound),
        (Status::unimplemented("x"), CallError::Unimplemented),
        (Status::resource_exhausted("out"), CallError::Exhausted("RESOURCE_EXHAUSTED: out".into())),
        (Status::unauthenticated("who"), CallError::Denied("UNAUTHENTICATED: who".into())),
        (
            Status::unavailable("later"),
            CallError::Ambiguous { deadline: false, message: "UNAVAILABLE: later".into() },
        ),
    ] {
        let before = served.fake.asked().len();
        served.fake.refuse(status.clone());
        assert_eq!(client.mutate(&id("a"), Mutation::Create).await.unwrap_err(), want, "{status:?}");
        assert_eq!(served.fake.asked().len(), before + 1, "{status:?} was tried again");
    }
    assert_eq!(client.get(&id("ghost")).await.unwrap_err(), CallError::NotFound);
    let metrics = text(&registry);
    for series in ["code=\"FAILED_PRECONDITION\",rpc=\"Create\"", "code=\"NOT_FOUND\",rpc=\"Get\""] {
        let (code, rpc) = series.split_once(',').unwrap();
        let found = metrics.lines().any(|l| {
            l.starts_with("bigfleet_shard_provider_rpc_duration_seconds_count")
                && l.contains(code)
                && l.contains(rpc)
                && l.ends_with(" 1")
        });
        assert!(found, "{series} is missing in\n{metrics}");
    }
}

#[tokio::test]
async fn records_pass_the_gate_one_by_one() {
    let mut nan = idle("nan");
    nan.price_per_hour = f64::NAN;
    let mut again = idle("a");
    again.zone = "zone-b".into();
    let served = served(vec![idle("a"), nan, Machine::default(), again]).await;
    let (client, _registry) = client(options(served.addr));
    let listing = client.list(Box::default()).await.1.unwrap();
    let listed = &listing.changed;
    let seen: Vec<_> = listed
        .iter()
        .map(|r| (r.id.as_ref().map(ToString::to_string), r.record.as_ref().err().map(|e| e.reason)))
        .collect();
    assert_eq!(
        seen,
        [(Some("nan".to_owned()), Some("price")), (None, Some("structural")), (Some("a".to_owned()), None),]
    );
    assert_eq!(&*listed[2].record.as_ref().unwrap().zone, "zone-b", "the last record of an id counts");
    let refused = listed[0].record.as_ref().unwrap_err();
    assert!(refused.message.starts_with("machines[1].price_per_hour: "), "{refused:?}");
    assert_eq!(listing.violations, ["duplicate_id"]);
    // An acknowledgement without a machine is refused, not an error of the call.
    let acked = client.mutate(&id("ghost"), Mutation::Create).await.unwrap();
    assert_eq!(acked.machine.record.unwrap_err().reason, "structural");
}

#[tokio::test]
async fn lists_have_a_limit_of_their_own() {
    // 32 MiB: above the 16 MiB of every other call.
    let label = "x".repeat(1 << 20);
    let machines = (0..32).map(|n| {
        let mut machine = idle(&format!("m-{n}"));
        machine.labels = [("l".to_owned(), label.clone())].into();
        machine
    });
    let served = served(machines.collect()).await;
    assert_eq!(client(options(served.addr)).0.list(Box::default()).await.1.unwrap().changed.len(), 32);
    let small = Options { max_list_bytes: 1 << 20, ..options(served.addr) };
    let error = client(small).0.list(Box::default()).await.1.unwrap_err();
    let CallError::Rejected(message) = &error else { panic!("{error:?}") };
    assert!(message.contains("too large") && message.contains("1048576"), "{message}");
}

#[tokio::test]
async fn a_provider_that_is_away_is_ambiguous_and_found_again() {
    shell_logs::keep();
    // A port that was free a moment ago.
    let addr = bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap().dial_addr();
    let (client, _registry) = client(options(addr));
    for _ in 0..3 {
        let error = client.list(Box::default()).await.1.unwrap_err();
        assert!(matches!(error, CallError::Ambiguous { deadline: false, .. }), "{error:?}");
    }
    let addr = addr.to_string();
    let complaints = shell_logs::with(&["the provider cannot be reached", &addr]);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("refused"), "{complaints:?}");
    let _served = Fake::with(vec![idle("a")]).serve(&addr).await;
    let begun = std::time::Instant::now();
    while client.list(Box::default()).await.1.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never found again");
    }
    assert_eq!(shell_logs::with(&["the provider answers again", &addr]).len(), 1);
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_at_once() {
    let mut registry = Registry::default();
    let error = ProviderClient::new(options("nowhere"), Metrics::register(&mut registry)).unwrap_err();
    assert!(error.to_string().contains("\"nowhere\""), "{error}");
}

#[tokio::test]
async fn a_call_that_is_never_answered_meets_its_own_deadline() {
    let served = served(vec![idle("a")]).await;
    served.fake.fall_silent();
    let (client, _registry) = client(options(served.addr));
    // Connected before the clock is taken over, so that the deadline is all that is left to wait for.
    client.get(&id("a")).await.unwrap();
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let error = client.mutate(&id("a"), Mutation::Delete).await.unwrap_err();
    assert!(matches!(error, CallError::Ambiguous { deadline: true, .. }), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 30);
}
