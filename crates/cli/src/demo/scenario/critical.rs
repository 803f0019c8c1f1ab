//! `critical`: what matters most is bought on demand while that can be had; once the cloud is out of stock, batch of
//! another cluster gives way to it, with a grace and no more than is needed, and production does not notice.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_operator::memory::PodPhase;
use bigfleet_proto::v1alpha1::Machine;
use bigfleet_provider_kit::fakecloud::{ClassKey, Control};
use bigfleet_types::{CapacityType, MachineState};

use super::{Claim, Director, bound_to, changed_hands, count, declared};
use crate::demo::audit::Entry;
use crate::demo::cluster::{Cluster, MOST_LEVELS, PODS_PER_LEVEL, Tier};
use crate::demo::world::{is_bought, state};

/// How many machines are bought for it, and how many have to be taken from batch.
const BOUGHT: u32 = 2;
const TAKEN: u32 = 6;
/// Production, batch and critical demand, each in a cluster of its own: then the pods of a machine are of one kind.
const PRODUCTION: &str = "cluster-a";
const BATCH: &str = "cluster-b";
const CRITICAL: &str = "cluster-c";
/// The grace that a drain has when so much more important demand waits, in seconds.
const GRACE: u64 = 10;

pub(super) async fn play(director: &Director<'_>) -> anyhow::Result<Vec<Claim>> {
    let world = director.world;
    let [production, batch, critical] = [PRODUCTION, BATCH, CRITICAL].map(|name| world.cluster(name));
    let (production, batch, critical) = (production?, batch?, critical?);
    set_the_stage(director, production, batch, critical).await?;

    let offered = director.list().await?;
    let level = critical.level(Tier::Critical) + BOUGHT;
    director.say(format!("{CRITICAL} asks for {BOUGHT} levels more: critical {level}"));
    critical.set_level(Tier::Critical, level)?;
    director.rest().await?;
    let before = director.list().await?;

    let _in_stock_again = StockOut::of(world.control(), &before);
    director.say("the cloud is out of stock: nothing can be bought any more");
    let calm = [production, critical].map(disrupted);
    let evicted = batch.memory().view().disruptions.evicted;
    let level = level + TAKEN;
    director.say(format!("{CRITICAL} asks for {TAKEN} levels more: critical {level}"));
    critical.set_level(Tier::Critical, level)?;
    let moving = || {
        let on_its_way = |m: &std::sync::Arc<Machine>| state(m).is_some_and(MachineState::is_transitional);
        world.control().machines().iter().any(on_its_way)
    };
    let served = || critical.is_content(&critical.memory().view()) && !moving();
    let have = || format!("{CRITICAL} has {} nodes", critical.memory().view().nodes.len());
    director.wait("every critical pod runs", || served().then_some(()), have).await?;
    let after = director.list().await?;

    let audit = world.audit()?;
    let preempts: Vec<&Entry> = audit.iter().filter(|entry| entry.kind == "Preempt").collect();
    let given =
        bound_to(&before, BATCH).intersection(&bound_to(&after, CRITICAL)).cloned().collect::<Vec<_>>();
    let told = given.iter().filter(|id| changed_hands(&audit, id, "Preempt", BATCH, CRITICAL)).count();
    let graces: BTreeSet<u64> = preempts.iter().map(|entry| entry.grace_seconds).collect();
    let view = batch.memory().view();
    let (waiting, evicted) = (view.pods_in(PodPhase::Pending), view.disruptions.evicted - evicted);
    let undisturbed = [production, critical].map(disrupted) == calm;
    let taken = usize::try_from(TAKEN)?;
    let pods = usize::try_from(TAKEN * PODS_PER_LEVEL)?;
    Ok(vec![
        bought_on_demand(&offered, &before)?,
        Claim::new(
            "6 machines go from batch in cluster-b over Idle to cluster-c, by the provider's List and the audit log",
            given.len() == taken && told == taken,
            format!("{} by the List, {told} by the log: {}", given.len(), given.join(", ")),
        ),
        Claim::new(
            "each is preempted once, with the grace of its gap, and nothing else is",
            preempts.len() == taken && graces == BTreeSet::from([GRACE]),
            format!("{} Preempts with a grace of {graces:?} s", preempts.len()),
        ),
        Claim::new(
            "the pods that make room are those of batch, and no more than fit on 6 machines",
            usize::try_from(evicted)? == pods && waiting == pods && undisturbed,
            format!("{evicted} evicted, {waiting} wait; others undisturbed: {undisturbed}"),
        ),
        Claim::new(
            "every pod of production and every critical pod runs",
            served() && production.is_content(&production.memory().view()),
            super::super::observe::pods(world),
        ),
        Claim::same_dollars(
            "dollars an hour do not change when batch gives way",
            ("before", declared(&before)),
            ("after", declared(&after)),
        ),
    ])
}

/// Gives each kind of demand a cluster of its own, and all owned machines work.
async fn set_the_stage(
    director: &Director<'_>,
    production: &Cluster,
    batch: &Cluster,
    critical: &Cluster,
) -> anyhow::Result<()> {
    director.rest().await?;
    director.insist_on_owned_machines()?;
    if batch.level(Tier::Production) + critical.level(Tier::Production) > 0 {
        anyhow::bail!("scenario critical: production runs outside {PRODUCTION}; go back to the first demand");
    }
    // What ran as batch there is replaced on the same machines.
    become_one_tier(director, production, Tier::Production).await?;
    become_one_tier(director, critical, Tier::Critical).await?;
    director.rest().await?;
    let idle = count(&director.list().await?, MachineState::Idle);
    let level = batch.level(Tier::Batch) + u32::try_from(idle)?;
    if !(TAKEN..=MOST_LEVELS).contains(&level) {
        anyhow::bail!(
            "scenario critical: {BATCH} would run {level} levels of batch; give sizes for {TAKEN} to {MOST_LEVELS}"
        );
    }
    director.say(format!("{BATCH} takes the {idle} Idle machines: batch {level}"));
    batch.set_level(Tier::Batch, level)?;
    director.rest().await
}

/// Turns the cluster's batch into levels of the tier.
async fn become_one_tier(director: &Director<'_>, cluster: &Cluster, tier: Tier) -> anyhow::Result<()> {
    let level = cluster.level(tier) + cluster.level(Tier::Batch);
    if level > MOST_LEVELS {
        anyhow::bail!("scenario critical: {} cannot run {level} levels of {tier}", cluster.name());
    }
    director.say(format!("{}: what was batch becomes {tier} {level}", cluster.name()));
    cluster.set_level(Tier::Batch, 0)?;
    // Room first: more demand than before, for a moment, would take machines.
    let gone = || cluster.memory().view().pods.iter().all(|pod| pod.deployment != Tier::Batch.name());
    director.wait("its batch pods are gone", || gone().then_some(()), String::new).await?;
    cluster.set_level(tier, level)?;
    Ok(())
}

/// Pods that lost their node or were sent away from it.
fn disrupted(cluster: &Cluster) -> u64 {
    let disruptions = cluster.memory().view().disruptions;
    disruptions.evicted + disruptions.deleted + disruptions.node_lost
}

/// What an interruption costs made the dearer offer the cheaper one.
fn bought_on_demand(offered: &[Machine], now: &[Machine]) -> anyhow::Result<Claim> {
    let mut bought: BTreeMap<CapacityType, u32> = BTreeMap::new();
    let exists = |m: &&Machine| is_bought(m) && state(m) != Some(MachineState::Speculative);
    for kind in now.iter().filter(exists).filter_map(|m| CapacityType::from_number(m.capacity_type)) {
        *bought.entry(kind).or_default() += 1;
    }
    let cheapest = |wanted| {
        let slots = offered.iter().filter(|m| {
            state(m) == Some(MachineState::Speculative)
                && CapacityType::from_number(m.capacity_type) == Some(wanted)
        });
        slots.map(|m| m.price_per_hour).min_by(f64::total_cmp)
    };
    let (spot, on_demand) = (cheapest(CapacityType::Spot), cheapest(CapacityType::OnDemand));
    let cheaper = spot.zip(on_demand).is_some_and(|(spot, on_demand)| spot < on_demand);
    let price =
        |price: Option<f64>| price.map_or("nothing offered".to_owned(), |price| format!("${price:.2}"));
    let kinds: Vec<_> = bought.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    Ok(Claim::new(
        "critical demand is bought on demand, although spot is offered for less",
        cheaper && bought == BTreeMap::from([(CapacityType::OnDemand, BOUGHT)]),
        format!("bought {}; spot {}, on demand {}", kinds.join(", "), price(spot), price(on_demand)),
    ))
}

/// Everything that can be bought is out of stock, until this is dropped.
struct StockOut {
    control: Control,
    classes: BTreeSet<ClassKey>,
}

impl StockOut {
    fn of(control: &Control, machines: &[Machine]) -> Self {
        let classes: BTreeSet<ClassKey> =
            machines.iter().filter(|m| is_bought(m)).map(ClassKey::of).collect();
        classes.iter().for_each(|class| control.stock_out(class.clone(), true));
        Self { control: control.clone(), classes }
    }
}

impl Drop for StockOut {
    fn drop(&mut self) {
        self.classes.iter().for_each(|class| self.control.stock_out(class.clone(), false));
    }
}
