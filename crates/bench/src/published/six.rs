//! Six kinds of workloads as the published Phase 1 benchmarks have them.

use bigfleet_engine::Phase;
use bigfleet_types::{MachineState, Need, Resources};

use crate::compare::{Recorded, Timed};
use crate::factory::{Model, cluster};
use crate::realistic::amounts;
use crate::synthetic::{Synthetic, ZONES, model, profile, row};

/// One kind.
pub(super) struct Kind {
    name: &'static str,
    pub(super) percent: usize,
    types: &'static [&'static str],
    zones: &'static [&'static str],
    /// Cores, GiB and devices.
    sizes: &'static [(i64, i64, i64)],
    priorities: &'static [i32],
    gang: bool,
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        name: "gpu-training",
        percent: 5,
        types: &["a3-highgpu-8g"],
        zones: &ZONES,
        sizes: &[(0, 0, 8), (0, 0, 16)],
        priorities: &[1000],
        gang: true,
    },
    Kind {
        name: "gpu-inference",
        percent: 15,
        types: &["a3-highgpu-1g", "a2-highgpu-1g"],
        zones: &ZONES,
        sizes: &[(0, 0, 1), (0, 0, 2)],
        priorities: &[100, 1000],
        gang: false,
    },
    Kind {
        name: "cpu-batch",
        percent: 35,
        types: &["c6i.4xlarge", "c6i.8xlarge", "n2-standard-32"],
        zones: &ZONES,
        sizes: &[(4, 8, 0), (8, 16, 0), (16, 32, 0), (32, 64, 0)],
        priorities: &[100],
        gang: false,
    },
    Kind {
        name: "cpu-service",
        percent: 30,
        types: &["m6i.large", "m6i.xlarge", "m6i.2xlarge"],
        zones: &ZONES,
        sizes: &[(2, 8, 0), (4, 16, 0), (8, 32, 0), (16, 64, 0)],
        priorities: &[1000],
        gang: false,
    },
    Kind {
        name: "memory-db",
        percent: 10,
        types: &["r6i.xlarge", "r6i.2xlarge"],
        zones: ZONES.split_at(2).0,
        sizes: &[(4, 32, 0), (4, 64, 0), (8, 128, 0)],
        priorities: &[1000],
        gang: true,
    },
    Kind {
        name: "critical-realtime",
        percent: 5,
        types: &["c6i.4xlarge", "m6i.2xlarge"],
        zones: &ZONES,
        sizes: &[(8, 16, 0), (16, 32, 0)],
        priorities: &[1_000_000],
        gang: false,
    },
];

/// After so many machines of a kind all begins again: a multiple of every number of types, zones, sizes and racks.
const CYCLE: usize = 24;

fn nth<T: Copy>(list: &[T], i: usize) -> T {
    list[i % list.len()]
}

impl Kind {
    pub(super) fn size(&self, i: usize) -> Resources {
        let (cores, memory, devices) = nth(self.sizes, i);
        amounts(cores * 1000, memory * 1024, devices)
    }

    /// The machines of the kind, over and over.
    pub(super) fn models(&self) -> Vec<Model> {
        let one = |i: usize| {
            let rack = format!("rack-{}-{}", self.name, i % 8);
            model(nth(self.types, i), nth(self.zones, i), Some(&rack), self.size(i))
        };
        (0..CYCLE).map(one).collect()
    }

    pub(super) fn need(&self, i: usize, same: bool, pods: i64, group: &str) -> Need {
        let profile = profile(nth(self.types, i), same || self.gang, nth(self.priorities, i), 8192);
        row(&profile, &self.size(i), pods, group)
    }
}

/// The number of the kind that owns this percent.
pub(super) fn kind_of(number: usize) -> usize {
    let mut below = 0;
    let owns = |kind: &Kind| {
        below += kind.percent;
        number % 100 < below
    };
    KINDS.iter().position(owns).unwrap_or(0)
}

/// 60,000 Idle machines, 50,000 rows of one machine.
pub(super) fn realistic(name: &str, all_same: bool) -> Synthetic {
    let rows = |c: usize| {
        let need = |i: usize| KINDS[kind_of(c * 1000 + i)].need(i, all_same, 1, &format!("need-{i}"));
        (cluster(c), (0..1000).map(need).collect())
    };
    Synthetic {
        name: name.to_owned(),
        recorded: if all_same {
            Recorded::none(Timed::Phase(Phase::Phase1), "none")
        } else {
            let number = "22 ms on a laptop, 4 to 8 s p99 in the cloud";
            Recorded::ms(Timed::Phase(Phase::Phase1), 22.0, number)
        },
        records: 60_000,
        demand: (0..50).map(rows).collect(),
        fleet: Box::new(|yard| {
            for kind in &KINDS {
                let models = kind.models();
                (0..60_000 * kind.percent / 100)
                    .for_each(|i| yard.put(&models[i % CYCLE], MachineState::Idle));
            }
        }),
    }
}
