//! What a cycle decides does not depend on the order in which it heard of things, nor on what came and went before.

use bigfleet_shard::control::Control;
use bigfleet_shard::io::{Input, Output, SessionId};
use bigfleet_shard::metrics::Metrics;
use bigfleet_types::chance::{Chance as _, Seeded, shuffle};
use bigfleet_types::{
    CapacityType, Group, Machine, MachineState, Need, Operator, PenaltyBucket, Profile, Requirement,
    SpreadTerm, UnixNanos, WhenUnsatisfiable, keys,
};
use prometheus_client::registry::Registry;

use crate::core_model::{RACK, bound, cluster, gpu, need, need_of, priced, reported, requires};
use crate::core_world::{config, start};

use MachineState::{Configured, Idle, Speculative};

const CLUSTERS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn row(
    requirements: Vec<Requirement>,
    spread: Vec<SpreadTerm>,
    priority: i32,
    group: &str,
    units: i64,
) -> Need {
    let bucket = PenaltyBucket::from_wire(7).unwrap();
    let profile = Profile::new(requirements, spread, priority, bucket, PenaltyBucket::ZERO);
    Need { group: Group::new(group), ..need_of(profile.into(), units) }
}

/// Idle, bought and offered machines in racks and zones, and some that serve one cluster for little.
fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for n in 0..48 {
        let name = format!("m{n:02}");
        let mut machine = match n % 4 {
            0 => bound(&name, Configured, "e", &need(1, 1)),
            1 => priced(gpu(&name, Speculative), CapacityType::Spot, 1.0, 0.1),
            2 => priced(gpu(&name, Speculative), CapacityType::OnDemand, 1.0, 0.0),
            _ => gpu(&name, Idle),
        };
        machine.zone = format!("zone-{}", n % 3).into();
        machine.labels.insert(RACK.into(), format!("rack-{}", n / 8).into());
        machines.push(machine);
    }
    machines
}

/// More than there is, of every kind, with ties.
fn demand(name: &str) -> Vec<Need> {
    let even = SpreadTerm {
        topology_key: keys::ZONE.into(),
        max_skew: 1,
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
    };
    let same = || vec![requires(RACK, Operator::Same, &[])];
    match name {
        "a" | "b" => vec![
            row(same(), Vec::new(), 1_000, "job-1", 4),
            row(same(), Vec::new(), 1_000, "job-2", 7),
            row(Vec::new(), vec![even], 500, "", 5),
            row(vec![requires(keys::ZONE, Operator::NotIn, &["zone-1"])], Vec::new(), 500, "", 3),
        ],
        "c" | "d" => vec![need(10, 6), row(same(), Vec::new(), 10, "small", 2)],
        _ => vec![need(1, 9)],
    }
}

/// One core that hears of everything before its first cycle, in an order of its own; `seed` 0 is the plain one.
fn decided(seed: u64) -> (String, Vec<bigfleet_shard::control::WorkKey>) {
    let mut chance = Seeded::new(seed);
    let mut core =
        Control::new(config(), Box::new(Seeded::new(7)), Metrics::register(&mut Registry::default()));
    let now = start();
    core.poll(now);
    let Some(Output::List { call, known }) = core.drain_outputs().next() else {
        panic!("no List is asked for")
    };
    let mut names = CLUSTERS.to_vec();
    let mut listed = machines();
    if seed > 0 {
        shuffle(&mut names, &mut chance);
        shuffle(&mut listed, &mut chance);
    }
    let session = |name: &str| {
        let at = CLUSTERS.iter().position(|known| *known == name).unwrap_or(99);
        SessionId(u64::try_from(at).unwrap() + 1)
    };
    let open = |core: &mut Control, name: &str| {
        core.handle(now, Input::SessionOpened { session: session(name), cluster: cluster(name) });
    };
    let say = |core: &mut Control, name: &str, rows: Vec<Need>, at: UnixNanos| {
        core.handle(
            at,
            Input::Rollup { session: session(name), timestamp_unix_nanos: at.0, rows: Ok(rows.into()) },
        );
    };
    let list = |core: &mut Control, known, listed: Vec<Machine>| {
        let result = Ok(listed.into_iter().map(reported).collect());
        core.handle(now, Input::listed(call, known, result));
    };
    if seed > 0 {
        // Somebody with keys and values of its own comes and goes.
        open(&mut core, "passer-by");
        let odd = |n: u64| {
            let (key, value) = (format!("odd.example/{n}"), format!("v{}", chance.below(9)));
            row(vec![requires(&key, Operator::NotIn, &[&value])], Vec::new(), 7, "", 1)
        };
        let odd: Vec<Need> = (0..seed % 5 + 1).map(odd).collect();
        say(&mut core, "passer-by", odd, now);
    }
    let (early, late) = names.split_at(if seed > 0 { names.len() / 2 } else { names.len() });
    let speak = |core: &mut Control, names: &[&str], chance: &mut Seeded| {
        for name in names {
            open(core, name);
            let mut rows = demand(name);
            if seed > 0 {
                // Something else first, which is taken back.
                say(core, name, vec![need(2_000, 1)], now);
                shuffle(&mut rows, chance);
            }
            say(core, name, rows, now);
        }
    };
    speak(&mut core, early, &mut chance);
    list(&mut core, known, listed);
    speak(&mut core, late, &mut chance);
    if seed > 0 {
        say(&mut core, "passer-by", Vec::new(), now);
        core.handle(now, Input::SessionClosed { session: session("passer-by") });
    }
    core.poll(now);
    let published = core.drain_outputs().filter_map(|output| match output {
        Output::Publish(published) => Some(published),
        _ => None,
    });
    let published: Vec<_> = published.collect();
    assert_eq!((published.len(), core.cycle()), (1, 1), "one cycle for all of it");
    let mut posted = core.posted().to_vec();
    posted.sort();
    (format!("{:#?}", published[0].decisions), posted)
}

/// Control: order Needs by intern numbers, or by arrival of their roll-ups within a cycle.
#[test]
fn two_cores_that_hear_the_same_in_other_orders_decide_the_same() {
    let (plain, posted) = decided(0);
    let kinds: std::collections::BTreeSet<_> = posted.iter().map(|(_, kind, _)| kind.name()).collect();
    assert!(kinds.is_superset(&["Bootstrap", "Preempt", "Provision"].into()), "{kinds:?}");
    for seed in 1..=60 {
        let (other, others) = decided(seed);
        assert_eq!(others, posted, "seed {seed}");
        if let Some((one, two)) = plain.lines().zip(other.lines()).find(|(one, two)| one != two) {
            panic!("seed {seed}: {one} against {two}");
        }
        assert_eq!(plain.len(), other.len(), "seed {seed}");
    }
}
