//! The order in which a call is judged, fencing, repeats and the four transitions.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_provider_kit::Kind;
use bigfleet_provider_kit::fakecloud::{ClassKey, FakeCloud};
use bigfleet_types::MachineState::{self, Configured, Creating, Draining, Failed, Idle, Speculative};
use tonic::Code;

use crate::fixture::{Client, Cloud, code, metadata, number, options, start};

#[tokio::test]
async fn a_machine_goes_through_its_whole_life() {
    let cloud = start(options()).await;
    let client = &cloud.client;

    let created = client.create("spec-0").await.unwrap();
    assert_eq!(created.machine.unwrap().state, number(Creating));
    let idle = cloud.settled("spec-0", Idle).await;
    assert_eq!(idle.host.unwrap().provider, "fakecloud");

    cloud.control().stage(Kind::Configure, true);
    let ack = client.configure("spec-0", "cluster-a").await.unwrap();
    for machine in [ack.machine.unwrap(), client.get("spec-0").await.unwrap()] {
        assert_eq!(machine.state, number(MachineState::Configuring));
        assert_eq!((machine.cluster.as_str(), machine.shard_metadata), ("cluster-a", metadata()));
    }
    cloud.control().stage(Kind::Configure, false);
    let configured = cloud.settled("spec-0", Configured).await;
    assert_eq!((configured.cluster.as_str(), configured.shard_metadata), ("cluster-a", metadata()));

    let drained = client.drain("spec-0", 0).await.unwrap();
    let machine = drained.machine.unwrap();
    assert_eq!((machine.state, machine.cluster.as_str()), (number(Draining), "cluster-a"));
    assert_eq!(machine.shard_metadata, metadata());
    let idle = cloud.settled("spec-0", Idle).await;
    assert_eq!((idle.cluster.as_str(), idle.shard_metadata.len()), ("", 0));
    assert!(idle.host.is_some());

    client.delete("spec-0").await.unwrap();
    let slot = cloud.settled("spec-0", Speculative).await;
    assert_eq!((slot.host, slot.last_error.as_str()), (None, ""));
    let actions = cloud.control().actions("spec-0");
    assert_eq!((actions.create, actions.configure, actions.drain, actions.delete), (1, 1, 1, 1));
    cloud.stop().await;
}

/// Shape before fence, fence before existence, existence before repeat, repeat before position.
#[tokio::test]
async fn calls_are_judged_in_order() {
    let cloud = start(options()).await;
    let client = &cloud.client;
    client.configure("idle-0", "a").await.unwrap();
    cloud.settled("idle-0", Configured).await;
    client.create("ghost").await.unwrap_err();
    let create = |machine: &str, epoch, sequence| {
        let mut grpc = client.raw();
        let request = pb::CreateRequest {
            machine_id: machine.into(),
            shard_id: "shard-0".into(),
            shard_epoch: epoch,
            sequence_number: sequence,
        };
        async move { code(grpc.create(request).await) }
    };
    // Malformed, although the token is stale.
    assert_eq!(create("", 0, 0).await, Code::InvalidArgument);
    // A first token that is malformed, although the machine is unknown.
    assert_eq!(create("never-heard-of", -1, 0).await, Code::InvalidArgument);
    // Stale, although the machine is unknown.
    assert_eq!(create("ghost", 0, 99).await, Code::FailedPrecondition);
    // Unknown.
    assert_eq!(create("ghost", 2, 0).await, Code::NotFound);
    // Stale, although the call would be a repeat.
    let stale = pb::ConfigureRequest {
        machine_id: "idle-0".into(),
        cluster_id: "a".into(),
        shard_id: "shard-0".into(),
        shard_epoch: 1,
        sequence_number: 1,
        ..pb::ConfigureRequest::default()
    };
    assert_eq!(code(client.raw().configure(stale).await), Code::FailedPrecondition);
    // A repeat, although the position is no start.
    assert_eq!(code(client.configure("idle-0", "a").await), Code::Ok);
    // Another cluster, although the kind would be a repeat.
    assert_eq!(code(client.configure("idle-0", "b").await), Code::Aborted);
    // Position, for every state at rest and every kind that does not start there or lead there.
    let wrong = [
        ("idle-0", Kind::Create),
        ("idle-0", Kind::Delete),
        ("idle-1", Kind::Create),
        ("idle-1", Kind::Drain),
        ("spec-0", Kind::Configure),
        ("spec-0", Kind::Drain),
        ("spec-0", Kind::Delete),
    ];
    for (id, kind) in wrong {
        let before = client.get(id).await.unwrap();
        assert_eq!(call(client, kind, id).await, Code::Internal, "{kind} of {id}");
        assert_eq!(client.get(id).await.unwrap(), before);
    }
    cloud.control().fail_machine("idle-1", "disk died").await.unwrap();
    for kind in Kind::ALL {
        assert_eq!(call(client, kind, "idle-1").await, Code::Internal, "{kind} of a failed machine");
    }
    assert_eq!(cloud.settled("idle-1", Failed).await.last_error, "disk died");
    let total: u64 = cloud.control().all_actions().values().map(|a| a.create + a.drain + a.delete).sum();
    assert_eq!((total, cloud.control().actions("idle-0").configure), (0, 1));
    cloud.stop().await;
}

async fn call(client: &Client, kind: Kind, id: &str) -> Code {
    match kind {
        Kind::Create => code(client.create(id).await),
        Kind::Configure => code(client.configure(id, "a").await),
        Kind::Drain => code(client.drain(id, 1).await),
        Kind::Delete => code(client.delete(id).await),
    }
}

#[tokio::test]
async fn fr50_malformed_requests_name_the_field() {
    let cloud = start(options()).await;
    let client = &cloud.client;
    let big: BTreeMap<String, String> = [("k".into(), "v".repeat(4 << 20))].into();
    let before = (client.list(pb::ListFilter::default()).await, cloud.control().provider().revision());
    let mut wrong_state = pb::ListFilter::default();
    wrong_state.states.push(99);
    let answers = [
        ("machine_id", client.create("").await.unwrap_err()),
        ("machine_id", client.delete("a b").await.unwrap_err()),
        ("cluster_id", client.configure("idle-0", "").await.unwrap_err()),
        ("shard_metadata", client.configure_with("idle-0", "a", b"", big).await.unwrap_err()),
        (
            "bootstrap_blob",
            client.configure_with("idle-0", "a", &vec![0; 5 << 20], metadata()).await.unwrap_err(),
        ),
        ("grace_period_seconds", client.drain("idle-0", -1).await.unwrap_err()),
        ("id", client.get("").await.unwrap_err()),
        ("states[0]", client.raw().list(wrong_state).await.unwrap_err()),
        (
            "max_results",
            client.raw().list(pb::ListFilter { max_results: -1, ..Default::default() }).await.unwrap_err(),
        ),
    ];
    for (field, status) in answers {
        assert_eq!(status.code(), Code::InvalidArgument, "{field}");
        assert!(status.message().starts_with(field), "{field}: {}", status.message());
    }
    let after = (client.list(pb::ListFilter::default()).await, cloud.control().provider().revision());
    assert_eq!(after, before, "malformed calls change nothing");
    assert!(cloud.control().all_actions().values().all(|a| a.create + a.configure + a.drain + a.delete == 0));
    // A blob of 3 MiB passes.
    client.configure_with("idle-0", "a", &vec![1; 3 << 20], metadata()).await.unwrap();
    cloud.stop().await;
}

#[tokio::test]
async fn fencing_is_per_shard_and_machine() {
    let cloud = start(options()).await;
    let create = |shard: &str, machine: &str, epoch, sequence| {
        let mut grpc = cloud.client.raw();
        let request = pb::CreateRequest {
            machine_id: machine.into(),
            shard_id: shard.into(),
            shard_epoch: epoch,
            sequence_number: sequence,
        };
        async move { code(grpc.create(request).await) }
    };
    use Code::{FailedPrecondition, Internal, NotFound, Ok};
    for (step, (shard, machine, epoch, sequence, answer)) in [
        ("a", "spec-0", 5, 10, Ok),
        ("a", "spec-0", 5, 10, FailedPrecondition),
        ("a", "spec-0", 5, 9, FailedPrecondition),
        ("a", "spec-0", 4, i64::MAX, FailedPrecondition),
        // Another machine and another shard have marks of their own.
        ("a", "spec-1", 1, 1, Ok),
        ("b", "spec-0", 0, 1, Ok),
        // A new epoch resets the sequence, and the old one stays out.
        ("a", "spec-0", 6, 0, Ok),
        ("a", "spec-0", 5, 99, FailedPrecondition),
        // A token that passes moves the mark although the call fails.
        ("a", "idle-0", 7, 7, Internal),
        ("a", "idle-0", 7, 7, FailedPrecondition),
        ("a", "ghost", 7, 7, NotFound),
        ("a", "ghost", 7, 6, FailedPrecondition),
        ("a", "spec-0", i64::MAX, i64::MAX, Ok),
        // The caller without fencing is never fenced; an empty shard id with a token is a shard like any other.
        ("", "spec-0", 0, 0, Ok),
        ("", "spec-0", 0, 0, Ok),
        ("", "spec-0", 1, 1, Ok),
        ("", "spec-0", 1, 1, FailedPrecondition),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(create(shard, machine, epoch, sequence).await, answer, "step {step}");
    }
    // Reads carry no token.
    cloud.client.get("spec-0").await.unwrap();
    cloud.stop().await;
}

/// B211 wants a negative number refused, B1201 and B1204 want it compared: the first token of a shard for a machine is
/// checked, all others are compared.
#[tokio::test]
async fn b211_b1201_b1204_a_negative_number_is_malformed_in_a_first_token_and_compared_afterwards() {
    let cloud = start(options()).await;
    use Code::{FailedPrecondition, InvalidArgument, NotFound, Ok};
    let before = (cloud.client.get("spec-0").await.unwrap(), cloud.control().provider().revision());
    for (step, (shard, machine, epoch, sequence, answer)) in [
        ("a", "spec-0", -1, 1, InvalidArgument),
        ("a", "spec-0", 1, -1, InvalidArgument),
        ("a", "spec-0", -7, -3, InvalidArgument),
        ("", "spec-0", 0, -1, InvalidArgument),
        ("a", "ghost", i64::MIN, i64::MIN, InvalidArgument),
        // None of them moved a mark.
        ("a", "ghost", 0, 1, NotFound),
        ("a", "spec-0", 1, 1, Ok),
        ("a", "spec-0", 1, -1, FailedPrecondition),
        ("a", "spec-0", -1, 9, FailedPrecondition),
        ("a", "spec-0", 2, -2, Ok),
        ("a", "spec-0", 2, -2, FailedPrecondition),
        ("a", "spec-0", 2, -1, Ok),
        ("a", "ghost", 0, -1, FailedPrecondition),
        // Another shard and another machine were never heard of.
        ("b", "spec-0", 2, -1, InvalidArgument),
        ("a", "spec-1", 2, -1, InvalidArgument),
    ]
    .into_iter()
    .enumerate()
    {
        if step == 5 {
            let now = (cloud.client.get("spec-0").await.unwrap(), cloud.control().provider().revision());
            assert_eq!(now, before, "malformed calls change nothing");
        }
        let mut grpc = cloud.client.raw();
        let request = pb::CreateRequest {
            machine_id: machine.into(),
            shard_id: shard.into(),
            shard_epoch: epoch,
            sequence_number: sequence,
        };
        let got = grpc.create(request).await;
        if let Err(status) = &got
            && answer == InvalidArgument
        {
            let field = if epoch < 0 { "shard_epoch" } else { "sequence_number" };
            assert!(status.message().starts_with(field), "step {step}: {}", status.message());
        }
        assert_eq!(code(got), answer, "step {step}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn repeats_get_the_same_operation_until_the_target_is_left() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    control.stage(Kind::Create, true);
    let first = client.create("spec-0").await.unwrap().operation_id;
    assert!(first.starts_with("op-"), "{first}");
    assert_eq!(client.create("spec-0").await.unwrap().operation_id, first);
    control.stage(Kind::Create, false);
    cloud.settled("spec-0", Idle).await;
    assert_eq!(client.create("spec-0").await.unwrap().operation_id, first);
    let joined = client.configure("spec-0", "a").await.unwrap().operation_id;
    assert_ne!(joined, first);
    cloud.settled("spec-0", Configured).await;
    // A repeat keeps the first metadata.
    let repeat = client.configure_with("spec-0", "a", b"", BTreeMap::new()).await.unwrap();
    assert_eq!((repeat.operation_id, repeat.machine.unwrap().shard_metadata), (joined, metadata()));
    let left = client.drain("spec-0", 1).await.unwrap().operation_id;
    cloud.settled("spec-0", Idle).await;
    assert_eq!(client.drain("spec-0", 1).await.unwrap().operation_id, left);
    // The Create's target was left: Idle was reached by a Drain.
    assert_eq!(code(client.create("spec-0").await), Code::Internal);
    let gone = client.delete("spec-0").await.unwrap().operation_id;
    cloud.settled("spec-0", Speculative).await;
    assert_eq!(client.delete("spec-0").await.unwrap().operation_id, gone);
    // A new round has new ids.
    let again = client.create("spec-0").await.unwrap().operation_id;
    assert!(![first, left, gone].contains(&again));
    cloud.settled("spec-0", Idle).await;
    assert_eq!(control.actions("spec-0").create, 2);
    cloud.stop().await;
}

#[tokio::test]
async fn parallel_repeats_start_one_operation() {
    let cloud = start(options()).await;
    // No two calls share a token, and each goes out in order of its own: what arrives late is fenced, not applied.
    let calls =
        (0..32).map(|_| {
            let mut grpc = cloud.client.raw();
            async move {
                grpc.create(pb::CreateRequest { machine_id: "spec-0".into(), ..Default::default() }).await
            }
        });
    let mut ids: Vec<String> = Vec::new();
    for answer in futures::future::join_all(calls).await {
        ids.push(answer.unwrap().into_inner().operation_id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    cloud.settled("spec-0", Idle).await;
    assert_eq!(cloud.control().actions("spec-0").create, 1);
    cloud.stop().await;
}

#[tokio::test]
async fn a_stock_out_changes_nothing() {
    let cloud = start(options()).await;
    let class = ClassKey::of(&cloud.client.get("spot-0").await.unwrap());
    cloud.control().stock_out(class.clone(), true);
    let status = cloud.client.create("spot-0").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("spot a3-highgpu-8g in zone-a"), "{}", status.message());
    assert_eq!(cloud.control().state("spot-0"), Some(Speculative));
    assert_eq!(code(cloud.client.create("spot-1").await), Code::Ok, "another class");
    cloud.control().stock_out(class, false);
    cloud.client.create("spot-0").await.unwrap();
    cloud.settled("spot-0", Idle).await;
    cloud.stop().await;
}

#[tokio::test]
async fn an_epoch_that_is_over_moves_nothing_where_epochs_are_strict() {
    for strict in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = async || {
            let store = bigfleet_provider_kit::FileStore::open(dir.path()).unwrap();
            let cloud = FakeCloud::new(options()).unwrap().kit(|kit| kit.strict_epoch = strict);
            crate::fixture::serve(cloud.store(store)).await
        };
        let cloud = open().await;
        let of = |cloud: &Cloud, shard: &str, epoch| {
            Client::connect(&cloud.handle.dial_addr().to_string(), shard, epoch)
        };
        of(&cloud, "s", 1).create("spec-0").await.unwrap();
        of(&cloud, "s", 2).create("spec-1").await.unwrap();
        let late = of(&cloud, "s", 1).create("spec-2").await;
        let expected = if strict { Code::FailedPrecondition } else { Code::Ok };
        assert_eq!(code(late.clone()), expected);
        if let Err(status) = late {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &cloud.handle.pages().registry).unwrap();
            assert!(text.contains("bigfleet_fenced_total{direction=\"shard_to_provider\"} 1"), "{text}");
            assert!(status.message().contains("epoch 1 of shard \"s\" is over, epoch 2"), "{status}");
            assert_eq!(cloud.control().state("spec-2"), Some(Speculative), "nothing was done");
        }
        // Another shard's epochs are its own, and equal ones go on.
        of(&cloud, "other", 1).create("spec-3").await.unwrap();
        of(&cloud, "s", 2).drain("idle-0", 0).await.unwrap_err();
        cloud.stop().await;
        // A restart remembers.
        let cloud = open().await;
        let expected = if strict { Code::FailedPrecondition } else { Code::NotFound };
        assert_eq!(code(of(&cloud, "s", 1).create("no-such-machine").await), expected);
        cloud.stop().await;
    }
}
