//! The contract's first tests, under their names.

use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;
use tonic::Code;

use super::{fields, metadata};
use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, answers, broken, code, ensure, equal, fenced, not_fenced, ok, operation, refused};
use crate::context::{CLUSTER, Context, Kind, Token, map, metadata as notes, rest, token, transitional};
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Baseline, Core:
    "FullLifecycle" [Core] => full_lifecycle;
        "Create, Configure, Drain and Delete each lead to their target, with an operation_id each."
        "Begin with the four edges and one function that takes them."
    "CreateIdempotent" [Core] => create_twice;
        "Two Creates in a row have one operation_id."
        "Store the operation_id with the machine and answer repeats with it."
    "ConfigureIdempotent" [Core] => configure_twice;
        "Two Configures in a row have one operation_id."
        "Store the operation_id with the machine and answer repeats with it."
    "DrainIdempotent" [Core] => drain_twice;
        "Two Drains in a row have one operation_id."
        "Store the operation_id with the machine and answer repeats with it."
    "DeleteIdempotent" [Core] needs Delete => delete_twice;
        "Two Deletes in a row have one operation_id."
        "Store the operation_id with the machine and answer repeats with it."
    "GetUnknown" [Core] => get_unknown;
        "Get of a machine that is not there is answered NOT_FOUND."
        "Answer NOT_FOUND, not an empty machine."
    "DeleteUnknown" [Core] => delete_unknown;
        "Delete of a machine that is not there is answered NOT_FOUND or UNIMPLEMENTED."
        "Look the machine up before its position is checked."
    "ListFiltersByState" [Core] => list_filters;
        "A List of one state gives machines in that state only."
        "Apply the filter before the limit."
    "ListMaxResults" [Core] => list_limit;
        "A List gives at most max_results machines."
        "Apply the limit after the filter."
    "LabelShape" [Core] => label_shape;
        "Every machine has an instance_type and a state."
        "Fill the fields from the offer."
    "CostFieldBounds" [Core] => cost_bounds;
        "price_per_hour is a number of at least 0, interruption_probability one from 0 to 1."
        "Refuse an offer whose price is unknown; do not serve NaN."
    "ListRevisionAdvances" [Core] => revision_advances;
        "If List gives a revision, it changes after a change."
        "Move the revision with every change, or give none at all."
    "DrainOnSpeculative" [Core] => drain_on_speculative;
        "Drain of a Speculative machine is refused, not with FAILED_PRECONDITION."
        "Refuse calls out of place with INTERNAL."
    "DeleteOnConfigured" [Core] => delete_on_configured;
        "Delete of a Configured machine is refused, not with FAILED_PRECONDITION."
        "Refuse calls out of place with INTERNAL."
    "TransitionalStateObservability" [Core] => transitional_states;
        "For a second after a Create only states on its way are seen."
        "Keep the state in one place and change it by one function."
    "DrainGraceTimeout" [Core] => drain_without_grace;
        "A Drain with grace 0 ends in IDLE, or in FAILED with last_error."
        "A grace of 0 means now: cut the host off; never wait for ever, never go back to CONFIGURED."
    "FencingUnknownShardAccepted" [Core] => fencing_first_contact;
        "The first token of a shard is accepted and becomes the mark."
        "Start a mark at the first contact."
    "FencingStaleEpoch" [Core] => fencing_stale_epoch;
        "A token of a lower epoch is fenced out."
        "Compare epochs before sequence numbers."
    "FencingStaleSequence" [Core] => fencing_stale_sequence;
        "A token of the same epoch with an equal or lower sequence number is fenced out."
        "Newer means strictly newer."
    "FencingNewEpochResetsSequence" [Core] => fencing_new_epoch;
        "A token of a higher epoch is accepted whatever its sequence number."
        "Compare epochs before sequence numbers."
    "FencingReadsUnaffected" [Core] => fencing_reads;
        "Get and List work for everyone."
        "Reads carry no token."
    "FencingPerMachineIsolation" [Core] => fencing_isolation;
        "A high mark of one machine does not fence a lower token for another."
        "Key marks by (shard_id, machine_id)."
    "MetadataEcho" [Core] => metadata_echo;
        "shard_metadata come back as they were sent, keys that nobody knows included."
        "Store the map as it came; no list of allowed keys."
    "MetadataClearedOnDrain" [Core] => metadata_cleared;
        "A Drain clears shard_metadata together with cluster."
        "Clear both in the one place where a Drain completes."
];

pub(super) const FAULT: &[Behaviour] = behaviours![Baseline, Fault:
    "Readiness" [Fault] => readiness;
        "A machine whose node is not Ready is held in CONFIGURING."
        "Ask the substrate, or the cluster, whether the node joined, before saying CONFIGURED."
];

async fn step(c: &Context, kind: Kind, id: &str, target: S) -> Check {
    let what = format!("{kind:?} of {id}");
    let answer = c.act(kind, id, &Token::default()).await;
    if kind == Kind::Delete && code(&answer) == Code::Unimplemented {
        return Ok(());
    }
    operation(&what, &ok(&what, answer)?)?;
    c.reach(id, target).await.map(drop)
}

async fn full_lifecycle(c: &Context) -> Check {
    let id = c.speculative().await?;
    step(c, Kind::Create, &id, S::Idle).await?;
    step(c, Kind::Configure, &id, S::Configured).await?;
    step(c, Kind::Drain, &id, S::Idle).await?;
    step(c, Kind::Delete, &id, S::Speculative).await
}

async fn twice(c: &Context, kind: Kind, id: &str, target: S) -> Check {
    let first =
        operation("the first call", &ok("the first call", c.act(kind, id, &Token::default()).await)?)?;
    let second = ok("the second call", c.act(kind, id, &Token::default()).await)?;
    equal("operation_id of the second call", &second.operation_id, &first)?;
    c.reach(id, target).await.map(drop)
}

async fn create_twice(c: &Context) -> Check {
    twice(c, Kind::Create, &c.speculative().await?, S::Idle).await
}

async fn configure_twice(c: &Context) -> Check {
    twice(c, Kind::Configure, &c.idle().await?, S::Configured).await
}

async fn drain_twice(c: &Context) -> Check {
    twice(c, Kind::Drain, &c.configured(CLUSTER).await?, S::Idle).await
}

async fn delete_twice(c: &Context) -> Check {
    twice(c, Kind::Delete, &c.idle().await?, S::Speculative).await
}

async fn get_unknown(c: &Context) -> Check {
    answers("Get of an unknown machine", &c.get(&c.unique("ghost")).await, &[Code::NotFound])
}

async fn delete_unknown(c: &Context) -> Check {
    let answer = c.delete(&c.unique("ghost")).await;
    answers("Delete of an unknown machine", &answer, &[Code::NotFound, Code::Unimplemented])
}

async fn list_filters(c: &Context) -> Check {
    c.configured(CLUSTER).await?;
    for state in [S::Speculative, S::Configured] {
        let listed = c.listed(&[state]).await?;
        ensure(!listed.is_empty(), || format!("no machine in List of {state:?}"))?;
        if let Some(m) = listed.iter().find(|m| m.state() != state) {
            return broken(format!("List of {state:?} contains {}", record::machine(m)));
        }
    }
    Ok(())
}

async fn list_limit(c: &Context) -> Check {
    for (most, limit) in [(1, 1), (5, 5)] {
        let got = c.since(&[], most).await?.machines.len();
        ensure(got <= limit, || format!("max_results {most} gives {got} machines"))?;
    }
    Ok(())
}

async fn label_shape(c: &Context) -> Check {
    c.listed(&[]).await?.iter().try_for_each(fields::named)
}

async fn cost_bounds(c: &Context) -> Check {
    for m in c.listed(&[]).await? {
        let (price, chance) = (m.price_per_hour, m.interruption_probability);
        ensure(price >= 0.0, || format!("{}: price_per_hour is {price}", m.id))?;
        ensure((0.0..=1.0).contains(&chance), || format!("{}: interruption_probability is {chance}", m.id))?;
    }
    Ok(())
}

async fn revision_advances(c: &Context) -> Check {
    let before = c.cursor().await?;
    c.configured(CLUSTER).await?;
    let after = c.cursor().await?;
    ensure(before.is_empty() || before != after, || format!("a change left the revision at {after:?}"))
}

async fn drain_on_speculative(c: &Context) -> Check {
    let id = c.speculative().await?;
    refused("Drain of a Speculative machine", &c.drain(&id, 5).await)?;
    c.stays(&id, S::Speculative).await
}

async fn delete_on_configured(c: &Context) -> Check {
    let id = c.configured(CLUSTER).await?;
    refused("Delete of a Configured machine", &c.delete(&id).await)?;
    c.stays(&id, S::Configured).await
}

async fn transitional_states(c: &Context) -> Check {
    let id = c.speculative().await?;
    ok("Create", c.create(&id).await)?;
    let span = c.settings.window.max(Duration::from_millis(100)) * 3;
    let on_the_way =
        |m: &pb::Machine| matches!(m.state(), S::Speculative | S::Creating | S::Idle | S::Failed);
    c.watch(&id, span, on_the_way, "only be seen on the way of its Create").await?;
    c.reach(&id, S::Idle).await.map(drop)
}

async fn drain_without_grace(c: &Context) -> Check {
    let id = c.configured(CLUSTER).await?;
    ok("Drain with grace 0", c.drain(&id, 0).await)?;
    let begun = Instant::now();
    loop {
        let m = c.machine(&id).await?;
        match m.state() {
            S::Idle => return Ok(()),
            S::Failed => return ensure(!m.last_error.is_empty(), || "FAILED without last_error".to_owned()),
            state if transitional(state) && begun.elapsed() < c.settings.settle => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            state => {
                let where_it_is = if rest(state) { "back in" } else { "stuck in" };
                return broken(format!(
                    "after a Drain with grace 0 it is {where_it_is} {}",
                    record::machine(&m)
                ));
            }
        }
    }
}

async fn fencing_first_contact(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("first"));
    ok("the first token, (1, 1)", c.create_as(&id, &token(&shard, 1, 1)).await)?;
    fenced("the same again", &c.create_as(&id, &token(&shard, 1, 1)).await)
}

async fn fencing_stale_epoch(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("epoch"));
    ok("(5, 1)", c.create_as(&id, &token(&shard, 5, 1)).await)?;
    fenced("(4, 9)", &c.create_as(&id, &token(&shard, 4, 9)).await)
}

async fn fencing_stale_sequence(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("sequence"));
    ok("(5, 5)", c.create_as(&id, &token(&shard, 5, 5)).await)?;
    fenced("(5, 4)", &c.create_as(&id, &token(&shard, 5, 4)).await)?;
    fenced("(5, 5)", &c.create_as(&id, &token(&shard, 5, 5)).await)
}

async fn fencing_new_epoch(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("reset"));
    ok("(5, 500)", c.create_as(&id, &token(&shard, 5, 500)).await)?;
    ok("(6, 1)", c.create_as(&id, &token(&shard, 6, 1)).await).map(drop)
}

async fn fencing_reads(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("reads"));
    ok("(5, 5)", c.create_as(&id, &token(&shard, 5, 5)).await)?;
    fenced("(1, 1)", &c.create_as(&id, &token(&shard, 1, 1)).await)?;
    c.machine(&id).await?;
    let listed = c.listed(&[]).await?;
    ensure(listed.iter().any(|m| m.id == id), || format!("List lacks {id}"))
}

async fn fencing_isolation(c: &Context) -> Check {
    let ids = c.speculatives(2).await?;
    let shard = c.unique("isolation");
    for (id, sequence) in ids.iter().zip([900, 3]) {
        let answer = c.create_as(id, &token(&shard, 5, sequence)).await;
        ok(&format!("(5, {sequence}) for {id}"), answer)?;
    }
    Ok(())
}

async fn metadata_echo(c: &Context) -> Check {
    let md = map(&[("bigfleet.lucy.sh/assigned-priority", "7"), ("nobody/knows-this", "kept \u{1f980}")]);
    let id = c.configured_with(CLUSTER, &md).await?;
    equal("shard_metadata on Get", &c.machine(&id).await?.shard_metadata, &md)?;
    let listed = c.listed(&[S::Configured]).await?;
    let found = listed.into_iter().find(|m| m.id == id).map(|m| m.shard_metadata);
    equal("shard_metadata on List", &found, &Some(md))
}

async fn metadata_cleared(c: &Context) -> Check {
    let id = c.configured_with(CLUSTER, &notes()).await?;
    let idle = c.free(&id).await?;
    ensure(idle.cluster.is_empty() && idle.shard_metadata.is_empty(), || {
        format!("the binding is left after the Drain: {}", record::machine(&idle))
    })
}

async fn readiness(c: &Context) -> Check {
    let id = c.idle().await?;
    let answer = c.configure(&id, "fault-readiness-block", &metadata::hostile()).await;
    not_fenced("Configure", &answer)?;
    ok("Configure", answer)?;
    let must = "be held in CONFIGURING while its node is not Ready";
    c.watch(&id, c.settings.window * 2, |m| m.state() == S::Configuring, must).await
}
