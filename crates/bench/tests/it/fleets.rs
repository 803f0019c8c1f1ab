//! The generators.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use bigfleet_bench::catalogue::{RACK, RACK_KEY};
use bigfleet_bench::realistic::Realistic;
use bigfleet_bench::sizing::{PROFILES, Profile, Sizing, Tally, check};
use bigfleet_bench::workload::{Workload, by_name};
use bigfleet_engine::Event;
use bigfleet_types::{MachineState, Need, NeedKey};

fn profile(name: &str) -> Profile {
    *PROFILES.iter().find(|profile| profile.name == name).unwrap()
}

/// The 64-bit hash of all that a workload emits, as text.
fn hash(workload: &dyn Workload) -> u64 {
    struct Text(DefaultHasher);
    impl std::fmt::Write for Text {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            text.hash(&mut self.0);
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    let mut take = |event: Event| write!(text, "{event:?}").unwrap();
    workload.fill(&mut take).unwrap();
    workload.churn(1, &mut take);
    workload.churn(2, &mut take);
    text.0.finish()
}

#[test]
fn the_5k_fleet_has_the_published_cardinalities() {
    let (mut states, mut rows, mut heard) = (BTreeMap::new(), 0, 0);
    let mut ids = BTreeSet::new();
    let made = Realistic::new(profile("5k"))
        .fill(&mut |event| match event {
            Event::Machine { machine, .. } => {
                *states.entry(machine.state).or_insert(0u64) += 1;
                assert!(ids.insert(machine.id.clone()), "{} is there twice", machine.id);
            }
            Event::Demand { rows: some, .. } => rows += some.len() as u64,
            Event::Heard(_) => heard += 1,
            Event::Removed(_) | Event::DemandChanged { .. } => panic!("a fleet is given whole"),
        })
        .unwrap();
    assert_eq!(states[&MachineState::Configured], 5_784);
    assert_eq!(states[&MachineState::Idle], 1_157);
    assert_eq!(states[&MachineState::Speculative], 17_352);
    assert_eq!((made.records(), made.gangs(), made.needs), (24_293, 4_447, 4_707));
    assert_eq!((rows, heard), (4_707, 20));
}

#[test]
fn every_profile_is_sized_as_published() {
    for name in ["5k", "50k", "500k", "5m"] {
        let profile = profile(name);
        let sizing = Sizing::of(profile);
        let made = Tally {
            configured: sizing.configured.iter().sum(),
            idle: sizing.idle.iter().sum(),
            speculative: sizing.speculative.iter().sum(),
            needs: sizing.gangs.iter().sum::<u64>() + 13 * profile.clusters,
            gangs: sizing.gangs,
            clusters: profile.clusters,
        };
        check(profile, &made).unwrap();
    }
}

#[test]
fn a_wrong_generator_is_found() {
    let made = Realistic::new(profile("5k")).fill(&mut |_| ()).unwrap();
    let wrong = |change: &dyn Fn(&mut Tally)| {
        let mut tally = made;
        change(&mut tally);
        check(profile("5k"), &tally).unwrap_err().to_string()
    };
    assert!(wrong(&|tally| tally.idle -= 1).contains("1156 idle machines, not 1157"));
    assert!(wrong(&|tally| tally.gangs[4] = 0).contains("0 cache, not 2196"));
    assert!(wrong(&|tally| tally.needs *= 2).contains("470 rows a cluster, not 235"));
}

#[test]
fn a_workload_is_always_the_same() {
    for name in ["dev-50", "domain-totals", "p1-colocated-5k"] {
        let once = hash(&*by_name(name).unwrap());
        assert_eq!(once, hash(&*by_name(name).unwrap()), "{name}");
        assert_ne!(once, hash(&*by_name("inv-snapshot").unwrap()), "{name}");
    }
}

/// Racks hold one kind of machine, 50 at most, and a gang of whole machines stands in one of them.
#[test]
fn racks_are_real() {
    let mut racks: BTreeMap<String, (u64, BTreeSet<String>)> = BTreeMap::new();
    let mut gangs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    Realistic::new(profile("5k"))
        .fill(&mut |event| {
            let Event::Machine { machine, .. } = event else { return };
            let name = machine.labels.get(RACK_KEY).unwrap().to_string();
            let rack = racks.entry(name.clone()).or_default();
            rack.0 += 1;
            rack.1.insert(format!("{} {} {:?}", machine.instance_type, machine.zone, machine.capacity()));
            let group = machine.attribution.group.as_deref().unwrap_or("");
            if group.starts_with("apps/") && group != "apps/ended" {
                let cluster = machine.cluster.as_ref().unwrap().to_string();
                gangs.entry((cluster, group.to_owned())).or_default().insert(name);
            }
        })
        .unwrap();
    assert!(racks.values().all(|(machines, kinds)| *machines <= RACK && kinds.len() == 1));
    assert!(gangs.len() > 50 && gangs.values().all(|racks| racks.len() == 1), "{gangs:?}");
}

#[test]
fn seven_of_a_hundred_rows_change_from_round_to_round() {
    let fleet = Realistic::new(profile("5k"));
    let rows = |round: u64| {
        let mut rows: BTreeMap<NeedKey, Need> = BTreeMap::new();
        let sent = fleet.churn(round, &mut |event| {
            let Event::Demand { cluster, rows: some, .. } = event else { panic!("{event:?}") };
            rows.extend(some.into_iter().map(|need| (need.key(&cluster), need)));
        });
        (rows, sent)
    };
    let mut before = rows(1).0;
    for round in 2..6 {
        let (now, sent) = rows(round);
        assert_eq!((now.len() as u64, sent.rows), (4_707, 4_707));
        let changed = now.iter().filter(|(key, need)| before[*key] != **need).count() as u64;
        assert_eq!(changed, sent.changed, "round {round}");
        assert!((6..=8).contains(&(changed * 100 / sent.rows)), "{changed} of {} rows", sent.rows);
        before = now;
    }
}

/// `incremental-PROFILE-ROWS` changes exactly so many rows.
#[test]
fn an_incremental_workload_changes_as_many_rows_as_it_says() {
    for (rows, sent) in [(0, 0), (10, 235), (1000, 1175)] {
        let fleet = by_name(&format!("incremental-5k-{rows}")).unwrap();
        let mut by_round = [BTreeMap::new(), BTreeMap::new()];
        for (round, rows) in (1..).zip(&mut by_round) {
            fleet.churn(round, &mut |event| {
                let Event::Demand { cluster, rows: some, .. } = event else { panic!("{event:?}") };
                rows.extend(some.into_iter().map(|need| (need.key(&cluster), need)));
            });
        }
        let [first, second] = by_round;
        let changed = second.iter().filter(|(key, need)| first[*key] != **need).count();
        assert_eq!(changed, rows);
        assert!(second.len().abs_diff(sent) <= 10, "{} rows were sent, about {sent} expected", second.len());
    }
}
