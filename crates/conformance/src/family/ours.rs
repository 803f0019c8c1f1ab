//! N-ids: what we ask beyond the public programme. They inform; they decide no verdict.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_proto::v1alpha1 as pb;
use futures::future::join_all;
use pb::MachineState as S;
use prost::Message as _;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::durability::bound_over_restart;
use super::metadata::hostile;
use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, Stop, answers, code, ensure, equal, fenced, ok, operation, refused};
use crate::context::{CLUSTER, Context, Kind, Token, map, metadata, token};

pub(super) const TABLE: &[Behaviour] = behaviours![Ours, Core:
    "N101" [Core] => negative_grace;
        "A Drain with a negative grace is refused with INVALID_ARGUMENT; it is not clamped."
        "Check the shape of a request first."
    "N102" [Core] => negative_token;
        "A negative epoch or sequence number in a shard's first token for a machine is refused with INVALID_ARGUMENT."
        "Check the shape of a token that there is no mark to compare with; compare all others."
    "N103" [Core] => another_cluster;
        "Configure of a bound machine for another cluster is refused; the binding stays."
        "A repeat is the same cluster. Answer another one with ABORTED, not with the old acknowledgement."
    "N104" [Core] => no_cluster;
        "Configure without a cluster id is refused with INVALID_ARGUMENT."
        "Check the shape of a request first."
    "N105" [Core] => many_workers;
        "64 calls at once with tokens of one shard, over as many machines, are never fenced out falsely."
        "Key marks by (shard_id, machine_id)."
    "N106" [Core] => given_up_and_asked_again;
        "A call whose caller gave up, asked again, is the same operation with one effect."
        "Finish what was accepted, in a task of its own, whether the caller waits or not."
    "N107" [Core] => visible_at_once;
        "After an acknowledgement Get and List show the change at once."
        "Write the record before the acknowledgement, and read from the same place."
    "N108" [Core] needs Revision => capped_lists_go_on;
        "A List that max_results cuts gives a cursor from which the next one goes on."
        "Give the cursor of the last machine in the answer; the head's cursor loses the rest."
    "N109" [Core] => capped_lists_turn;
        "Lists of one machine without a cursor do not all begin with the same one (the public runner picks machines so)."
        "Begin each capped List elsewhere when it has no cursor."
    "N110" [Core] => a_shard_restarts;
        "After a shard's restart under a new epoch its notes are there, its new token drains, its old one does not."
        "Keep bindings apart from marks; a new epoch changes no machine."
    "N111" [Core] => health;
        "The gRPC health service says SERVING for the provider's service."
        "Serve grpc.health.v1 on the same port."
    "N114" [Core] => large_lists_arrive;
        "A List of more than 4 MiB, the usual limit of a gRPC message, arrives whole."
        "Raise the largest message that your server sends; shards take a List of up to 1 GiB."
    "N308" [Core] => only_the_named_shard;
        "Under TLS a call without a shard id, or with another one than its certificate names, is refused."
        "Compare shard_id with the caller's identity before anything else; the zero token is for plaintext."
    "N112" [Spot] => spot_is_there;
        "A provider that claims spot has a SPOT machine."
        "Leave the claim out, or seed a SPOT offer."
    "N113" [BareMetal] => owned_machines_stay;
        "A provider that claims bare-metal answers Delete with UNIMPLEMENTED and keeps the machine."
        "Do not implement Delete for machines that you own."
];

pub(super) const FAULT: &[Behaviour] = behaviours![Ours, Fault:
    "N701" [Fault] => errors_tell_no_secrets;
        "last_error has at most 4 KiB and nothing of the bootstrap blob."
        "Scrub tokens and PEM blocks out of what the back end says, and cut it."
];

pub(super) const DURABLE: &[Behaviour] = behaviours![Ours, Durable:
    "N1001" [Durable] => cursors_survive;
        "A cursor from before SIGKILL leads to what changes after the restart."
        "Store the revision, or treat old cursors as none."
    "N1002" [Durable] => hostile_metadata_survive;
        "55 hostile keys survive SIGKILL to the byte."
        "Store the map as bytes; JSON escapes and line formats alter it."
    "N1003" [Durable] => many_restarts;
        "Three SIGKILLs in a row, with changes between, lose nothing that was acknowledged."
        "Sync before the answer, and cut a torn tail at the last whole record."
];

async fn negative_grace(c: &Context) -> Check {
    let id = c.configured(CLUSTER).await?;
    answers("Drain with grace -1", &c.drain(&id, -1).await, &[Code::InvalidArgument])?;
    c.stays(&id, S::Configured).await
}

async fn negative_token(c: &Context) -> Check {
    let id = c.speculative().await?;
    for (epoch, sequence) in [(-1, 1), (1, -1)] {
        let shard = c.unique("n102");
        let answer = c.create_as(&id, &token(&shard, epoch, sequence)).await;
        answers(&format!("a token ({epoch}, {sequence})"), &answer, &[Code::InvalidArgument])?;
    }
    c.stays(&id, S::Speculative).await
}

async fn another_cluster(c: &Context) -> Check {
    let id = c.configured("conformance-n103").await?;
    refused("Configure for another cluster", &c.configure(&id, "conformance-n103-other", &metadata()).await)?;
    equal("cluster afterwards", &c.machine(&id).await?.cluster.as_str(), &"conformance-n103")
}

async fn no_cluster(c: &Context) -> Check {
    let id = c.idle().await?;
    answers(
        "Configure without a cluster",
        &c.configure(&id, "", &metadata()).await,
        &[Code::InvalidArgument],
    )?;
    c.stays(&id, S::Idle).await
}

async fn many_workers(c: &Context) -> Check {
    let (ids, shard) = (c.speculatives(64).await?, c.unique("n105"));
    // As a shard does: numbers are drawn in order, arrive in any, and a machine has one call in flight.
    for round in 0..4_i64 {
        let drawn: Vec<_> =
            ids.iter().zip(0..).map(|(id, n)| (id, token(&shard, 1, round * 1000 + n))).collect();
        for answer in join_all(drawn.iter().rev().map(|(id, t)| c.create_as(id, t))).await {
            ok("a Create among many", answer)?;
        }
    }
    Ok(())
}

async fn given_up_and_asked_again(c: &Context) -> Check {
    let id = c.speculative().await?;
    let unfenced = Token::default();
    let given_up = tokio::time::timeout(Duration::from_micros(300), c.create_as(&id, &unfenced)).await;
    drop(given_up);
    let first = operation("Create", &ok("Create, asked again", c.create(&id).await)?)?;
    let second = operation("Create", &ok("Create, a third time", c.create(&id).await)?)?;
    equal("operation_id of the third call", &second, &first)?;
    c.reach(&id, S::Idle).await?;
    c.stays(&id, S::Idle).await
}

async fn visible_at_once(c: &Context) -> Check {
    let id = c.speculative().await?;
    ok("Create", c.create(&id).await)?;
    let seen = c.machine(&id).await?.state();
    ensure(matches!(seen, S::Creating | S::Idle), || {
        format!("Get after the acknowledgement shows {seen:?}")
    })?;
    let slots = c.listed(&[S::Speculative]).await?;
    ensure(slots.iter().all(|m| m.id != id), || {
        "List after the acknowledgement shows it Speculative".to_owned()
    })
}

async fn capped_lists_go_on(c: &Context) -> Check {
    let base = c.cursor().await?;
    let mut left = BTreeSet::new();
    for _ in 0..4 {
        left.insert(c.configured("conformance-n108").await?);
    }
    let mut cursor = base;
    for _ in 0..64 {
        let page = c.since(&cursor, 1).await?;
        let Some(m) = page.machines.first() else { break };
        left.remove(&m.id);
        cursor = page.revision.to_vec();
    }
    ensure(left.is_empty(), || format!("the pages of one machine lack {left:?}"))
}

async fn capped_lists_turn(c: &Context) -> Check {
    let mut first = BTreeSet::new();
    for _ in 0..8 {
        let states = vec![i32::from(S::Speculative)];
        let filter = pb::ListFilter { states, max_results: 1, ..pb::ListFilter::default() };
        first.extend(ok("List of one", c.list(filter).await)?.machines.into_iter().map(|m| m.id));
    }
    ensure(first.len() > 1, || format!("8 Lists of one machine all gave {first:?}"))
}

async fn a_shard_restarts(c: &Context) -> Check {
    let (id, shard) = (c.idle().await?, c.unique("n110"));
    ok("Configure with (1, 1)", c.act(Kind::Configure, &id, &token(&shard, 1, 1)).await)?;
    c.reach(&id, S::Configured).await?;
    equal("shard_metadata for the restarted shard", &c.machine(&id).await?.shard_metadata, &metadata())?;
    ok("Drain with (2, 0)", c.act(Kind::Drain, &id, &token(&shard, 2, 0)).await)?;
    fenced("Configure with (1, 2)", &c.act(Kind::Configure, &id, &token(&shard, 1, 2)).await)?;
    c.reach(&id, S::Idle).await.map(drop)
}

async fn health(c: &Context) -> Check {
    let service = "bigfleet.v1alpha1.CapacityProvider".to_owned();
    let answer = HealthClient::new(c.channel()?).check(HealthCheckRequest { service }).await;
    let status = ok("health check", answer)?.into_inner().status();
    equal("health of the service", &status, &ServingStatus::Serving)
}

async fn large_lists_arrive(c: &Context) -> Check {
    let mut bound = Vec::new();
    for (id, letter) in c.idles(5).await?.into_iter().zip(["a", "b", "c", "d", "e"]) {
        let large = map(&[("conformance/large", &letter.repeat(1 << 20))]);
        let answer = c.configure_as(&id, CLUSTER, &large, b"#\n", &Token::default()).await;
        if matches!(code(&answer), Code::InvalidArgument | Code::ResourceExhausted) {
            return Err(Stop::NotApplicable("shard_metadata of 1 MiB are refused".into()));
        }
        ok("Configure with shard_metadata of 1 MiB", answer)?;
        c.reach(&id, S::Configured).await?;
        bound.push((id, large));
    }
    let listed = c.listed(&[S::Configured]).await?;
    for (id, large) in bound {
        let whole = listed.iter().any(|m| m.id == id && m.shard_metadata == large);
        ensure(whole, || format!("the List lacks {id}, or a part of its shard_metadata"))?;
    }
    Ok(())
}

async fn only_the_named_shard(c: &Context) -> Check {
    if !c.secured() {
        return Err(Stop::NotApplicable("callers have no certificates on plaintext".into()));
    }
    let (id, shard) = (c.speculative().await?, c.unique("n308"));
    for foreign in [Token::default(), token("conformance-foreign", 1, 1)] {
        let what = format!("Create as {shard} with {foreign:?}");
        let answer = c.create_over(&shard, &id, &foreign).await;
        answers(&what, &answer, &[Code::PermissionDenied, Code::Unauthenticated])?;
    }
    c.stays(&id, S::Speculative).await
}

async fn spot_is_there(c: &Context) -> Check {
    let spot = c.listed(&[]).await?.iter().any(|m| m.capacity_type() == pb::CapacityType::Spot);
    ensure(spot, || "no machine is SPOT".to_owned())
}

async fn owned_machines_stay(c: &Context) -> Check {
    let id = c.idle().await?;
    answers("Delete of an Idle machine", &c.delete(&id).await, &[Code::Unimplemented])?;
    c.stays(&id, S::Idle).await
}

async fn errors_tell_no_secrets(c: &Context) -> Check {
    let id = c.idle().await?;
    let canary = "canary.0123456789abcdef";
    let blob = format!("#cloud-config\ntoken: {canary}\n");
    let unfenced = Token::default();
    let answer = c.configure_as(&id, "fault-error", &metadata(), blob.as_bytes(), &unfenced).await;
    ok("Configure for fault-error", answer)?;
    let error = c.reach(&id, S::Failed).await?.last_error;
    ensure(error.len() <= 4096, || format!("last_error has {} bytes", error.len()))?;
    ensure(!error.contains(canary), || "last_error repeats the bootstrap blob".to_owned())
}

async fn cursors_survive(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let cursor = first.cursor().await?;
    if cursor.is_empty() {
        return Err(Stop::NotApplicable("List gives no revision".into()));
    }
    let second = life.reborn(&first).await?;
    let id = second.idle().await?;
    let delta = second.since(&cursor, 0).await?;
    ensure(delta.machines.iter().any(|m| m.id == id), || {
        format!("the List since a cursor from before the restart lacks {id}, {} bytes", delta.encoded_len())
    })?;
    life.end().await
}

async fn hostile_metadata_survive(c: &Context) -> Check {
    bound_over_restart(c, &hostile()).await
}

async fn many_restarts(c: &Context) -> Check {
    let (mut life, mut now) = c.life().await?;
    let mut bound = Vec::new();
    for round in 0..3 {
        let cluster = format!("conformance-n1003-{round}");
        bound.push((now.configured(&cluster).await?, cluster));
        now = life.reborn(&now).await?;
        for (id, cluster) in &bound {
            equal(
                &format!("cluster of {id} after restart {round}"),
                &now.machine(id).await?.cluster,
                cluster,
            )?;
        }
    }
    life.end().await
}
