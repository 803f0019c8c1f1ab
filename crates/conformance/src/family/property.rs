//! B1201 to B1205: rules held against many generated cases. The same `--random-seed` generates the same cases.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::chance::Chance;
use pb::MachineState as S;
use tonic::Code;

use super::fencing::{follow, small};
use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, answers, code, ensure, equal, fenced, not_fenced, ok, refused};
use crate::context::{CLUSTER, Context, Kind, Token, metadata, token};

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B1201" [Core] => tokens_follow_the_oracle;
        "Over hundreds of tokens near the mark, exactly the newer ones are accepted."
        "Compare the pair in order, negative numbers too once there is a mark; move it on every pass, never on a refusal."
    "B1202" [Core] => metadata_round_trips;
        "Generated metadata come back to the byte on Get and List, binding after binding."
        "Keep the map as it came; replace it at Configure and clear it at the end of a Drain."
    "B1203" [Core] => lifecycles_follow_the_model;
        "In random sequences of calls the four legal edges succeed, and everything else changes nothing."
        "Let one transition function decide, with the four edges in a table."
    "B1204" [Core] => only_the_fence_fences;
        "When several shards take turns on several machines, FAILED_PRECONDITION is said exactly to stale tokens."
        "Key marks by (shard_id, machine_id), and use the code for nothing else."
    "B1205" [Core] => codes_follow_the_rules;
        "Generated malformed requests get INVALID_ARGUMENT or NOT_FOUND as the contract says, never FAILED_PRECONDITION."
        "Check the shape, then the fence, then existence, then position, each with its own code."
];

async fn tokens_follow_the_oracle(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b1201"));
    let mut chance = c.chance(1201);
    let mut highest = (1_i64, 1_i64);
    let mut stream = vec![highest];
    for _ in 0..200 {
        let (epoch, sequence) = match small(&mut chance, 6) {
            0 => highest,
            // Just below the mark and of a new epoch, sequence numbers may be negative: they compare like all others.
            1 => (highest.0, highest.1 + small(&mut chance, 5) - 2),
            2 => ((highest.0 + small(&mut chance, 3) - 1).max(1), highest.1 + small(&mut chance, 5) - 2),
            3 => (highest.0 + 1, small(&mut chance, 3)),
            4 => (highest.0, highest.1 + 1 + small(&mut chance, 3)),
            _ => (1 + small(&mut chance, 6), small(&mut chance, 8)),
        };
        highest = highest.max((epoch, sequence));
        stream.push((epoch, sequence));
    }
    follow(c, &id, &shard, stream).await
}

fn text(chance: &mut impl Chance) -> String {
    let ranges: [(u32, u64); 5] =
        [(0x20, 0x5f), (0, 0x20), (0xa0, 0x300), (0x4e00, 0x1000), (0x1f300, 0x200)];
    (0..chance.below(24))
        .filter_map(|_| {
            let at = usize::try_from(chance.below(8)).unwrap_or(0).min(7);
            // Plain ASCII half of the time.
            let (from, size) = ranges.get(at.saturating_sub(3)).copied().unwrap_or((0x20, 0x5f));
            char::from_u32(from + u32::try_from(chance.below(size)).unwrap_or(0))
        })
        .collect()
}

async fn metadata_round_trips(c: &Context) -> Check {
    let id = c.idle().await?;
    let mut chance = c.chance(1202);
    for case in 0..12 {
        let md: BTreeMap<_, _> = (0..chance.below(12))
            .map(|n| (format!("{}-{n}", text(&mut chance)), text(&mut chance)))
            .collect();
        let cluster = format!("conformance-b1202-{case}");
        let bound = c.bind(&id, &cluster, &md).await?;
        equal(&format!("case {case}: shard_metadata on Get"), &bound.shard_metadata, &md)?;
        equal(&format!("case {case}: cluster"), &bound.cluster, &cluster)?;
        let listed = c.listed(&[S::Configured]).await?;
        let found = listed.into_iter().find(|m| m.id == id).map(|m| m.shard_metadata);
        equal(&format!("case {case}: shard_metadata on List"), &found, &Some(md))?;
        let idle = c.free(&id).await?;
        ensure(idle.cluster.is_empty() && idle.shard_metadata.is_empty(), || {
            format!("case {case}: the binding is left after the Drain")
        })?;
    }
    Ok(())
}

fn edge(from: S, kind: Kind) -> Option<S> {
    match (from, kind) {
        (S::Speculative, Kind::Create) | (S::Configured, Kind::Drain) => Some(S::Idle),
        (S::Idle, Kind::Configure) => Some(S::Configured),
        (S::Idle, Kind::Delete) => Some(S::Speculative),
        _ => None,
    }
}

fn target(kind: Kind) -> S {
    match kind {
        Kind::Create | Kind::Drain => S::Idle,
        Kind::Configure => S::Configured,
        Kind::Delete => S::Speculative,
    }
}

async fn lifecycles_follow_the_model(c: &Context) -> Check {
    let mut chance = c.chance(1203);
    for walk in 0..4 {
        let id = c.speculative().await?;
        let mut state = S::Speculative;
        for step in 0..10 {
            let kind = match chance.below(4) {
                0 => Kind::Create,
                1 => Kind::Configure,
                2 => Kind::Drain,
                _ => Kind::Delete,
            };
            let what = format!("walk {walk}, step {step}: {kind:?} at {state:?}");
            let answer = c.act(kind, &id, &Token::default()).await;
            if kind == Kind::Delete && !c.features.delete {
                refused(&what, &answer)?;
            } else if let Some(next) = edge(state, kind) {
                ok(&what, answer)?;
                c.reach(&id, next).await?;
                state = next;
            } else if state == target(kind) {
                // A repeat or a call out of place, as the machine's history has it.
                not_fenced(&what, &answer)?;
            } else {
                refused(&what, &answer)?;
            }
            let now = c.machine(&id).await?;
            ensure(now.state() == state, || format!("{what}: it is {:?} afterwards", now.state()))?;
        }
    }
    Ok(())
}

async fn only_the_fence_fences(c: &Context) -> Check {
    let ids = c.speculatives(4).await?;
    let shards: Vec<_> = (0..3).map(|n| c.unique(&format!("b1204-{n}"))).collect();
    let mut chance = c.chance(1204);
    let mut marks: BTreeMap<(usize, usize), (i64, i64)> = BTreeMap::new();
    let mut pick = |n: usize| usize::try_from(chance.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0);
    for step in 0..120 {
        let (s, m, e, q) = (pick(shards.len()), pick(ids.len()), pick(3), pick(12));
        let mark = marks.get(&(s, m)).copied();
        // Numbers below zero compare like all others once there is a mark.
        let below = if mark.is_some() { 2 } else { 0 };
        let (epoch, sequence) = (1 + i64::try_from(e).unwrap_or(0), i64::try_from(q).unwrap_or(0) - below);
        let (Some(shard), Some(id)) = (shards.get(s), ids.get(m)) else { continue };
        let answer = c.create_as(id, &token(shard, epoch, sequence)).await;
        let what = format!("step {step}: shard {s}, machine {m}, ({epoch}, {sequence}) at mark {mark:?}");
        if mark.is_none_or(|mark| (epoch, sequence) > mark) {
            ok(&what, answer)?;
            marks.insert((s, m), (epoch, sequence));
        } else {
            fenced(&what, &answer)?;
        }
    }
    Ok(())
}

async fn codes_follow_the_rules(c: &Context) -> Check {
    let (idle, bound) = (c.idle().await?, c.configured("conformance-b1205").await?);
    let mut chance = c.chance(1205);
    let no_token = Token::default();
    for step in 0..40 {
        let kinds = [Kind::Create, Kind::Configure, Kind::Drain];
        let kind = kinds.get(usize::try_from(chance.below(3)).unwrap_or(0)).copied().unwrap_or(Kind::Create);
        let what = |text: &str| format!("step {step}: {text}");
        match chance.below(6) {
            0 => {
                answers(&what("no machine id"), &c.act(kind, "", &no_token).await, &[Code::InvalidArgument])?
            }
            1 => {
                let ghost = c.unique("ghost");
                answers(&what("unknown machine"), &c.act(kind, &ghost, &no_token).await, &[Code::NotFound])?;
            }
            2 => {
                let shard = c.unique("b1205");
                let bad = token(&shard, -1 - small(&mut chance, 9), small(&mut chance, 9));
                // Out of place on purpose, so that a provider that takes the token still changes nothing.
                let answer = c.act(Kind::Create, &bound, &bad).await;
                refused(&what("negative epoch, out of place"), &answer)?;
            }
            3 => {
                let large = (0..300).map(|n| (format!("k{n}"), "v".repeat(1024))).collect();
                let answer = c.configure_as(&bound, CLUSTER, &large, b"#", &no_token).await;
                not_fenced(&what("large metadata, out of place"), &answer)?;
            }
            4 => {
                let blob = vec![b'x'; 2 << 20];
                let answer = c.configure_as(&c.unique("ghost"), CLUSTER, &metadata(), &blob, &no_token).await;
                let allowed = [Code::NotFound, Code::InvalidArgument, Code::ResourceExhausted];
                answers(&what("large blob, unknown machine"), &answer, &allowed)?;
            }
            _ => {
                let answer = c.delete(&c.unique("ghost")).await;
                answers(&what("Delete, unknown machine"), &answer, &[Code::NotFound, Code::Unimplemented])?;
            }
        }
    }
    for (id, state) in [(&idle, S::Idle), (&bound, S::Configured)] {
        let m = c.machine(id).await?;
        ensure(m.state() == state, || format!("a malformed request moved {id} to {:?}", m.state()))?;
    }
    ensure(code(&c.get(&c.unique("ghost")).await) == Code::NotFound, || "a ghost is there".to_owned())
}
