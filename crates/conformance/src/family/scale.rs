//! B1101 to B1109: thousands of machines, and minutes of churn.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1 as pb;
use futures::future::join_all;
use pb::MachineState as S;

use super::fields;
use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, Stop, broken, ensure, ok, operation};
use crate::context::{Context, metadata, transitional};
use crate::record;

/// What 99 of 100 Gets, and Creates, must keep to.
const CALL_BUDGET: Duration = Duration::from_millis(250);
/// What 99 of 100 Lists must keep to.
const LIST_BUDGET: Duration = Duration::from_secs(2);
/// What one full List must keep to.
const FULL_LIST_BUDGET: Duration = Duration::from_secs(3);
/// Machines of a page.
const PAGE: i32 = 500;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Scale:
    "B1101" [Scale] => the_full_list_is_whole;
        "A full List has every seeded machine, each in shape and with a possible price."
        "Check what you seed as strictly as what you serve."
    "B1102" [Scale] needs Revision => deltas_stay_exact;
        "After a batch of 20 changes the List since the cursor before has exactly those 20."
        "Index machines by the revision of their latest change."
    "B1103" [Scale] needs Revision => pages_cover_the_fleet;
        "Pages of 500 through the whole fleet meet every machine, none twice."
        "When a limit cuts a List, give the cursor of the last machine in it; walk in the order of revisions."
    "B1104" [Scale] => churn_leaves_nothing_behind;
        "Configure and Drain over and over leave no cluster, metadata or error at any Idle."
        "Clear all three in the one place where a Drain completes."
    "B1105" [Scale] => the_count_is_conserved;
        "Creating and deleting over and over changes the number of machines by nothing."
        "A Delete turns the machine back into its slot; it does not remove or duplicate it."
    "B1106" [Scale] => calls_keep_their_budget;
        "99 of 100 Gets and Creates take at most 250 ms, 99 of 100 Lists at most 2 s."
        "Write what changed, not the whole inventory, and never hold a lock over disk or network."
    "B1107" [Scale] => the_full_list_keeps_its_budget;
        "A full List takes at most 3 s."
        "Answer from a snapshot in memory; do not ask the substrate for each machine."
    "B1108" [Scale] => parallel_creates_stand_alone;
        "16 machines created at once have 16 operation_ids and all come to Idle."
        "Share no state between machines but the counter of ids, and make that atomic."
    "B1109" [Scale] => nothing_drifts;
        "Machines that nobody asks to move stay where they are."
        "Do not feed the substrate's status into the state of a machine that nobody asked to move."
];

async fn fleet(c: &Context) -> Check<Vec<pb::Machine>> {
    let machines = c.listed(&[]).await?;
    let wanted = usize::try_from(c.settings.scale_seed).unwrap_or(usize::MAX);
    if machines.len() < wanted {
        return Err(Stop::Unseen(format!(
            "the provider has {} machines, the scale lane wants {wanted}; seed more, or say --scale-seed",
            machines.len()
        )));
    }
    Ok(machines)
}

async fn the_full_list_is_whole(c: &Context) -> Check {
    let machines = fleet(c).await?;
    let ids: BTreeSet<_> = machines.iter().map(|m| m.id.as_str()).collect();
    ensure(ids.len() == machines.len(), || "the List names a machine twice".to_owned())?;
    for m in &machines {
        fields::named(m)?;
        fields::placed(m)?;
        fields::priced(m)?;
    }
    Ok(())
}

async fn deltas_stay_exact(c: &Context) -> Check {
    fleet(c).await?;
    let ids = c.idles(20).await?;
    let cursor = c.cursor().await?;
    c.bind_all(&ids, "conformance-b1102").await?;
    let delta = c.since(&cursor, 0).await?.machines;
    let got: BTreeSet<_> = delta.iter().map(|m| &m.id).collect();
    let wanted: BTreeSet<_> = ids.iter().collect();
    ensure(got == wanted, || {
        let missing: Vec<_> = wanted.difference(&got).collect();
        let extra: Vec<_> = got.difference(&wanted).collect();
        format!("missing from the delta: {missing:?}; too many in it: {extra:?}")
    })
}

async fn pages_cover_the_fleet(c: &Context) -> Check {
    let mut left: BTreeSet<_> = fleet(c).await?.into_iter().map(|m| m.id).collect();
    let pages = left.len().div_ceil(usize::try_from(PAGE).unwrap_or(1)) + 8;
    let mut cursor = Vec::new();
    for n in 0..pages {
        let page = c.since(&cursor, PAGE).await?;
        if page.machines.is_empty() && n > 1 {
            break;
        }
        // A provider whose capped answer carries the cursor of the head cannot be paged; its full List counts.
        if page.machines.is_empty() && n == 1 {
            return Ok(());
        }
        for m in &page.machines {
            ensure(left.remove(&m.id), || format!("page {n} has {}, which was in a page before", m.id))?;
        }
        cursor = page.revision.to_vec();
    }
    ensure(left.is_empty(), || format!("the pages lack {} machines, first {:?}", left.len(), left.first()))
}

async fn churn_leaves_nothing_behind(c: &Context) -> Check {
    fleet(c).await?;
    let ids = c.idles(8).await?;
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds == 0 || begun.elapsed() < c.settings.soak {
        c.bind_all(&ids, "conformance-b1104").await?;
        for idle in join_all(ids.iter().map(|id| c.free(id))).await {
            let m = idle?;
            let clean = m.cluster.is_empty() && m.shard_metadata.is_empty() && m.last_error.is_empty();
            ensure(clean, || format!("round {rounds}: something is left at Idle: {}", record::machine(&m)))?;
        }
        rounds += 1;
    }
    Ok(())
}

async fn the_count_is_conserved(c: &Context) -> Check {
    let before = fleet(c).await?.len();
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds == 0 || begun.elapsed() < c.settings.soak {
        let id = c.idle().await?;
        if !c.features.delete {
            c.bind(&id, "conformance-b1105", &metadata()).await?;
            c.free(&id).await?;
        }
        c.tidy().await;
        rounds += 1;
    }
    let after = c.listed(&[]).await?.len();
    ensure(before == after, || format!("{before} machines before {rounds} rounds, {after} after"))
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
    times.get(at).copied().unwrap_or_default()
}

async fn calls_keep_their_budget(c: &Context) -> Check {
    let machines = fleet(c).await?;
    let probe = machines.first().map(|m| m.id.clone()).unwrap_or_default();
    let (mut gets, mut lists, mut creates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..120 {
        let begun = Instant::now();
        c.machine(&probe).await?;
        gets.push(begun.elapsed());
    }
    for _ in 0..120 {
        let begun = Instant::now();
        c.listed(&[]).await?;
        lists.push(begun.elapsed());
    }
    for id in c.speculatives(60).await? {
        let begun = Instant::now();
        ok("Create", c.create(&id).await)?;
        creates.push(begun.elapsed());
    }
    let budgets =
        [("Get", gets, CALL_BUDGET), ("Create", creates, CALL_BUDGET), ("List", lists, LIST_BUDGET)];
    for (what, times, budget) in budgets {
        let p99 = p99(times);
        ensure(p99 <= budget, || format!("p99 of {what} is {p99:?} at {} machines", machines.len()))?;
    }
    Ok(())
}

async fn the_full_list_keeps_its_budget(c: &Context) -> Check {
    fleet(c).await?;
    let begun = Instant::now();
    let machines = c.listed(&[]).await?;
    let took = begun.elapsed();
    ensure(took <= FULL_LIST_BUDGET, || format!("a List of {} machines took {took:?}", machines.len()))
}

async fn parallel_creates_stand_alone(c: &Context) -> Check {
    fleet(c).await?;
    let ids = c.speculatives(16).await?;
    let mut minted = BTreeSet::new();
    for answer in join_all(ids.iter().map(|id| c.create(id))).await {
        let new = operation("Create", &ok("Create", answer)?)?;
        ensure(minted.insert(new.clone()), || format!("two machines share the operation_id {new:?}"))?;
    }
    for id in &ids {
        c.reach(id, S::Idle).await?;
    }
    Ok(())
}

async fn nothing_drifts(c: &Context) -> Check {
    fleet(c).await?;
    let ids = c.idles(8).await?;
    let begun = Instant::now();
    let span = (c.settings.soak / 4).clamp(c.settings.window, Duration::from_secs(3));
    while begun.elapsed() < span {
        for id in &ids {
            let m = c.machine(id).await?;
            if transitional(m.state()) || m.state() == S::Failed {
                return broken(format!("nobody asked it to move, and it is {}", record::machine(&m)));
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_time_that_99_of_100_keep() {
        let times = |n: u64| (1..=n).map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(p99(times(100)), Duration::from_millis(99));
        assert_eq!(p99(times(120)), Duration::from_millis(119));
        assert_eq!(p99(times(1)), Duration::from_millis(1));
        assert_eq!(p99(Vec::new()), Duration::ZERO);
    }
}
