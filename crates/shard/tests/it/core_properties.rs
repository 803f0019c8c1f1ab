//! Properties of the core over random histories, by the numbers of the invariants. `World` looks at I3 after every event.

use std::collections::BTreeMap;

use bigfleet_types::MachineState;
use bigfleet_types::chance::Seeded;
use proptest::prelude::*;

use crate::core_model::{Model, Op, cluster, gpu, need};
use crate::core_random::{CLUSTERS, calm, disturb, fleet};
use crate::core_world::{World, config};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: cases(), ..ProptestConfig::default() })]

    /// I3: whatever happens, states change along legal edges, and host and cluster fit the state. Answers come in time
    /// here, so that each change can be told from a late report.
    #[test]
    fn i03_states_change_along_legal_edges(seed in any::<u64>()) {
        let mut chance = Seeded::new(seed);
        let mut world = World::new(config(), fleet());
        for _ in 0..25 {
            disturb(&mut world, &mut chance);
            // I2: no machine comes or goes, once the first List was answered.
            prop_assert!([0, 24].contains(&world.core.machines().count()));
        }
    }

    /// I6 and I24: after a kill nothing is drained before the cluster spoke, and while paused nothing is called at all.
    #[test]
    fn i06_i24_silence_and_pause_call_nothing(seed in any::<u64>()) {
        let mut chance = Seeded::new(seed);
        let mut world = World::new(config(), fleet());
        for _ in 0..12 {
            disturb(&mut world, &mut chance);
        }
        calm(&mut world);
        let mut world = world.restart(config());
        world.seconds(30);
        prop_assert_eq!(world.calls(Op::Drain), 0);
        world.handle(bigfleet_shard::io::Input::Paused(true));
        world.seconds(1);
        let calls = world.model.calls.len();
        for name in CLUSTERS {
            world.rollup(name, vec![need(7, 2)]);
        }
        world.seconds(120);
        prop_assert_eq!(world.model.calls.len(), calls);
    }

    /// I25: a deficit is one entry a Need, one older with every cycle interval that it lasts, and gone when it is met.
    #[test]
    fn i25_deficits_age_by_intervals(
        supply in 0..6usize,
        history in proptest::collection::vec((0..3usize, 1..5i64, 0..3i32, 0..45u64), 1..10),
    ) {
        let machines: Vec<_> = (0..supply).map(|n| gpu(&format!("m{n}"), MachineState::Idle)).collect();
        let mut world = World::new(config(), Model::with(machines));
        let interval = world.core.config().cycle_interval;
        for name in CLUSTERS {
            world.rollup(name, vec![]);
        }
        let mut ages = BTreeMap::new();
        for (who, units, priority, seconds) in history {
            // Two rows of one cluster that nothing but the priority tells apart.
            let rows = vec![need(priority, units), need(priority + 5, 1)];
            let keys: Vec<_> = rows.iter().map(|row| row.key(&cluster(CLUSTERS[who]))).collect();
            world.rollup(CLUSTERS[who], rows);
            world.seconds(1);
            for step in 0..=seconds / 10 {
                if step > 0 {
                    world.run(interval);
                }
                let now = world.now;
                let mut found = BTreeMap::new();
                for (key, entry) in world.core.shortfalls() {
                    prop_assert!(key.cluster != cluster(CLUSTERS[who]) || keys.contains(key), "withdrawn");
                    // The intervals are those of the shard, not of the entry, so one more or less may have ended.
                    let whole = u32::try_from(now.since(entry.since).as_nanos() / interval.as_nanos()).unwrap();
                    prop_assert!((whole.max(1)..=whole + 2).contains(&entry.age), "{} after {whole}", entry.age);
                    let before: Option<u32> = ages.get(key).copied();
                    prop_assert!(before.is_none_or(|before| (before..=before + 2).contains(&entry.age)));
                    found.insert(key.clone(), entry.age);
                }
                ages = found;
            }
        }
        // An empty roll-up has to be repeated before it counts.
        for name in CLUSTERS.repeat(3) {
            world.rollup(name, vec![]);
            world.seconds(20);
        }
        prop_assert_eq!(world.core.shortfalls().count(), 0);
    }
}

/// 24, as each is a history of many events; `PROPTEST_CASES` says otherwise.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.map_or(24, |text| text.parse().expect("PROPTEST_CASES is a number"))
}

/// shard.md 13.1 in numbers: deficits of a profile add up over clusters, with the age of the oldest; the most important
/// come first, of these the oldest, and no more than 100 are told. After more than 5 intervals somebody should look.
#[test]
fn the_report_of_shortfalls_is_by_profile_and_ends_at_100() {
    let mut world = World::new(config(), Model::with(vec![]));
    let interval = world.core.config().cycle_interval;
    world.rollup(CLUSTERS[0], vec![need(7, 2), need(3, 1)]);
    world.seconds(1);
    for _ in 0..6 {
        world.run(interval);
    }
    world.rollup(CLUSTERS[1], (0..120).map(|priority| need(priority, 1)).collect());
    world.seconds(1);
    assert_eq!(world.core.shortfalls().count(), 122);
    let report = world.core.reported_shortfalls();
    assert_eq!(report.len(), 100);
    let priorities: Vec<i32> = report.iter().map(|entry| entry.need.profile.priority()).collect();
    assert_eq!(priorities, (20..120).rev().collect::<Vec<_>>(), "the 20 least important are left out");

    // That little after that much has to be said three times.
    for _ in 0..3 {
        world.rollup(CLUSTERS[1], vec![need(7, 1), need(4, 1)]);
        world.seconds(1);
    }
    let report = world.core.reported_shortfalls();
    let told: Vec<_> = report
        .iter()
        .map(|entry| {
            (entry.need.profile.priority(), entry.deficit.to_string(), entry.age > 5, entry.is_escalated())
        })
        .collect();
    let gpus = |n: i64| need(0, n).aggregate.to_string();
    assert_eq!(
        told,
        [(7, gpus(3), true, true), (4, gpus(1), false, false), (3, gpus(1), true, true)],
        "{report:?}"
    );
}
