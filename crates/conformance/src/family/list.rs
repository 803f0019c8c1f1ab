//! B901 to B909: filters, limits, cursors.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, broken, ensure, equal, ok};
use crate::context::Context;
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B901" [Core] => filters_are_exact;
        "A List of some states gives exactly the machines in them."
        "Filter by the state that Get would show, in the same snapshot."
    "B902" [Core] => limits_are_kept;
        "max_results 1, 2 and 3 are kept to; 0 is no limit."
        "Treat 0 as no limit, not as no machine."
    "B903" [Core] needs Revision => changes_are_in_the_delta;
        "A List since a cursor contains the machine that changed afterwards."
        "Move the revision with every change, in the transaction of the change."
    "B904" [Core] needs Revision => no_change_no_delta;
        "A List since the newest cursor is empty while nothing changes."
        "Answer with the machines whose revision is above the cursor; not at it."
    "B905" [Core] needs Revision => cursors_rise;
        "Every change moves the cursor, and any earlier cursor leads to all that changed after it."
        "Keep the revision of each machine's latest change; do not forget old ones at a newer cursor."
    "B906" [Core] => garbage_is_no_cursor;
        "A cursor that the provider never gave is no cursor: a full list, no error."
        "Treat what does not parse, or lies beyond the head, as absent."
    "B907" [Core] needs Revision => pages_cover_the_set;
        "Pages through what changed meet every machine, none twice."
        "When a limit cuts a List, give the cursor of the last machine in it, not of the head."
    "B908" [Core] needs Revision => idling_changes_nothing;
        "While nobody changes anything, Lists since a cursor stay empty."
        "Compare before writing: a look at the substrate that finds nothing new must not move the revision."
    "B909" [Core] needs Revision => cursors_are_opaque_bytes;
        "A cursor given back as it came is taken; an altered one gives a full list or a subset, never an error."
        "Compare the whole text of a cursor, and fall back to the full list."
];

fn set(what: &str, machines: &[pb::Machine]) -> Check<BTreeSet<String>> {
    let ids: BTreeSet<_> = machines.iter().map(|m| m.id.clone()).collect();
    ensure(ids.len() == machines.len(), || format!("{what} names a machine twice"))?;
    Ok(ids)
}

fn covers(what: &str, got: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Check {
    match wanted.difference(got).next() {
        None => Ok(()),
        Some(id) => broken(format!("{what} lacks {id}")),
    }
}

async fn filters_are_exact(c: &Context) -> Check {
    c.idle().await?;
    c.configured("conformance-b901").await?;
    let all = c.listed(&[]).await?;
    let of = |states: &[S]| all.iter().filter(|m| states.contains(&m.state())).cloned().collect::<Vec<_>>();
    for states in
        [&[S::Speculative][..], &[S::Idle], &[S::Configured], &[S::Failed], &[S::Idle, S::Configured]]
    {
        let names: Vec<_> = states.iter().map(|s| record::state((*s).into())).collect();
        let what = format!("List of {}", names.join(" and "));
        let got = c.listed(states).await?;
        if let Some(m) = got.iter().find(|m| !states.contains(&m.state())) {
            return broken(format!("{what} contains {}", record::machine(m)));
        }
        equal(&what, &set(&what, &got)?, &set("List", &of(states))?)?;
    }
    Ok(())
}

async fn limits_are_kept(c: &Context) -> Check {
    let all = set("List", &c.listed(&[]).await?)?;
    for most in [1, 2, 3] {
        let page =
            ok("List", c.list(pb::ListFilter { max_results: most, ..pb::ListFilter::default() }).await)?;
        let what = format!("List with max_results {most}");
        let got = set(&what, &page.machines)?;
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        ensure(got.len() <= limit, || format!("{what} gives {} machines", got.len()))?;
        ensure(!got.is_empty() || all.is_empty(), || format!("{what} gives nothing"))?;
        covers("List", &all, &got)?;
    }
    let unlimited = set("List with max_results 0", &c.since(&[], 0).await?.machines)?;
    equal("List with max_results 0", &unlimited, &all)
}

async fn changes_are_in_the_delta(c: &Context) -> Check {
    let before = c.cursor().await?;
    let id = c.configured("conformance-b903").await?;
    let after = c.cursor().await?;
    ensure(before != after, || "a change did not move the revision".to_owned())?;
    let delta = set("the delta", &c.since(&before, 0).await?.machines)?;
    covers("the List since the cursor before the change", &delta, &[id].into())
}

async fn no_change_no_delta(c: &Context) -> Check {
    let cursor = c.cursor().await?;
    let delta = c.since(&cursor, 0).await?.machines;
    ensure(delta.is_empty(), || {
        format!(
            "nothing changed, and the delta has {} machines, first {}",
            delta.len(),
            record::machine(&delta[0])
        )
    })
}

async fn cursors_rise(c: &Context) -> Check {
    let mut cursors = vec![c.cursor().await?];
    let mut changed = Vec::new();
    for round in 0..4 {
        changed.push(c.configured(&format!("conformance-b905-{round}")).await?);
        let next = c.cursor().await?;
        ensure(cursors.last() != Some(&next), || format!("change {round} did not move the revision"))?;
        cursors.push(next);
    }
    for (n, cursor) in cursors.iter().enumerate().take(changed.len()) {
        let what = format!("the List since cursor {n}");
        let delta = set(&what, &c.since(cursor, 0).await?.machines)?;
        covers(&what, &delta, &changed.iter().skip(n).cloned().collect())?;
    }
    Ok(())
}

async fn garbage_is_no_cursor(c: &Context) -> Check {
    let all = set("List", &c.listed(&[]).await?)?;
    let long = [0xde_u8; 4096];
    for garbage in [&b""[..], b"not a cursor", &[0, 0xff, 0x10, 0x42, 0x7f], &long] {
        let what = format!("the List since the cursor {}", record::cut(&format!("{garbage:?}"), 40));
        covers(&what, &set(&what, &c.since(garbage, 0).await?.machines)?, &all)?;
    }
    Ok(())
}

async fn pages_cover_the_set(c: &Context) -> Check {
    let base = c.cursor().await?;
    let mut changed = BTreeSet::new();
    for _ in 0..5 {
        changed.insert(c.configured("conformance-b907").await?);
    }
    let whole = set("the delta", &c.since(&base, 0).await?.machines)?;
    covers("the whole delta", &whole, &changed)?;
    let first = c.since(&base, 2).await?;
    ensure(first.machines.len() <= 2, || format!("a page of 2 has {}", first.machines.len()))?;
    let mut seen = set("the first page", &first.machines)?;
    covers("the whole delta, unlike a page of it,", &whole, &seen)?;
    let mut cursor = first.revision.to_vec();
    for page in 2.. {
        let next = c.since(&cursor, 2).await?;
        if let Some(again) = next.machines.iter().find(|m| seen.contains(&m.id)) {
            return broken(format!("page {page} repeats {}", again.id));
        }
        // A provider whose capped answer carries the cursor of the head cannot be paged; then the whole delta counts.
        let ended = next.machines.is_empty() || next.revision == cursor;
        if ended && page == 2 {
            return Ok(());
        }
        seen.extend(set("a page", &next.machines)?);
        if ended {
            break;
        }
        cursor = next.revision.to_vec();
        ensure(page < 1000, || "the pages do not end".to_owned())?;
    }
    covers("the walk through the pages", &seen, &changed)
}

async fn idling_changes_nothing(c: &Context) -> Check {
    let cursor = c.cursor().await?;
    let begun = Instant::now();
    for look in 1.. {
        let delta = c.since(&cursor, 0).await?.machines;
        ensure(delta.is_empty(), || {
            format!(
                "{:?} after the cursor, without any change, the delta has {} machines, first {}",
                begun.elapsed(),
                delta.len(),
                record::machine(&delta[0])
            )
        })?;
        if look > 5 && begun.elapsed() > c.settings.window * 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn cursors_are_opaque_bytes(c: &Context) -> Check {
    let all = set("List", &c.listed(&[]).await?)?;
    let cursor = c.cursor().await?;
    let delta = c.since(&cursor, 0).await?.machines;
    ensure(delta.is_empty(), || format!("nothing changed, and the delta has {} machines", delta.len()))?;
    let altered = |before: &[u8], after: &[u8]| [before, &cursor, after].concat();
    for garbage in [altered(b"", b"!"), altered(b"~", b""), altered(b"", &[0, 0xff])] {
        let what = format!("the List since the altered cursor {garbage:?}");
        covers(&what, &set(&what, &c.since(&garbage, 0).await?.machines)?, &all)?;
    }
    let mut flipped = cursor.clone();
    if let Some(last) = flipped.last_mut() {
        *last ^= 1;
    }
    let subset = set("the List since a cursor with one bit altered", &c.since(&flipped, 0).await?.machines)?;
    covers("List", &all, &subset)
}
