//! B301 to B312: who may change a machine.

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::chance::Chance;
use pb::MachineState as S;
use tonic::Code;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, Stop, answers, code, ensure, equal, fenced, ok, refused};
use crate::context::{Context, Kind, Token, token};

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B301" [Core] => fence_before_lookup;
        "A stale token is fenced out before the machine is looked up, so that a zombie learns nothing."
        "Make the fence the first thing after the shape of the request; keep marks for unknown ids too."
    "B302" [Core] => marks_stand_alone;
        "Marks belong to one shard and one machine: none fences another shard, or another machine of its shard."
        "Key marks by (shard_id, machine_id). One mark per shard fences a shard against its own parallel calls."
    "B303" [Core] => tokens_compare_exactly;
        "A token is newer if its epoch is higher, or equal with a higher sequence; all others are fenced out."
        "Compare the pair in this order; a higher epoch starts its sequence anew, at 0 even."
    "B305" [Core] => reads_are_free;
        "Get and List work whatever was fenced out, and a fenced call changes nothing."
        "Reads carry no token; leave them out of the fence."
    "B306" [Core] => fence_before_repeat_of_configure;
        "A stale token that repeats a finished Configure is fenced out, not answered as a repeat."
        "Fence first, then look for a repeat."
    "B307" [Core] => fence_before_repeat_of_drain;
        "A stale token that repeats a finished Drain is fenced out, not answered as a repeat."
        "Fence first, then look for a repeat."
    "B308" [Core] => zero_token_passes;
        "On plaintext an all-zero token passes the fence every time."
        "Skip the fence only when shard id, epoch and sequence are all empty."
    "B309" [Core] => tokens_in_order_pass;
        "Rising tokens of one shard pass on Create, Configure and Drain."
        "Every mutating call reads and moves the same mark."
    "B310" [Core] => an_epoch_ends_the_one_before;
        "After a call of a new epoch, tokens of the old one are fenced out."
        "Store the epoch with the sequence; do not reset the mark when a new epoch appears."
    "B311" [Core] => failed_calls_move_the_mark;
        "A token that passes moves the mark even if its call is then refused."
        "Write the mark when the token passes, before the position is checked."
    "B312" [Core] => tokens_match_the_rule_at_random;
        "Over a random stream of tokens, exactly those above the highest so far are accepted."
        "Compare the pair in order; move the mark on every pass and never on a refusal."
];

async fn fence_before_lookup(c: &Context) -> Check {
    let (ghost, shard) = (c.unique("ghost"), c.unique("b301"));
    let first = c.create_as(&ghost, &token(&shard, 5, 5)).await;
    answers("a first token for an unknown machine", &first, &[Code::NotFound])?;
    for kind in Kind::ALL {
        let answer = c.act(kind, &ghost, &token(&shard, 1, 1)).await;
        if kind == Kind::Delete && code(&answer) == Code::Unimplemented {
            continue;
        }
        fenced(&format!("{kind:?} of an unknown machine with a stale token"), &answer)?;
    }
    let newer = c.create_as(&ghost, &token(&shard, 9, 9)).await;
    answers("a newer token for an unknown machine", &newer, &[Code::NotFound])
}

async fn marks_stand_alone(c: &Context) -> Check {
    let ids = c.speculatives(3).await?;
    let [a, b, d] = ids.as_slice() else { return Ok(()) };
    let shards: Vec<_> = ["a", "b", "c", "d"].map(|name| c.unique(&format!("b302-{name}"))).into();
    let [sa, sb, sc, sd] = shards.as_slice() else { return Ok(()) };
    let create = async |id: &str, shard: &str, e, s| c.create_as(id, &token(shard, e, s)).await;
    ok("shard a, machine 1, (9, 9)", create(a, sa, 9, 9).await)?;
    ok("shard b, machine 2, (7, 3)", create(b, sb, 7, 3).await)?;
    ok("shard c, machine 3, (1, 1)", create(d, sc, 1, 1).await)?;
    fenced("shard a, machine 1, (1, 1)", &create(a, sa, 1, 1).await)?;
    fenced("shard b, machine 2, (7, 3) again", &create(b, sb, 7, 3).await)?;
    fenced("shard c, machine 3, (1, 1) again", &create(d, sc, 1, 1).await)?;
    ok("shard b, machine 2, (7, 4)", create(b, sb, 7, 4).await)?;
    ok("shard b, machine 1, (1, 1): the mark of shard a is not its own", create(a, sb, 1, 1).await)?;
    ok("shard d, machine 1, (5, 30)", create(a, sd, 5, 30).await)?;
    ok("shard d, machine 2, (5, 7): the mark of machine 1 is not its own", create(b, sd, 5, 7).await)?;
    fenced("shard d, machine 2, (5, 7) again", &create(b, sd, 5, 7).await)?;
    fenced("shard d, machine 1, (5, 30) again", &create(a, sd, 5, 30).await)?;
    fenced("shard d, machine 2, (4, 999)", &create(b, sd, 4, 999).await)
}

async fn tokens_compare_exactly(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b303"));
    let steps = [
        (2, 5, true),
        (2, 5, false),
        (2, 4, false),
        (1, 9, false),
        (1, i64::MAX, false),
        (2, 6, true),
        (2, 6, false),
        (2, 5, false),
        (3, 0, true),
        (3, 0, false),
        (2, 999_999, false),
        (3, 1, true),
        (4, 0, true),
        (4, 0, false),
        (10, 7, true),
        (10, 7, false),
        (9, 999, false),
    ];
    let mut mark = None;
    for (epoch, sequence, newer) in steps {
        let answer = c.create_as(&id, &token(&shard, epoch, sequence)).await;
        let what = format!("({epoch}, {sequence}) at mark {mark:?}");
        if newer {
            ok(&what, answer)?;
            mark = Some((epoch, sequence));
        } else {
            fenced(&what, &answer)?;
        }
    }
    Ok(())
}

async fn reads_are_free(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b305"));
    ok("Create with (7, 7)", c.create_as(&id, &token(&shard, 7, 7)).await)?;
    c.reach(&id, S::Idle).await?;
    for sequence in 1..=4 {
        fenced("a stale token", &c.create_as(&id, &token(&shard, 1, sequence)).await)?;
        c.machine(&id).await?;
        let idle = c.listed(&[S::Idle]).await?;
        ensure(idle.iter().any(|m| m.id == id), || format!("List of Idle machines lacks {id}"))?;
    }
    c.stays(&id, S::Idle).await
}

async fn fence_before_repeat_of_configure(c: &Context) -> Check {
    let (id, shard) = (c.idle().await?, c.unique("b306"));
    fence_before_repeat(c, Kind::Configure, &id, &shard, S::Configured).await
}

async fn fence_before_repeat_of_drain(c: &Context) -> Check {
    let (id, shard) = (c.configured("conformance-b307").await?, c.unique("b307"));
    fence_before_repeat(c, Kind::Drain, &id, &shard, S::Idle).await
}

async fn fence_before_repeat(c: &Context, kind: Kind, id: &str, shard: &str, target: S) -> Check {
    let first = ok(&format!("{kind:?} with (5, 5)"), c.act(kind, id, &token(shard, 5, 5)).await)?;
    c.reach(id, target).await?;
    fenced("its repeat with (1, 1)", &c.act(kind, id, &token(shard, 1, 1)).await)?;
    fenced("its repeat with (5, 5)", &c.act(kind, id, &token(shard, 5, 5)).await)?;
    let again = ok("its repeat with (5, 6)", c.act(kind, id, &token(shard, 5, 6)).await)?;
    equal("operation_id of the newer repeat", &again.operation_id, &first.operation_id)?;
    c.stays(id, target).await
}

async fn zero_token_passes(c: &Context) -> Check {
    if c.secured() {
        return Err(Stop::NotApplicable("under TLS it is refused, see N308".into()));
    }
    let (id, shard) = (c.speculative().await?, c.unique("b308"));
    ok("Create without a token", c.create(&id).await)?;
    ok("the same again", c.create(&id).await)?;
    ok("a token of a shard", c.create_as(&id, &token(&shard, 9, 9)).await)?;
    ok("no token once more", c.create(&id).await)?;
    c.reach(&id, S::Idle).await.map(drop)
}

async fn tokens_in_order_pass(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b309"));
    let steps = [(Kind::Create, S::Idle), (Kind::Configure, S::Configured), (Kind::Drain, S::Idle)];
    for (sequence, (kind, target)) in (1..).zip(steps) {
        ok(&format!("{kind:?} with (1, {sequence})"), c.act(kind, &id, &token(&shard, 1, sequence)).await)?;
        c.reach(&id, target).await?;
    }
    fenced("the first token again, on Create", &c.act(Kind::Create, &id, &token(&shard, 1, 1)).await)
}

async fn an_epoch_ends_the_one_before(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b310"));
    ok("(1, 1)", c.create_as(&id, &token(&shard, 1, 1)).await)?;
    ok("(1, 2)", c.create_as(&id, &token(&shard, 1, 2)).await)?;
    ok("(2, 1), a new epoch", c.create_as(&id, &token(&shard, 2, 1)).await)?;
    fenced("(1, 2) of the old epoch", &c.create_as(&id, &token(&shard, 1, 2)).await)?;
    fenced("(1, 99) of the old epoch", &c.create_as(&id, &token(&shard, 1, 99)).await)?;
    ok("(2, 2)", c.create_as(&id, &token(&shard, 2, 2)).await).map(drop)
}

async fn failed_calls_move_the_mark(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b311"));
    // Out of place: a Speculative machine cannot be configured.
    let refusal = c.act(Kind::Configure, &id, &token(&shard, 4, 4)).await;
    refused("Configure of a Speculative machine with (4, 4)", &refusal)?;
    fenced("the same token again", &c.act(Kind::Configure, &id, &token(&shard, 4, 4)).await)?;
    fenced("Create with (4, 3)", &c.create_as(&id, &token(&shard, 4, 3)).await)?;
    ok("Create with (4, 5)", c.create_as(&id, &token(&shard, 4, 5)).await).map(drop)
}

async fn tokens_match_the_rule_at_random(c: &Context) -> Check {
    let (id, shard) = (c.speculative().await?, c.unique("b312"));
    let mut chance = c.chance(312);
    let stream = (0..60).map(|_| (small(&mut chance, 5) + 1, small(&mut chance, 8)));
    follow(c, &id, &shard, stream.collect()).await
}

/// A number below `n`.
pub(super) fn small(chance: &mut impl Chance, n: u64) -> i64 {
    i64::try_from(chance.below(n)).unwrap_or(0)
}

/// Creates of one machine with these tokens: exactly those above the mark pass.
pub(super) async fn follow(c: &Context, id: &str, shard: &str, stream: Vec<(i64, i64)>) -> Check {
    let mut mark: Option<(i64, i64)> = None;
    for (step, (epoch, sequence)) in stream.into_iter().enumerate() {
        let answer = c.create_as(id, &Token { shard: shard.to_owned(), epoch, sequence }).await;
        let what = format!("step {step}: ({epoch}, {sequence}) at mark {mark:?}");
        if mark.is_none_or(|mark| (epoch, sequence) > mark) {
            ok(&what, answer)?;
            mark = Some((epoch, sequence));
        } else {
            fenced(&what, &answer)?;
        }
    }
    Ok(())
}
