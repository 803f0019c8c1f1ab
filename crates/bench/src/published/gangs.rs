//! Gangs: that share machines, that are one machine each, and that need several of one rack.

use bigfleet_engine::Phase;
use bigfleet_types::{Attribution, MachineState};

use crate::compare::{Recorded, Timed};
use crate::factory::cluster;
use crate::realistic::amounts;
use crate::synthetic::{Synthetic, model, priced, profile, row};

const GI: i64 = 1024;

/// 20 clusters with two plain rows and 127 gangs each.
pub(super) fn colocated(name: &str) -> Synthetic {
    let tiny = row(&profile("tiny", false, 100, 32), &amounts(400, 500, 0), 17_500, "");
    let service = row(&profile("service", false, 1000, 1024), &amounts(2200, 8500, 0), 3_000, "");
    let cache_unit = amounts(4000, 32 * GI, 0);
    let gpu_unit = amounts(64_000, 0, 8);
    let stamps = [Attribution::of(&tiny), Attribution::of(&service)];
    let rows = |c: usize| {
        let (cache, gpu) = (profile("cache", true, 1000, 4096), profile("gpu", true, 1000, 16384));
        let mut rows = vec![tiny.clone(), service.clone()];
        rows.extend((0..95).map(|g| row(&cache, &cache_unit, 4, &format!("cache-{g}"))));
        rows.extend((0..32).map(|g| row(&gpu, &gpu_unit, 5, &format!("gpu-{g}"))));
        (cluster(c), rows)
    };
    let recorded = if name.starts_with("p3") {
        Recorded::ms(Timed::Phase(Phase::Phase3), 0.05, "0.05 ms")
    } else {
        Recorded::none(Timed::Phase(Phase::Phase1), "none")
    };
    let demand = (0..20).map(rows).collect();
    Synthetic {
        name: name.to_owned(),
        recorded,
        records: 20 * 250 + 13_000,
        demand,
        fleet: Box::new(move |yard| {
            let tiny = model("tiny", "a", None, amounts(40_000, 50_000, 0));
            let service = model("service", "a", None, amounts(22_000, 85_000, 0));
            let racks = |kind: &str| (0..12).map(|rack| format!("rack-{kind}-{rack}")).collect::<Vec<_>>();
            let cache: Vec<_> = (racks("cache").iter())
                .map(|rack| model("cache", "a", Some(rack), amounts(40_000, 320 * GI, 0)))
                .collect();
            let gpu: Vec<_> = (racks("gpu").iter())
                .map(|rack| model("gpu", "a", Some(rack), amounts(64_000, 0, 8)))
                .collect();
            let nobody = Attribution::default();
            for c in 0..20 {
                (0..175).for_each(|_| yard.bind(&tiny, &cluster(c), &stamps[0]));
                (0..30).for_each(|_| yard.bind(&service, &cluster(c), &stamps[1]));
                (0..30).for_each(|i| yard.bind(&cache[i / 8 % 12], &cluster(c), &nobody));
                (0..15).for_each(|i| yard.bind(&gpu[i / 8 % 12], &cluster(c), &nobody));
            }
            for i in 0..13_000 {
                let model = match i % 3 {
                    0 => &tiny,
                    1 => &cache[i / 3 % 12],
                    _ => &gpu[i / 3 % 12],
                };
                if i < 1_000 {
                    yard.put(model, MachineState::Idle);
                } else {
                    yard.put(&priced(model.clone(), 1), MachineState::Speculative);
                }
            }
        }),
    }
}

/// Idle machines over eight racks.
fn eight_racks(
    name: &str,
    machines: usize,
    recorded: Recorded,
    demand: Vec<(bigfleet_types::ClusterId, Vec<bigfleet_types::Need>)>,
) -> Synthetic {
    Synthetic {
        name: name.to_owned(),
        recorded,
        records: machines as u64,
        demand,
        fleet: Box::new(move |yard| {
            let models: Vec<_> = (0..8)
                .map(|rack| {
                    model("r6i.2xlarge", "a", Some(&format!("rack-{rack}")), amounts(4000, 32 * GI, 0))
                })
                .collect();
            (0..machines).for_each(|i| yard.put(&models[i % 8], MachineState::Idle));
        }),
    }
}

/// 20,000 clusters with one gang of one machine each.
pub(super) fn one_pool(name: &str) -> Synthetic {
    let gang = row(&profile("r6i.2xlarge", true, 1000, 8192), &amounts(4000, 32 * GI, 0), 1, "gang");
    let demand = (0..20_000).map(|c| (cluster(c), vec![gang.clone()])).collect();
    let number = "9.41 ms a gang before a redesign: 188 s for 20,000";
    eight_racks(name, 100_000, Recorded::ms(Timed::Phase(Phase::Phase1), 188_200.0, number), demand)
}

/// 50,000 gangs of one machine each, of which a fifth can have one.
pub(super) fn repeat(name: &str) -> Synthetic {
    let profile = profile("r6i.2xlarge", true, 1000, 8192);
    let gang = |i: usize| row(&profile, &amounts(4000, 32 * GI, 0), 1, &format!("gang-{i}"));
    let demand = (0..50).map(|c| (cluster(c), (0..1000).map(gang).collect())).collect();
    let number = "50 ms expected after a redesign, 50 s before";
    eight_racks(name, 10_000, Recorded::ms(Timed::Phase(Phase::Phase1), 50.0, number), demand)
}

/// One gang that looks at 12,000 machines over 30 racks.
pub(super) fn domain_totals(name: &str) -> Synthetic {
    let gang = row(&profile("m", true, 1000, 8192), &amounts(4000, 32 * GI, 0), 10, "gang");
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded::none(Timed::Phase(Phase::Phase1), "none, a guard"),
        records: 12_000,
        demand: vec![(cluster(0), vec![gang])],
        fleet: Box::new(|yard| {
            let one =
                |rack| priced(model("m", "a", Some(&format!("rack-{rack}")), amounts(4000, 32 * GI, 0)), 1);
            let models: Vec<_> = (0..30).map(one).collect();
            (0..12_000).for_each(|i| yard.put(&models[i % 30], MachineState::Speculative));
        }),
    }
}

/// Gangs of 2 to 8 whole machines over racks of 50.
pub(super) fn choice(name: &str, gangs: usize, racks: usize, recorded: Recorded) -> Synthetic {
    let profile = profile("m", true, 1000, 8192);
    let clusters = gangs.div_ceil(400);
    let rows = |c: usize| {
        let gang = |g: usize| {
            let pods = i64::try_from(2 + g % 7).unwrap_or(2);
            row(&profile, &amounts(64_000, 256 * GI, 8), pods, &format!("gang-{g}"))
        };
        (cluster(c), (c..gangs).step_by(clusters).map(gang).collect())
    };
    Synthetic {
        name: name.to_owned(),
        recorded,
        records: racks as u64 * 50,
        demand: (0..clusters).map(rows).collect(),
        fleet: Box::new(move |yard| {
            for rack in 0..racks {
                let model = model("m", "a", Some(&format!("rack-{rack:05}")), amounts(64_000, 256 * GI, 8));
                (0..50).for_each(|_| yard.put(&model, MachineState::Idle));
            }
        }),
    }
}
