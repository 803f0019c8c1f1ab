//! B401 to B409: many calls at once.

use std::collections::BTreeSet;

use bigfleet_proto::v1alpha1 as pb;
use futures::future::{join, join_all};
use pb::MachineState as S;
use tonic::{Code, Status};

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, answers, broken, code, ensure, equal, fenced, not_fenced, ok, operation};
use crate::context::{CLUSTER, Context, Kind, Token, metadata, token};
use crate::record;

/// Identical calls at once.
const MANY: usize = 16;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B401" [Core] => creates_collapse;
        "Identical Creates of one machine at once have one operation_id and one effect."
        "Take the machine's lock before the repeat is looked for, and keep it until the record is written."
    "B402" [Core] => configures_collapse;
        "Identical Configures of one machine at once have one operation_id and one effect."
        "Take the machine's lock before the repeat is looked for, and keep it until the record is written."
    "B403" [Core] => drains_collapse;
        "Identical Drains of one machine at once have one operation_id, one effect, and leave no binding."
        "Take the machine's lock before the repeat is looked for, and keep it until the record is written."
    "B404" [Core] => conflicts_have_one_winner;
        "Of a Configure and a Drain at once the machine ends in one stable state with the fields of that state."
        "Decide position and transition under one lock; the loser sees the winner's state."
    "B405" [Core] => the_higher_epoch_wins;
        "However tokens of two epochs interleave, the old epoch's are fenced out and one of the new passes."
        "Compare and move the mark under one lock."
    "B406" [Core] => connections_do_not_matter;
        "Identical calls over different connections have one operation_id."
        "Key repeats by machine and kind of call, not by session, peer or request."
    "B407" [Core] => machines_stand_alone;
        "Machines changed side by side have operation_ids and fields of their own."
        "Share no state between machines but the counter of ids, and make that atomic."
    "B408" [Core] => snapshots_are_whole;
        "The machine in each acknowledgement of a burst is whole: its state, and the fields of that state."
        "Copy the record under the lock that guards it; never a pointer that work goes on with."
    "B409" [Cloud] needs Delete => deletes_collapse;
        "Identical Deletes of one machine at once have one operation_id and one effect."
        "Take the machine's lock before the repeat is looked for, and keep it until the record is written."
];

type Answers = Vec<Result<pb::TransitionAck, Status>>;

async fn burst(c: &Context, kind: Kind, id: &str) -> Answers {
    let unfenced = Token::default();
    join_all((0..MANY).map(|_| c.act(kind, id, &unfenced))).await
}

fn one_operation(what: &str, answers: Answers) -> Check {
    let mut ids = BTreeSet::new();
    for answer in answers {
        ids.insert(operation(what, &ok(what, answer)?)?);
    }
    ensure(ids.len() == 1, || {
        format!("{MANY} identical calls at once got {} operation_ids: {ids:?}", ids.len())
    })
}

async fn collapse(c: &Context, kind: Kind, id: &str, target: S) -> Check<pb::Machine> {
    one_operation(&format!("{kind:?} in a burst"), burst(c, kind, id).await)?;
    let machine = c.reach(id, target).await?;
    c.stays(id, target).await?;
    Ok(machine)
}

async fn creates_collapse(c: &Context) -> Check {
    let id = c.speculative().await?;
    collapse(c, Kind::Create, &id, S::Idle).await.map(drop)
}

async fn configures_collapse(c: &Context) -> Check {
    let id = c.idle().await?;
    let machine = collapse(c, Kind::Configure, &id, S::Configured).await?;
    equal("shard_metadata", &machine.shard_metadata, &metadata())
}

async fn drains_collapse(c: &Context) -> Check {
    let id = c.configured("conformance-b403").await?;
    let machine = collapse(c, Kind::Drain, &id, S::Idle).await?;
    ensure(machine.cluster.is_empty() && machine.shard_metadata.is_empty(), || {
        format!("the binding is left after the Drain: {}", record::machine(&machine))
    })
}

async fn deletes_collapse(c: &Context) -> Check {
    let id = c.idle().await?;
    collapse(c, Kind::Delete, &id, S::Speculative).await.map(drop)
}

async fn conflicts_have_one_winner(c: &Context) -> Check {
    let id = c.configured("conformance-b404").await?;
    let md = metadata();
    let (configure, drain) = join(c.configure(&id, "conformance-b404", &md), c.drain(&id, 0)).await;
    not_fenced("Configure", &configure)?;
    not_fenced("Drain", &drain)?;
    let m = c.settled(&id).await?;
    match m.state() {
        S::Idle => equal("cluster at Idle", &m.cluster.as_str(), &"")?,
        S::Configured => equal("cluster at Configured", &m.cluster.as_str(), &"conformance-b404")?,
        _ => return broken(format!("the race ended elsewhere: {}", record::machine(&m))),
    }
    c.stays(&id, m.state()).await
}

async fn the_higher_epoch_wins(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b405"));
    ok("(1, 1000)", c.create_as(&id, &token(&shard, 1, 1000)).await)?;
    c.reach(&id, S::Idle).await?;
    let tokens: Vec<_> = (0..12).flat_map(|n| [token(&shard, 1, n), token(&shard, 2, 100 + n)]).collect();
    let all = join_all(tokens.iter().map(|t| c.create_as(&id, t))).await;
    let mut passed = 0;
    for (t, answer) in tokens.iter().zip(&all) {
        let what = format!("({}, {}) in the storm", t.epoch, t.sequence);
        if t.epoch == 1 {
            fenced(&what, answer)?;
        } else {
            answers(&what, answer, &[Code::Ok, Code::FailedPrecondition])?;
            passed += u32::from(code(answer) == Code::Ok);
        }
    }
    ensure(passed > 0, || "no token of the new epoch passed".to_owned())?;
    fenced("(1, 9999) afterwards", &c.create_as(&id, &token(&shard, 1, 9999)).await)?;
    ok("(2, 9999) afterwards", c.create_as(&id, &token(&shard, 2, 9999)).await).map(drop)
}

async fn connections_do_not_matter(c: &Context) -> Check {
    let (id, other) = (c.idle().await?, c.another()?);
    let unfenced = Token::default();
    let calls = (0..MANY).map(|n| if n % 2 == 0 { c } else { &other });
    let answers = join_all(calls.map(|client| client.act(Kind::Configure, &id, &unfenced))).await;
    one_operation("Configure over two connections", answers)?;
    c.reach(&id, S::Configured).await.map(drop)
}

async fn machines_stand_alone(c: &Context) -> Check {
    let ids = c.speculatives(8).await?;
    let acks = join_all(ids.iter().map(|id| c.create(id))).await;
    let mut seen = BTreeSet::new();
    for (id, answer) in ids.iter().zip(acks) {
        let ack = ok(&format!("Create of {id}"), answer)?;
        let minted = operation("Create", &ack)?;
        ensure(seen.insert(minted.clone()), || format!("two machines share the operation_id {minted:?}"))?;
        equal("machine of the acknowledgement", &ack.machine.map(|m| m.id).as_ref(), &Some(id))?;
    }
    for id in &ids {
        c.reach(id, S::Idle).await?;
    }
    let names: Vec<_> = ids.iter().map(|id| format!("conformance-b407-{id}")).collect();
    let note = |id: &String| [("machine".to_owned(), id.clone())].into();
    let notes: Vec<_> = ids.iter().map(note).collect();
    let bound =
        join_all(ids.iter().zip(&names).zip(&notes).map(|((id, name), md)| c.bind(id, name, md))).await;
    for ((machine, name), note) in bound.into_iter().zip(&names).zip(&notes) {
        let machine = machine?;
        equal(&format!("cluster of {}", machine.id), &machine.cluster, name)?;
        equal(&format!("shard_metadata of {}", machine.id), &machine.shard_metadata, note)?;
    }
    Ok(())
}

async fn snapshots_are_whole(c: &Context) -> Check {
    let id = c.idle().await?;
    for answer in burst(c, Kind::Configure, &id).await {
        let ack = ok("Configure in a burst", answer)?;
        let Some(m) = ack.machine else { return broken("an acknowledgement has no machine") };
        let on_the_way = matches!(m.state(), S::Configuring | S::Configured);
        let whole = m.id == id && on_the_way && m.cluster == CLUSTER && m.shard_metadata == metadata();
        ensure(whole, || format!("torn: {}", record::machine(&m)))?;
    }
    c.reach(&id, S::Configured).await.map(drop)
}
