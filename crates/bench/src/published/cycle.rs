//! Whole cycles, preemption and reclaims over large fleets of few kinds.

use bigfleet_engine::Phase;
use bigfleet_types::{Attribution, MachineState, Resources};

use crate::compare::{Recorded, Timed};
use crate::factory::cluster;
use crate::realistic::amounts;
use crate::synthetic::{Synthetic, ZONES, model, profile, row};

const GI: i64 = 1024;

fn types5() -> [(&'static str, Resources); 5] {
    [
        ("a3-highgpu-8g", amounts(0, 0, 8)),
        ("m6i.large", amounts(2_000, 8 * GI, 0)),
        ("c6i.4xlarge", amounts(16_000, 32 * GI, 0)),
        ("n2-standard-32", amounts(32_000, 128 * GI, 0)),
        ("r6i.xlarge", amounts(4_000, 32 * GI, 0)),
    ]
}

/// Idle machines of five types for 50,000 rows of one machine each.
pub(super) fn steady(name: &str, machines: usize, recorded: Recorded) -> Synthetic {
    let types = types5();
    let rows = |c: usize| {
        let need = |i: usize| {
            let (name, unit) = &types[(c + i) % 5];
            let priority = i32::try_from(1000 + i % 10 * 1000).unwrap_or(0);
            row(&profile(name, false, priority, 8192), unit, 1, &format!("need-{i}"))
        };
        (cluster(c), (0..1000).map(need).collect())
    };
    let demand = (0..50).map(rows).collect();
    Synthetic {
        name: name.to_owned(),
        recorded,
        records: machines as u64,
        fleet: Box::new(move |yard| {
            let models: Vec<_> = (0..15)
                .map(|i| model(types5()[i % 5].0, ZONES[i % 3], None, types5()[i % 5].1.clone()))
                .collect();
            (0..machines).for_each(|i| yard.put(&models[i % 15], MachineState::Idle));
        }),
        demand,
    }
}

/// The same at 500,000 machines, cycle after cycle.
pub(super) fn phase_dump(name: &str) -> Synthetic {
    let number = "116 ms mean on a laptop, with incremental reconcile, after all fixes";
    steady(name, 500_000, Recorded::ms(Timed::Warm, 116.0, number))
}

/// 100 rows of five machines each that only preemption can serve.
pub(super) fn inversions(name: &str) -> Synthetic {
    let types = types5();
    let low = |t: usize| row(&profile(types[t].0, false, 100, 1), &types[t].1, 2000, "");
    // A cluster's own machines would be credited to it, not preempted.
    let high = |c: usize| {
        let need = |i: usize| {
            row(&profile(types[i % 5].0, false, 1_000_000, 1), &types[i % 5].1, 5, &format!("high-{i}"))
        };
        (cluster(10 + c), (c..100).step_by(10).map(need).collect())
    };
    let served = (0..10).map(|c| (cluster(c), (0..5).map(low).collect()));
    let demand = served.chain((0..10).map(high)).collect();
    let stamps: Vec<_> = (0..5).map(|t| Attribution::of(&low(t))).collect();
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded::ms(Timed::Phase(Phase::Phase2), 8.0, "8 ms a cycle, but in the 50k run"),
        records: 100_000,
        fleet: Box::new(move |yard| {
            let models: Vec<_> =
                types5().into_iter().map(|(name, capacity)| model(name, "a", None, capacity)).collect();
            (0..100_000).for_each(|i| yard.bind(&models[i % 5], &cluster(i / 5 % 10), &stamps[i % 5]));
        }),
        demand,
    }
}

/// 500,000 machines that are all wanted, by three rows a cluster.
pub(super) fn high_demand(name: &str) -> Synthetic {
    let unit = amounts(1000, 0, 0);
    let need = move |priority| row(&profile("m", false, priority, 1), &unit, 3333, "");
    let stamps = Attribution::of(&need(100));
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded::ms(Timed::Phase(Phase::Phase3), 255.0, "255 ms p99 live, before that 416 ms")
            .target(100.0),
        records: 500_000,
        demand: (0..50).map(|c| (cluster(c), [100, 200, 300].map(&need).into())).collect(),
        fleet: Box::new(move |yard| {
            let model = model("m", "a", None, amounts(1000, 0, 0));
            (0..500_000).for_each(|i| yard.bind(&model, &cluster(i % 50), &stamps));
        }),
    }
}

/// 450,000 machines, fewer than are wanted.
pub(super) fn all_kept(name: &str) -> Synthetic {
    let need = row(&profile("m", false, 100, 1), &amounts(1000, 0, 0), 10_000, "");
    let stamps = Attribution::of(&need);
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded::ms(Timed::Phase(Phase::Phase3), 255.0, "255 ms p99 live").target(30.0),
        records: 450_000,
        demand: (0..50).map(|c| (cluster(c), vec![need.clone()])).collect(),
        fleet: Box::new(move |yard| {
            let model = model("m", "a", None, amounts(1000, 0, 0));
            (0..450_000).for_each(|i| yard.bind(&model, &cluster(i % 50), &stamps));
        }),
    }
}

/// 60,000 machines of six types; the reference copied them for every cycle, ours keeps indexes, most of it when events are
/// taken.
pub(super) fn snapshot(name: &str) -> Synthetic {
    let types = ["t0", "t1", "t2", "t3", "t4", "t5"];
    let rows = |c: usize| {
        let need = |t: &str| row(&profile(t, false, 100, 1), &amounts(1000, 0, 0), 66, "");
        (cluster(c), types.map(need).into())
    };
    let stamps =
        types.map(|t| Attribution::of(&row(&profile(t, false, 100, 1), &amounts(1000, 0, 0), 1, "")));
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded::ms(Timed::Indexes, 477.0, "477 ms p99 in the cloud, each cycle"),
        records: 60_000,
        demand: (0..50).map(rows).collect(),
        fleet: Box::new(move |yard| {
            let models = types.map(|t| model(t, "a", None, amounts(1000, 0, 0)));
            for c in 0..50 {
                (0..800).for_each(|i| yard.put(&models[i % 6], MachineState::Idle));
                (0..400).for_each(|i| yard.bind(&models[i % 6], &cluster(c), &stamps[i % 6]));
            }
        }),
    }
}
