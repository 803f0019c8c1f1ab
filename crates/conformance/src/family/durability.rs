//! B1001 to B1007: what was acknowledged survives SIGKILL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_proto::v1alpha1 as pb;
use futures::future::join_all;
use pb::MachineState as S;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, Stop, broken, ensure, equal, fenced, ok, operation};
use crate::context::{Context, map, metadata, token, transitional};
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Durable:
    "B1001" [Durable] => marks_survive;
        "After SIGKILL and a restart a token that was stale before is fenced out."
        "Write the mark in the same record as the change, and sync it before the answer."
    "B1002" [Durable] => operations_survive;
        "After SIGKILL and a restart a repeat has the operation_id it had before."
        "Store operation ids with their machines."
    "B1003" [Durable] => bindings_survive;
        "After SIGKILL and a restart cluster and shard_metadata are what they were, on Get and List."
        "Store the binding with the machine, metadata as raw bytes."
    "B1004" [Durable] => the_inventory_survives;
        "After SIGKILL and a restart the inventory has the same machines in the same states, each once."
        "Read the store first and add only what it does not know from the substrate."
    "B1005" [Durable] => operations_stay_new;
        "After SIGKILL and a restart new operation_ids are new, and Lists still give and take cursors."
        "Store the counter that mints ids, or use UUIDs; store the revision."
    "B1006" [Durable] => interrupted_work_ends;
        "A transition that SIGKILL interrupted ends, in FAILED with last_error or in a stable state."
        "At start, look for machines on their way: take the work up again, or fail them and say why."
    "B1007" [Durable] => new_shards_are_let_in;
        "After SIGKILL and a restart a shard that was never seen is accepted with its first low token."
        "Store marks by (shard_id, machine_id); never one mark for all."
];

async fn marks_survive(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let (id, shard) = (first.speculative().await?, c.unique("b1001"));
    ok("Create with (3, 7)", first.create_as(&id, &token(&shard, 3, 7)).await)?;
    first.reach(&id, S::Idle).await?;
    let second = life.reborn(&first).await?;
    fenced("(3, 7) again after the restart", &second.create_as(&id, &token(&shard, 3, 7)).await)?;
    fenced("(2, 99) after the restart", &second.create_as(&id, &token(&shard, 2, 99)).await)?;
    ok("(3, 8) after the restart", second.create_as(&id, &token(&shard, 3, 8)).await)?;
    life.end().await
}

async fn operations_survive(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let (id, cluster) = (first.idle().await?, "conformance-b1002");
    let before = ok("Configure", first.configure(&id, cluster, &metadata()).await)?;
    let before = operation("Configure", &before)?;
    first.reach(&id, S::Configured).await?;
    let second = life.reborn(&first).await?;
    let again = second.configure(&id, cluster, &metadata()).await;
    let again = ok("the same Configure after the restart", again)?;
    equal("operation_id after the restart", &again.operation_id, &before)?;
    life.end().await
}

async fn bindings_survive(c: &Context) -> Check {
    let md = map(&[("d/k", "v"), ("d/other", "\u{4f60}\u{597d}"), ("d/empty", "")]);
    bound_over_restart(c, &md).await
}

/// A binding with this metadata comes back after a restart, on Get and List.
pub(super) async fn bound_over_restart(c: &Context, md: &BTreeMap<String, String>) -> Check {
    let (mut life, first) = c.life().await?;
    let cluster = "conformance-bound";
    let id = first.configured_with(cluster, md).await?;
    let second = life.reborn(&first).await?;
    let seen = second.machine(&id).await?;
    let listed = second.listed(&[S::Configured]).await?;
    let Some(in_list) = listed.into_iter().find(|m| m.id == id) else {
        return broken(format!("List of Configured machines lacks {id} after the restart"));
    };
    for (how, m) in [("Get", seen), ("List", in_list)] {
        equal(&format!("state on {how} after the restart"), &m.state(), &S::Configured)?;
        equal(&format!("cluster on {how} after the restart"), &m.cluster.as_str(), &cluster)?;
        equal(&format!("shard_metadata on {how} after the restart"), &m.shard_metadata, md)?;
    }
    life.end().await
}

async fn the_inventory_survives(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    first.idle().await?;
    first.configured("conformance-b1004").await?;
    let states = |machines: Vec<pb::Machine>| {
        let mut pairs: Vec<_> = machines.into_iter().map(|m| (m.id, record::state(m.state))).collect();
        pairs.sort();
        pairs
    };
    let before = states(first.listed(&[]).await?);
    let second = life.reborn(&first).await?;
    let after = states(second.listed(&[]).await?);
    let differing =
        before.iter().find(|pair| !after.contains(pair)).or(after.iter().find(|p| !before.contains(p)));
    ensure(differing.is_none() && before.len() == after.len(), || {
        format!(
            "{} machines before, {} after; the first that differs: {differing:?}",
            before.len(),
            after.len()
        )
    })?;
    life.end().await
}

async fn operations_stay_new(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let mut minted = BTreeSet::new();
    for id in first.speculatives(4).await? {
        minted.insert(operation("Create", &ok("Create", first.create(&id).await)?)?);
        first.reach(&id, S::Idle).await?;
        let bound = first.configure(&id, "conformance-b1005", &metadata()).await;
        minted.insert(operation("Configure", &ok("Configure", bound)?)?);
        first.reach(&id, S::Configured).await?;
    }
    let cursor = first.cursor().await?;
    let second = life.reborn(&first).await?;
    second.since(&cursor, 0).await?;
    let newest = second.cursor().await?;
    ensure(cursor.is_empty() || !newest.is_empty(), || "List gives no revision any more".to_owned())?;
    second.since(&newest, 0).await?;
    for id in second.speculatives(8).await? {
        let new = operation("Create", &ok("Create after the restart", second.create(&id).await)?)?;
        ensure(minted.insert(new.clone()), || {
            format!("the operation_id {new:?} was used before the restart")
        })?;
    }
    life.end().await
}

/// Machines whose Create SIGKILL interrupts.
const INTERRUPTED: usize = 8;

async fn interrupted_work_ends(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let ids = first.speculatives(INTERRUPTED).await?;
    let mut moving = Vec::new();
    for (id, answer) in ids.iter().zip(join_all(ids.iter().map(|id| first.create(id))).await) {
        let ack = ok("Create", answer)?;
        if ack.machine.is_some_and(|m| transitional(m.state())) {
            moving.push(id);
        }
    }
    if moving.is_empty() {
        // Too fast to be interrupted: a provider that blocks on demand shows what a restart does.
        life.end().await?;
        return blocked_work_ends(c).await;
    }
    let second = life.reborn(&first).await?;
    for id in moving {
        ended(&second, id).await?;
    }
    life.end().await
}

async fn ended(c: &Context, id: &str) -> Check {
    let m = c.settled(id).await?;
    ensure(m.state() != S::Failed || !m.last_error.is_empty(), || {
        format!("FAILED after the restart without last_error: {}", record::machine(&m))
    })
}

async fn blocked_work_ends(c: &Context) -> Check {
    // Long enough to be killed in the middle.
    let timeout = Duration::from_secs(20);
    let Some((mut life, first)) = c.faulty_life(timeout).await? else {
        return Err(Stop::Unseen(
            "every Create had ended in its acknowledgement, so none could be interrupted; name a program that blocks on demand with --fault-exec".into(),
        ));
    };
    let id = first.idle().await?;
    ok("Configure for fault-timeout", first.configure(&id, "fault-timeout", &metadata()).await)?;
    let held = first.machine(&id).await?;
    ensure(held.state() == S::Configuring, || format!("it does not block: {}", record::machine(&held)))?;
    let second = life.reborn(&first).await?;
    let limit = timeout + c.settings.settle;
    let must = second.reach_within(&id, S::Failed, limit).await?;
    ensure(!must.last_error.is_empty(), || "FAILED after the restart without last_error".to_owned())?;
    life.end().await
}

async fn new_shards_are_let_in(c: &Context) -> Check {
    let (mut life, first) = c.life().await?;
    let (id, high, low) = (first.speculative().await?, c.unique("b1007-high"), c.unique("b1007-low"));
    ok("Create with (900, 900)", first.create_as(&id, &token(&high, 900, 900)).await)?;
    first.reach(&id, S::Idle).await?;
    let second = life.reborn(&first).await?;
    ok("a new shard's (1, 1), same machine", second.create_as(&id, &token(&low, 1, 1)).await)?;
    let other = second.speculative().await?;
    ok("a new shard's (1, 1), another machine", second.create_as(&other, &token(&low, 1, 1)).await)?;
    life.end().await
}
