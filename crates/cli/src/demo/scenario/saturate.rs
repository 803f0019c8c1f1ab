//! `saturate`: more demand than owned machines; the cheapest offers are bought, and every dollar is accounted for.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1::Machine;
use bigfleet_types::{CapacityType, MachineState};

use super::{Claim, Director, declared};
use crate::demo::cluster::{Cluster, MOST_LEVELS, Tier};
use crate::demo::world::{is_bought, state};

/// How many machines beyond everything owned and all spot are wanted: so many have to be bought on demand.
const BEYOND: usize = 6;

pub(super) async fn play(director: &Director<'_>) -> anyhow::Result<Vec<Claim>> {
    let world = director.world;
    director.rest().await?;
    let before = director.list().await?;
    let owned = before.iter().filter(|m| !is_bought(m)).count();
    let spot = of_type(&before, CapacityType::Spot).count();
    let wanted: u32 = world.clusters().iter().flat_map(Cluster::demand).map(|(_, level)| level).sum();
    let target = u32::try_from(owned + spot + BEYOND)?;
    director.say(format!(
        "{owned} machines are owned and {spot} spot slots offered; demand rises from {wanted} to {target} levels"
    ));
    raise(director, target.saturating_sub(wanted))?;
    director.rest().await?;

    // The shard's gauges are those of its last cycle, and one comes at least every --cycle-interval.
    let list = director.list().await?;
    let listed = declared(&list);
    let mut told = world.dollars_told_by_shard().await?;
    while (told - listed).abs() >= super::CENT_FRACTION && director.began.elapsed() < director.limit {
        tokio::time::sleep(super::LOOK_EVERY).await;
        told = world.dollars_told_by_shard().await?;
    }

    let bought = |kind| of_type(&list, kind).filter(|m| exists(m)).count();
    let (on_demand, spot) = (bought(CapacityType::OnDemand), bought(CapacityType::Spot));
    let idle_owned = list.iter().filter(|m| !is_bought(m) && state(m) == Some(MachineState::Idle)).count();
    let catalogue = by_the_catalogue(&before, &list);
    Ok(vec![
        Claim::new("on-demand machines are bought", on_demand > 0, on_demand.to_string()),
        Claim::new("spot machines are bought", spot > 0, spot.to_string()),
        Claim::new("no owned machine is left Idle", idle_owned == 0, idle_owned.to_string()),
        Claim::same_dollars(
            "dollars an hour, as the shard tells them, are the sum of the declared prices of the machines that exist",
            ("the shard's metrics", told),
            ("the provider's List", listed),
        ),
        Claim::same_dollars(
            "and that is what the catalogue declared before anything was bought",
            ("the catalogue", catalogue),
            ("the provider's List", listed),
        ),
        Claim::new("every pod runs", world.all_run(), super::super::observe::pods(world)),
    ])
}

/// Raises demand by so many levels, one after the other over all deployments that have room.
fn raise(director: &Director<'_>, by: u32) -> anyhow::Result<()> {
    let world = director.world;
    let mut levels: BTreeMap<(usize, Tier), u32> = BTreeMap::new();
    for (at, cluster) in world.clusters().iter().enumerate() {
        // Production of the first cluster only, as in the beginning: the rest of the demand is batch.
        let tiers = if at == 0 { &[Tier::Batch, Tier::Production][..] } else { &[Tier::Batch] };
        levels.extend(tiers.iter().map(|tier| ((at, *tier), cluster.level(*tier))));
    }
    for _ in 0..by {
        let least = levels.iter().min_by_key(|(_, level)| **level).map(|(key, _)| *key);
        match least.and_then(|key| levels.get_mut(&key)) {
            Some(level) if *level < MOST_LEVELS => *level += 1,
            _ => anyhow::bail!(
                "scenario saturate: {by} levels more do not fit into the clusters; give smaller sizes"
            ),
        }
    }
    for ((at, tier), level) in levels {
        let cluster = &world.clusters()[at];
        if cluster.level(tier) != level {
            director.say(format!("{} wants {tier} {level}", cluster.name()));
            cluster.set_level(tier, level)?;
        }
    }
    Ok(())
}

fn exists(machine: &Machine) -> bool {
    state(machine) != Some(MachineState::Speculative)
}

fn of_type(machines: &[Machine], kind: CapacityType) -> impl Iterator<Item = &Machine> {
    machines.iter().filter(move |m| CapacityType::from_number(m.capacity_type) == Some(kind))
}

/// The prices declared in `before` of the machines that exist in `now`.
fn by_the_catalogue(before: &[Machine], now: &[Machine]) -> f64 {
    let prices: BTreeMap<&str, f64> = before.iter().map(|m| (m.id.as_str(), m.price_per_hour)).collect();
    let known = now.iter().filter(|m| exists(m)).map(|m| prices.get(m.id.as_str()).copied());
    // A machine that nobody declared makes the sum no number, and so every comparison fail.
    known.map(|price| price.unwrap_or(f64::NAN)).fold(0.0, |sum, price| sum + price)
}
