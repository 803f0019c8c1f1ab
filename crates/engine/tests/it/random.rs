//! Small random worlds in which every rule has a chance to matter.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::{Eligibility, Engine, Event, Policy, PreemptedFor, Purpose};
use bigfleet_types::{CapacityType, MachineState, Need, Operator, WhenUnsatisfiable, keys};
use proptest::prelude::*;

use crate::dsl::{M, N, cluster, demand, machine, need, secs};

pub(crate) const CLUSTERS: [&str; 3] = ["a", "b", "c"];

/// A fleet, a demand, and which clusters have spoken.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) machines: Vec<M>,
    pub(crate) demands: Vec<(&'static str, Vec<N>)>,
    pub(crate) heard: Vec<&'static str>,
}

impl Case {
    pub(crate) fn events(&self) -> Vec<Event> {
        let machines = self.machines.iter().map(M::event);
        let demands = self.demands.iter().map(|(name, needs)| demand(name, needs));
        let heard = self.heard.iter().map(|name| Event::Heard(cluster(name)));
        machines.chain(demands).chain(heard).collect()
    }

    pub(crate) fn engine(&self) -> Engine {
        let mut engine = Engine::new(Policy::default());
        self.events().into_iter().for_each(|event| engine.apply(event));
        engine
    }

    /// Every Need with its cluster.
    pub(crate) fn needs(&self) -> Vec<(&'static str, Need)> {
        let rows = self.demands.iter().flat_map(|(name, needs)| needs.iter().map(|need| (*name, need)));
        rows.map(|(name, need)| (name, need.build())).collect()
    }
}

/// The machines of a world by id.
pub(crate) fn by_id(case: &Case) -> BTreeMap<&str, &M> {
    case.machines.iter().map(|m| (m.machine.id.as_str(), m)).collect()
}

const SHAPES: [&str; 7] = [
    "",
    "cpu=2 memory=4Gi",
    "cpu=4 memory=8Gi",
    "cpu=4 memory=8Gi nvidia.com/gpu=1",
    "cpu=16 memory=16Gi",
    "memory=64Gi",
    "cpu=9223372036854775 memory=9223372036854775807",
];

const FLOORS: [&str; 5] = ["", "cpu=1 memory=1Gi", "cpu=4", "cpu=8 memory=8Gi", "nvidia.com/gpu=1"];

const AGGREGATES: [&str; 8] = [
    "",
    "cpu=4 memory=4Gi",
    "cpu=10 memory=12Gi",
    "cpu=30",
    "memory=40Gi",
    "cpu=3 nvidia.com/gpu=2",
    "example.com/foo=1 cpu=1",
    "cpu=9223372036854775 memory=9223372036854775807",
];

pub(crate) fn any_need() -> impl Strategy<Value = N> {
    let priority = prop_oneof![
        4 => Just(0), 3 => Just(100), 2 => Just(700_000), 1 => Just(i32::MIN), 1 => Just(i32::MAX)
    ];
    let buckets = (prop_oneof![Just(1), Just(5), Just(27)], prop_oneof![2 => Just(1), 1 => Just(6)]);
    let shape = (0..AGGREGATES.len() * 3, 0..FLOORS.len());
    let terms = (0..9usize, 0..12usize, 0..10usize);
    (priority, buckets, shape, terms, 0..4usize, 0..4i64).prop_map(
        |(
            priority,
            (interruption, reclamation),
            (aggregate, floor),
            (requirement, same, spread),
            group,
            arrival,
        )| {
            // The extreme aggregate is rare.
            let aggregate = AGGREGATES[if aggregate < AGGREGATES.len() { aggregate } else { aggregate % 7 }];
            let mut row = need(priority, aggregate).floor(FLOORS[floor]).buckets(interruption, reclamation);
            if group > 0 {
                row = row.group(["g", "h", "i"][group - 1]);
            }
            row = match same {
                0..3 => row.requires(keys::ZONE, Operator::Same, &[]),
                3 => row.requires(keys::ZONE, Operator::Same, &["z0", "z2"]),
                4 | 5 => row.requires("rack", Operator::Same, &[]),
                6 => row.requires(keys::HOSTNAME, Operator::Same, &[]),
                _ => row,
            };
            let enforced = WhenUnsatisfiable::DoNotSchedule;
            row = match spread {
                0 | 1 => row.spread(keys::ZONE, enforced),
                2 => row.spread("rack", enforced),
                3 => row.spread(keys::ZONE, enforced).spread("rack", enforced),
                4 => {
                    row.spread(keys::ZONE, WhenUnsatisfiable::ScheduleAnyway).spread(keys::HOSTNAME, enforced)
                }
                _ => row,
            };
            if arrival > 0 {
                row = row.arrival(secs(arrival));
            }
            match requirement {
                0 => row.requires(keys::ZONE, Operator::In, &["z0", "z1"]),
                1 => row.requires(keys::INSTANCE_TYPE, Operator::NotIn, &["t1"]),
                2 => row.requires("rack", Operator::Exists, &[]),
                3 => row.requires("rack", Operator::DoesNotExist, &[]),
                4 => row.requires(keys::HOSTNAME, Operator::NotIn, &["m-3"]),
                5 => row.requires(keys::CAPACITY_TYPE, Operator::In, &["spot", "on-demand"]),
                _ => row,
            }
        },
    )
}

#[derive(Debug, Clone)]
struct Seed {
    state: MachineState,
    shape: usize,
    price: u8,
    chance: u8,
    paid: i32,
    home: usize,
    zone: u8,
    stamp: usize,
    eligibility: u8,
    old_idle: bool,
}

fn any_machine() -> impl Strategy<Value = Seed> {
    let state = prop_oneof![
        6 => Just(MachineState::Configured),
        4 => Just(MachineState::Idle),
        4 => Just(MachineState::Speculative),
        2 => Just(MachineState::Creating),
        2 => Just(MachineState::Configuring),
        2 => Just(MachineState::Draining),
        1 => Just(MachineState::Failed),
        1 => Just(MachineState::Deleting),
    ];
    let numbers = (0..SHAPES.len() * 3, 0..3u8, 0..3u8, 0..5i32);
    (state, numbers, 0..CLUSTERS.len(), 0..3u8, 0..12usize, 0..24u8, any::<bool>()).prop_map(
        |(state, (shape, price, chance, paid), home, zone, stamp, eligibility, old_idle)| Seed {
            state,
            shape: if shape < SHAPES.len() { shape } else { shape % 6 },
            price,
            chance,
            paid,
            home,
            zone,
            stamp,
            eligibility,
            old_idle,
        },
    )
}

fn grow(position: usize, seed: &Seed, needs: &[(&'static str, Need)]) -> M {
    let mut m = machine(&format!("m-{position}"))
        .has(SHAPES[seed.shape])
        .kind(&format!("t{}", seed.shape % 3))
        .zone(&format!("z{}", seed.zone))
        .price(f64::from(seed.price))
        .interrupted(f64::from(seed.chance) * 0.25)
        .paid(CapacityType::from_number(seed.paid).unwrap());
    match (seed.zone, seed.price) {
        (1, 0) => m = m.label("rack", ""),
        (1, _) => m = m.label("rack", "r1"),
        (2, 1) => m = m.label("rack", "r2"),
        _ => {}
    }
    if seed.shape == 3 && seed.price == 2 {
        m = m.label(keys::HOSTNAME, if seed.zone == 0 { "" } else { "shared" });
    }
    let stamp = needs.get(seed.stamp);
    if seed.state.is_bound() {
        m = m.configured(CLUSTERS[seed.home]);
        if let Some((_, need)) = stamp {
            m = m.of(need);
        }
    } else if let (MachineState::Creating, Some((name, need))) = (seed.state, stamp) {
        m = m.creating_for(need.key(&cluster(name)));
    } else if seed.state == MachineState::Draining {
        m = m.configured(CLUSTERS[seed.home]).facts(|f| {
            f.preempted_for = match stamp {
                Some((name, need)) => Purpose::Preemption(PreemptedFor {
                    need: need.key(&cluster(name)),
                    priority: need.profile.priority(),
                }),
                None if seed.old_idle => Purpose::Unknown,
                None => Purpose::None,
            };
        });
    } else if seed.state == MachineState::Idle && seed.old_idle {
        m = m.idle_since(secs(-3600));
    }
    let bit = |n: u8| seed.eligibility & (1 << n) != 0;
    // Only the lower third restricts anything.
    if seed.eligibility < 8 {
        m = m.facts(|f| {
            f.eligibility = Eligibility {
                acquirable: bit(0),
                creditable: bit(1),
                preemptible: seed.old_idle && seed.eligibility != 0,
                releasable: bit(2),
            };
        });
    }
    m.state(seed.state)
}

/// Random worlds with up to `most` machines.
pub(crate) fn any_case(most: usize) -> impl Strategy<Value = Case> {
    let needs = proptest::collection::vec((0..CLUSTERS.len(), any_need()), 0..9);
    let machines = proptest::collection::vec(any_machine(), 0..most);
    (needs, machines, 0..8u8).prop_map(|(rows, seeds, heard)| {
        let mut keys = BTreeSet::new();
        let mut demands: Vec<(&'static str, Vec<N>)> =
            CLUSTERS.iter().map(|name| (*name, Vec::new())).collect();
        for (home, row) in rows {
            if keys.insert(row.key(CLUSTERS[home])) {
                demands[home].1.push(row);
            }
        }
        let mut case = Case { machines: Vec::new(), demands, heard: Vec::new() };
        let needs = case.needs();
        case.machines = seeds.iter().enumerate().map(|(i, seed)| grow(i, seed, &needs)).collect();
        case.heard =
            CLUSTERS.iter().enumerate().filter(|(i, _)| heard >> i & 1 == 0).map(|(_, n)| *n).collect();
        case
    })
}

/// Random worlds without gangs and spreads.
pub(crate) fn any_plain_case(most: usize) -> impl Strategy<Value = Case> {
    any_case(most).prop_map(|mut case| {
        for (_, rows) in &mut case.demands {
            rows.retain(|row| {
                row.build().profile.same().is_none() && row.build().profile.spread().is_empty()
            });
        }
        case
    })
}

/// Random worlds that must come to rest. Two kinds of world need not, by the rules of folding, which change what a gang
/// accepts: one whose gang is spread, which counts only once it is folded, and one whose machines have an empty value of
/// a gang's key, which is no domain but is there.
pub(crate) fn any_case_that_settles(most: usize) -> impl Strategy<Value = Case> {
    any_case(most).prop_map(|mut case| {
        for (_, rows) in &mut case.demands {
            rows.retain(|row| {
                row.build().profile.same().is_none() || row.build().profile.spread().is_empty()
            });
        }
        case.machines.iter_mut().for_each(|m| m.machine.labels.retain(|_, value| !value.is_empty()));
        case
    })
}

/// Random worlds with one plain Need and nothing stamped for others.
pub(crate) fn any_single_need() -> impl Strategy<Value = Case> {
    any_plain_case(14).prop_filter_map("has a need", |mut case| {
        let (name, row) = case.demands.iter().find_map(|(n, rows)| Some((*n, rows.first()?.clone())))?;
        case.demands = vec![(name, vec![row])];
        Some(case)
    })
}
