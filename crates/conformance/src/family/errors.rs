//! B201 to B215: calls out of place, repeats, and malformed requests.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;
use tonic::Code;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, answers, code, ensure, equal, fenced, not_fenced, ok, operation, refused};
use crate::context::{CLUSTER, Context, Kind, Token, map, metadata, token};
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B201" [Core] => create_on_configured;
        "Create of a Configured machine is refused, not with FAILED_PRECONDITION, and changes nothing."
        "Check the position before anything is started; INTERNAL is the customary code."
    "B202" [Core] => configure_on_speculative;
        "Configure of a Speculative machine is refused, not with FAILED_PRECONDITION, and changes nothing."
        "Check the position before anything is started; INTERNAL is the customary code."
    "B203" [Core] => drain_on_idle;
        "Drain of an Idle machine is never answered FAILED_PRECONDITION and leaves it Idle."
        "Answer a repeat alike and refuse everything else with INTERNAL; FAILED_PRECONDITION is for the fence."
    "B204" [Core Cloud] => delete_out_of_place;
        "Delete of a Speculative or Configured machine is never answered FAILED_PRECONDITION and changes nothing."
        "Delete starts from Idle only; refuse elsewhere with INTERNAL, or with UNIMPLEMENTED if there is no Delete."
    "B205" [Core] => repeats_change_nothing;
        "Create at Idle and Configure at Configured, asked again, succeed and change nothing."
        "Look for a repeat before the position check, and answer it from the record."
    "B206" [Core] => repeats_keep_the_operation;
        "A repeat at the target carries the operation_id of the call that led there."
        "Store the id with the machine when the call is accepted; do not mint one per request."
    "B207" [Core] => unknown_machine;
        "Create, Configure and Drain of a machine that is not there are answered NOT_FOUND."
        "Look the machine up after the fence and before all other checks."
    "B208" [Core] => empty_machine_id;
        "Get, Create, Configure and Drain without a machine id are answered INVALID_ARGUMENT."
        "Check the shape of a request before anything else; an empty id is not an unknown one."
    "B209" [Core] => large_metadata;
        "512 KiB of metadata are kept to the byte or refused with INVALID_ARGUMENT, changing nothing."
        "Check the size before the machine is touched; never cut."
    "B210" [Core] => negative_grace;
        "A Drain with a negative grace is refused with INVALID_ARGUMENT (or drains to the end), nothing in between."
        "Refuse with INVALID_ARGUMENT; N101 says who does."
    "B211" [Core] => negative_token;
        "A negative epoch or sequence number is refused with INVALID_ARGUMENT (or taken), never with FAILED_PRECONDITION."
        "Refuse with INVALID_ARGUMENT before the fence compares; N102 says who does."
    "B212" [Core] => largest_token;
        "A token of two largest 64-bit numbers is accepted, and is the mark from then on."
        "Compare epoch, then sequence; never add to them or fold them into one number."
    "B213" [Core] => large_blob;
        "A 3 MiB bootstrap blob is taken or refused with INVALID_ARGUMENT, changing nothing."
        "Set the server's receive limit above gRPC's 4 MiB and check the blob's size yourself."
    "B214" [Core] => new_cycles_mint_new_operations;
        "Every new transition of a machine has an operation_id of its own."
        "Mint from a persisted counter or a UUID at acceptance; never derive the id from machine and kind."
    "B215" [Core Cloud] => unknown_get_and_delete;
        "Get of a machine that is not there is answered NOT_FOUND; Delete too, or UNIMPLEMENTED."
        "Let Delete look the machine up like every other call."
];

async fn create_on_configured(c: &Context) -> Check {
    let id = c.configured("conformance-b201").await?;
    refused("Create of a Configured machine", &c.create(&id).await)?;
    c.stays(&id, S::Configured).await
}

async fn configure_on_speculative(c: &Context) -> Check {
    let id = c.speculative().await?;
    refused("Configure of a Speculative machine", &c.configure(&id, CLUSTER, &metadata()).await)?;
    c.stays(&id, S::Speculative).await?;
    equal("cluster after the refusal", &c.machine(&id).await?.cluster.as_str(), &"")
}

async fn drain_on_idle(c: &Context) -> Check {
    let id = c.idle().await?;
    not_fenced("Drain of an Idle machine", &c.drain(&id, 5).await)?;
    c.stays(&id, S::Idle).await
}

async fn delete_out_of_place(c: &Context) -> Check {
    let id = c.speculative().await?;
    not_fenced("Delete of a Speculative machine", &c.delete(&id).await)?;
    c.stays(&id, S::Speculative).await?;
    let id = c.configured("conformance-b204").await?;
    refused("Delete of a Configured machine", &c.delete(&id).await)?;
    c.stays(&id, S::Configured).await
}

async fn repeats_change_nothing(c: &Context) -> Check {
    let id = c.speculative().await?;
    ok("Create", c.create(&id).await)?;
    c.reach(&id, S::Idle).await?;
    ok("Create at Idle, asked again", c.create(&id).await)?;
    c.stays(&id, S::Idle).await?;
    c.bind(&id, CLUSTER, &metadata()).await?;
    ok("Configure at Configured, asked again", c.configure(&id, CLUSTER, &metadata()).await)?;
    c.stays(&id, S::Configured).await
}

async fn repeats_keep_the_operation(c: &Context) -> Check {
    let id = c.speculative().await?;
    let first = operation("Create", &ok("Create", c.create(&id).await)?)?;
    c.reach(&id, S::Idle).await?;
    let again = operation("Create at Idle", &ok("Create at Idle", c.create(&id).await)?)?;
    equal("operation_id of a repeated Create", &again, &first)?;
    let first = ok("Configure", c.configure(&id, CLUSTER, &metadata()).await)?;
    let first = operation("Configure", &first)?;
    c.reach(&id, S::Configured).await?;
    let again = ok("Configure at Configured", c.configure(&id, CLUSTER, &metadata()).await)?;
    equal("operation_id of a repeated Configure", &operation("Configure", &again)?, &first)?;
    let first = operation("Drain", &ok("Drain", c.drain(&id, 5).await)?)?;
    c.reach(&id, S::Idle).await?;
    let again = operation("Drain at Idle", &ok("Drain at Idle", c.drain(&id, 5).await)?)?;
    equal("operation_id of a repeated Drain", &again, &first)
}

async fn unknown_machine(c: &Context) -> Check {
    let ghost = c.unique("ghost");
    for kind in [Kind::Create, Kind::Configure, Kind::Drain] {
        let what = format!("{kind:?} of an unknown machine");
        answers(&what, &c.act(kind, &ghost, &Token::default()).await, &[Code::NotFound])?;
    }
    answers("Get afterwards: nothing may have come into being", &c.get(&ghost).await, &[Code::NotFound])
}

async fn empty_machine_id(c: &Context) -> Check {
    answers("Get without an id", &c.get("").await, &[Code::InvalidArgument])?;
    for kind in [Kind::Create, Kind::Configure, Kind::Drain] {
        let what = format!("{kind:?} without machine_id");
        answers(&what, &c.act(kind, "", &Token::default()).await, &[Code::InvalidArgument])?;
    }
    Ok(())
}

/// A Configure that must be kept to the byte or refused with one of `refusals` without a trace.
pub(super) async fn kept_or_refused(
    c: &Context,
    id: &str,
    metadata: &BTreeMap<String, String>,
    blob: &[u8],
    refusals: &[Code],
) -> Check {
    let answer = c.configure_as(id, CLUSTER, metadata, blob, &Token::default()).await;
    if answer.is_ok() {
        c.reach(id, S::Configured).await?;
        let m = c.machine(id).await?;
        equal("cluster", &m.cluster.as_str(), &CLUSTER)?;
        return ensure(m.shard_metadata == *metadata, || {
            format!(
                "accepted, and {} of {} metadata keys came back unaltered",
                m.shard_metadata.iter().filter(|(key, value)| metadata.get(*key) == Some(value)).count(),
                metadata.len()
            )
        });
    }
    answers("a Configure too large to be taken", &answer, refusals)?;
    c.stays(id, S::Idle).await?;
    let m = c.machine(id).await?;
    ensure(m.cluster.is_empty() && m.shard_metadata.is_empty(), || {
        format!("refused, but part of it was kept: {}", record::machine(&m))
    })
}

async fn large_metadata(c: &Context) -> Check {
    let id = c.idle().await?;
    let large = (0..512).map(|n| (format!("conformance/key-{n:03}"), "v".repeat(1024))).collect();
    kept_or_refused(c, &id, &large, b"# small\n", &[Code::InvalidArgument]).await
}

async fn large_blob(c: &Context) -> Check {
    let id = c.idle().await?;
    let blob = vec![b'x'; 3 << 20];
    // A transport that refuses the frame answers RESOURCE_EXHAUSTED, which leaves no trace either.
    kept_or_refused(c, &id, &map(&[("k", "v")]), &blob, &[Code::InvalidArgument, Code::ResourceExhausted])
        .await
}

async fn negative_grace(c: &Context) -> Check {
    let id = c.configured("conformance-b210").await?;
    let answer = c.drain(&id, -5).await;
    if answer.is_ok() {
        return equal("cluster", &c.reach(&id, S::Idle).await?.cluster.as_str(), &"");
    }
    answers("Drain with grace -5", &answer, &[Code::InvalidArgument])?;
    c.stays(&id, S::Configured).await
}

async fn negative_token(c: &Context) -> Check {
    for (epoch, sequence) in [(-1, 1), (1, -1), (-7, -3)] {
        let id = c.speculative().await?;
        let shard = c.unique("b211");
        let answer = c.create_as(&id, &token(&shard, epoch, sequence)).await;
        let what = format!("Create with epoch {epoch}, sequence {sequence}");
        answers(&what, &answer, &[Code::InvalidArgument, Code::Ok])?;
        match code(&answer) {
            Code::Ok => c.reach(&id, S::Idle).await.map(drop)?,
            _ => c.stays(&id, S::Speculative).await?,
        }
    }
    Ok(())
}

async fn largest_token(c: &Context) -> Check {
    let (id, shard) = (c.idle().await?, c.unique("b212"));
    let largest = token(&shard, i64::MAX, i64::MAX);
    ok("Configure with the largest token", c.act(Kind::Configure, &id, &largest).await)?;
    let bound = c.reach(&id, S::Configured).await?;
    ensure(!bound.cluster.is_empty(), || "acknowledged, but not bound".to_owned())?;
    fenced("the largest token again", &c.act(Kind::Create, &id, &largest).await)?;
    let below = token(&shard, i64::MAX - 1, i64::MAX);
    fenced("a token of the epoch before", &c.act(Kind::Create, &id, &below).await)
}

async fn new_cycles_mint_new_operations(c: &Context) -> Check {
    let id = c.speculative().await?;
    let mut ids: Vec<(String, String)> = Vec::new();
    let steps = [
        ("Create", Kind::Create, S::Idle),
        ("Configure", Kind::Configure, S::Configured),
        ("Drain", Kind::Drain, S::Idle),
        ("second Configure", Kind::Configure, S::Configured),
        ("second Drain", Kind::Drain, S::Idle),
    ];
    for (name, kind, target) in steps {
        let ack = ok(name, c.act(kind, &id, &Token::default()).await)?;
        let minted = operation(name, &ack)?;
        if let Some((_, before)) = ids.iter().find(|(known, _)| *known == minted) {
            return crate::check::broken(format!(
                "the {name} has the operation_id {minted:?} of the {before}"
            ));
        }
        ids.push((minted, name.to_owned()));
        c.reach(&id, target).await?;
    }
    let again = ok("the second Drain, repeated", c.drain(&id, 5).await)?;
    equal("operation_id of the repeat", &Some(&again.operation_id), &ids.last().map(|(id, _)| id))
}

async fn unknown_get_and_delete(c: &Context) -> Check {
    let ghost = c.unique("ghost");
    answers("Get of an unknown machine", &c.get(&ghost).await, &[Code::NotFound])?;
    answers("Delete of an unknown machine", &c.delete(&ghost).await, &[Code::NotFound, Code::Unimplemented])
}
