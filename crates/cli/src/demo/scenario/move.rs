//! `move`: one cluster needs less, another more; machines travel between them and nothing is bought.

use std::collections::BTreeSet;

use bigfleet_provider_kit::faults::Method;
use bigfleet_types::MachineState;

use super::{Claim, Director, bound_to, changed_hands, count, declared};
use crate::demo::cluster::{MOST_LEVELS, Tier};
use crate::demo::world::state;

/// How many machines have to travel.
const TRAVELLERS: u32 = 6;
/// How many levels fewer the giving cluster wants: more than have to travel, so that the rail is what limits.
const FALL: u32 = 8;
const FROM: &str = "cluster-a";
const TO: &str = "cluster-b";

pub(super) async fn play(director: &Director<'_>) -> anyhow::Result<Vec<Claim>> {
    let world = director.world;
    let (from, to) = (world.cluster(FROM)?, world.cluster(TO)?);
    director.rest().await?;
    director.insist_on_owned_machines()?;

    // Every machine is the same size, so every Idle one would serve the other cluster at once.
    let idle = count(&director.list().await?, MachineState::Idle);
    let room = usize::try_from(MOST_LEVELS - from.level(Tier::Production))?;
    if idle > room {
        anyhow::bail!(
            "scenario move: {idle} machines are Idle and {FROM} can use {room}; give smaller sizes"
        );
    }
    let full = from.level(Tier::Production) + u32::try_from(idle)?;
    if full < FALL {
        anyhow::bail!("scenario move: {FROM} runs {full} levels of production, and {FALL} have to fall away");
    }
    director.say(format!("{FROM} takes the {idle} Idle machines: production {full}"));
    from.set_level(Tier::Production, full)?;
    director.rest().await?;
    let before = director.list().await?;
    let creates = world.control().total_calls(Method::Create);

    director.say(format!(
        "{FROM}'s demand falls by {FALL} levels; reclaims wait for --reclaim-after and the cap"
    ));
    from.set_level(Tier::Production, full - FALL)?;
    let givers = bound_to(&before, FROM);
    let returned = || {
        let machines = world.control().machines();
        machines.iter().filter(|m| state(m) == Some(MachineState::Idle) && givers.contains(&m.id)).count()
    };
    let enough = usize::try_from(TRAVELLERS)?;
    director
        .wait(
            &format!("{TRAVELLERS} of {FROM}'s machines are Idle"),
            || (returned() >= enough).then_some(()),
            || format!("{} are back", returned()),
        )
        .await?;
    // The shard learns of a drain's end by its next Get. Demand that comes before that is right to buy.
    director.say("waiting until the shard knows of them");
    while world.idle_told_by_shard().await? < f64::from(TRAVELLERS) {
        director.check_time("the shard knows of the Idle machines")?;
        tokio::time::sleep(super::LOOK_EVERY).await;
    }
    let between = director.list().await?;

    let wanted = to.level(Tier::Batch) + TRAVELLERS;
    director.say(format!("{TO} asks for {TRAVELLERS} levels more: batch {wanted}"));
    to.set_level(Tier::Batch, wanted)?;
    let content = || to.is_content(&to.memory().view()).then_some(());
    let have = || format!("{TO} has {} nodes", to.memory().view().nodes.len());
    director.wait(&format!("every pod of {TO} runs"), content, have).await?;
    director.wait("every pod runs", || world.all_run().then_some(()), have).await?;
    let after = director.list().await?;

    let idle = between.iter().filter(|m| state(m) == Some(MachineState::Idle));
    let idle: BTreeSet<&str> = idle.map(|m| m.id.as_str()).collect();
    let travelled: Vec<_> = bound_to(&after, TO)
        .into_iter()
        .filter(|id| givers.contains(id) && idle.contains(id.as_str()))
        .collect();
    let audit = world.audit()?;
    let told = travelled.iter().filter(|id| changed_hands(&audit, id, "Reclaim", FROM, TO)).count();
    let created = world.control().total_calls(Method::Create) - creates;
    let provisions = audit.iter().filter(|entry| entry.kind == "Provision").count();
    Ok(vec![
        Claim::new(
            "no matching machine is Idle at the start",
            count(&before, MachineState::Idle) == 0,
            format!("{} Idle, {} in {FROM}", count(&before, MachineState::Idle), givers.len()),
        ),
        Claim::new(
            "at least 6 machines travel from cluster-a over Idle to cluster-b, by the provider's List",
            travelled.len() >= enough,
            format!("{} do: {}", travelled.len(), travelled.join(", ")),
        ),
        Claim::new(
            "the audit log has a Reclaim from cluster-a and then a Bootstrap for cluster-b of each",
            told >= enough && told == travelled.len(),
            format!("of {told}"),
        ),
        Claim::new(
            "no Create reaches the provider",
            created == 0 && provisions == 0,
            format!("{created} calls, {provisions} Provisions in the audit log"),
        ),
        Claim::same_dollars(
            "dollars an hour do not change",
            ("before", declared(&before)),
            ("after", declared(&after)),
        ),
        Claim::new("every pod runs", world.all_run(), super::super::observe::pods(world)),
    ])
}
