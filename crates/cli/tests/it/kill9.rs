//! Kill -9 of the shard and of the provider while demand moves.
//!
//! Both are child processes with durable folders and addresses that outlive them; three clusters with the real operator
//! core live here ([`world`]). The provider's boot command makes their nodes join and leave. Two clusters fight over one
//! kind of machine, which one of them has to give to the other piece by piece. At random points a program is
//! killed and started again. Afterwards demand is held still, and what the fleet comes to is compared with what the demand
//! asks for; then every program is killed once more, which must change nothing.
//!
//! `BIGFLEET_KILL9_POINTS` sets the number of points (5), `BIGFLEET_KILL9_SEED` repeats a run's choices.

mod demand;
mod fleet;
mod ledger;
mod programs;
mod world;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bigfleet_types::chance::{Chance as _, Seeded};

use fleet::{Fleet, Victim};

/// How many points the test command takes.
const POINTS: u64 = 5;

pub(crate) fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

pub(crate) fn some_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) ^ now.as_secs() ^ u64::from(std::process::id())
}

fn millis(chance: &mut Seeded, least: u64, most: u64) -> Duration {
    Duration::from_millis(least + chance.below(most - least))
}

/// Drill 24 of the shard and its counterpart of the provider, at random points, with drains by Reclaim and by Preempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drill24_kill9_while_demand_moves() {
    let points = from_environment("BIGFLEET_KILL9_POINTS").unwrap_or(POINTS);
    let seed = from_environment("BIGFLEET_KILL9_SEED").unwrap_or_else(some_seed);
    println!("kill9: {points} points, BIGFLEET_KILL9_SEED={seed}");
    let mut chance = Seeded::new(seed);
    let mut fleet = Fleet::start(points, seed).await;
    fleet.settle("before anything is wanted urgently").await;
    let moving = fleet.move_demand(seed ^ 1);
    for point in 1..=points {
        // So that some kills hit a preemption.
        fleet.urge();
        tokio::time::sleep(millis(&mut chance, 300, 2500)).await;
        let victim = match chance.below(5) {
            0 | 1 => Victim::Shard,
            2 | 3 => Victim::Provider,
            _ => Victim::Both,
        };
        let down = millis(&mut chance, 0, 1200);
        println!("kill9: point {point} of {points}: {victim:?}, down for {down:?}; {}", fleet.summary());
        fleet.kill(victim);
        tokio::time::sleep(down).await;
        fleet.restart(victim);
    }
    tokio::time::sleep(millis(&mut chance, 300, 1500)).await;
    moving.hold().await;
    println!("kill9: demand is held; {}", fleet.summary());

    fleet.settle("after the kills").await;
    fleet.check_history().await;
    // What the owner of a broken host does about it: its node goes. Whatever ran there has room elsewhere already.
    fleet.clear_failed_hosts().await;
    fleet.settle("after the broken hosts were taken away").await;

    let before = fleet.standing().await;
    for victim in [Victim::Shard, Victim::Provider, Victim::Both] {
        fleet.kill(victim);
        tokio::time::sleep(millis(&mut chance, 0, 500)).await;
        fleet.restart(victim);
        fleet.settle(&format!("after a kill of {victim:?} at rest")).await;
        fleet.some_cycles().await;
        let after = fleet.standing().await;
        assert_eq!(after, before, "a kill of {victim:?} changed a fleet at rest ({})", fleet.story());
    }
    println!("kill9: {}", fleet.summary());
    fleet.stop().await;
}
