//! How many machines, pods and gangs a profile has, and the published numbers that a generator must hit.

use crate::catalogue::{CATALOGUE, ZONES};

const KINDS: usize = CATALOGUE.len();

/// The size of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Pods of all clusters.
    pub pods: u64,
    /// Clusters, of equal size.
    pub clusters: u64,
}

/// All profiles, each on one shard. The first is for tests of the benchmarks themselves.
pub const PROFILES: [Profile; 5] = [
    Profile { name: "dev-50", pods: 5_000, clusters: 2 },
    Profile { name: "5k", pods: 500_000, clusters: 20 },
    Profile { name: "50k", pods: 5_000_000, clusters: 200 },
    Profile { name: "500k", pods: 50_000_000, clusters: 2_000 },
    Profile { name: "5m", pods: 500_000_000, clusters: 20_000 },
];

/// What the slowest of a hundred decisions on a fleet at rest may take, in milliseconds, when few rows changed; `None` for a
/// profile without such a target.
#[must_use]
pub fn churn_target(profile: &str) -> Option<f64> {
    match profile {
        "5k" => Some(0.3),
        "50k" => Some(2.0),
        "500k" => Some(15.0),
        "5m" => Some(100.0),
        _ => None,
    }
}

/// Numbers by kind of workload, in the order of the catalogue.
pub type ByKind = [u64; KINDS];

/// What follows from a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizing {
    /// Pods.
    pub pods: ByKind,
    /// Gangs; 0 for kinds without.
    pub gangs: ByKind,
    /// Configured machines.
    pub configured: ByKind,
    /// Idle machines.
    pub idle: ByKind,
    /// Speculative machines.
    pub speculative: ByKind,
}

impl Sizing {
    /// Sizes a fleet by the pods that it runs.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let share = CATALOGUE.map(|kind| kind.weight * kind.eighths_of_replicas());
        let whole: u64 = share.iter().sum();
        let pods = share.map(|share| profile.pods * share / whole);
        let mut machines = [0; KINDS];
        let mut gangs = [0; KINDS];
        let mut floors = [0; KINDS];
        for (at, kind) in CATALOGUE.iter().enumerate() {
            machines[at] = (profile.pods * share[at]).div_ceil(whole * kind.pods_per_node);
            if let Some((least, most)) = kind.gang {
                floors[at] = most * ZONES.len() as u64;
                // The nearest to pods / mean gang.
                let (above, below) = (profile.pods * share[at] * 2, whole * (least + most));
                gangs[at] = (above + below / 2) / below;
            }
        }
        let effective = machines.iter().sum::<u64>() + floors.iter().sum::<u64>();
        let idle = (effective * 2 + 5) / 10;
        Self {
            pods,
            gangs,
            configured: split(effective, &machines, &floors),
            idle: split(idle, &machines, &floors),
            speculative: split(3 * effective, &machines, &floors),
        }
    }
}

/// Divides a number of machines by share, largest remainder first, and gives each kind its floor at least.
fn split(total: u64, shares: &ByKind, floors: &ByKind) -> ByKind {
    let whole: u64 = shares.iter().sum();
    let mut parts = shares.map(|share| total * share / whole);
    let mut order: Vec<usize> = (0..KINDS).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(total * shares[*at] % whole), *at));
    let left = total - parts.iter().sum::<u64>();
    for at in order.into_iter().cycle().take(usize::try_from(left).unwrap_or(0)) {
        parts[at] += 1;
    }
    for (part, floor) in parts.iter_mut().zip(floors) {
        *part = (*part).max(*floor);
    }
    parts
}

/// What a generator made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Machines serving a cluster.
    pub configured: u64,
    /// Machines serving nobody.
    pub idle: u64,
    /// Quota slots.
    pub speculative: u64,
    /// Rows of demand.
    pub needs: u64,
    /// Gangs by kind.
    pub gangs: ByKind,
    /// Clusters.
    pub clusters: u64,
}

impl Tally {
    /// All machines.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.configured + self.idle + self.speculative
    }

    /// All gangs.
    #[must_use]
    pub fn gangs(&self) -> u64 {
        self.gangs.iter().sum()
    }
}

/// A generator made something else than it must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the generator of {profile} is wrong: it made {found} {what}, not {wanted}; nothing was measured, correct it first"
)]
pub struct CardinalityError {
    /// The profile.
    pub profile: &'static str,
    /// What was counted.
    pub what: &'static str,
    /// How many there must be.
    pub wanted: u64,
    /// How many there are.
    pub found: u64,
}

/// The published numbers of a profile: configured, idle, speculative and all machines; gangs of caches, databases,
/// small and medium trainings. `slack` is how many in a thousand the gangs may be off where only rounded numbers are
/// published.
struct Published {
    machines: [u64; 4],
    gangs: [u64; 4],
    slack: u64,
}

fn published(profile: &str) -> Option<Published> {
    let (machines, gangs, slack) = match profile {
        "5k" => ([5_784, 1_157, 17_352, 24_293], [2_196, 2_196, 35, 20], 0),
        "50k" => ([56_892, 11_378, 170_676, 238_946], [21_962, 21_962, 351, 198], 0),
        "500k" => ([567_973, 113_595, 1_703_919, 2_385_487], [219_619, 219_619, 3_514, 1_977], 0),
        "5m" => ([5_678_787, 1_135_757, 17_036_361, 23_850_905], [2_200_000, 2_200_000, 35_139, 19_766], 3),
        _ => return None,
    };
    Some(Published { machines, gangs, slack })
}

/// Compares what was made with what the profile must have: the published numbers where there are any, else those of
/// [`Sizing`].
///
/// # Errors
/// The first number that differs.
pub fn check(profile: Profile, made: &Tally) -> Result<(), CardinalityError> {
    let name = profile.name;
    let same = |what, wanted: u64, found: u64, slack: u64| {
        let error = CardinalityError { profile: name, what, wanted, found };
        if wanted.abs_diff(found) * 1000 <= wanted * slack { Ok(()) } else { Err(error) }
    };
    let sizing = Sizing::of(profile);
    let sum = |kinds: &ByKind| kinds.iter().sum::<u64>();
    let kinds = ["tiny", "service", "batch", "critical", "cache", "database", "inference", "small", "medium"];
    for (at, kind) in kinds.into_iter().enumerate() {
        same(kind, sizing.gangs[at], made.gangs[at], 0)?;
    }
    same("configured machines", sum(&sizing.configured), made.configured, 0)?;
    same("idle machines", sum(&sizing.idle), made.idle, 0)?;
    same("speculative machines", sum(&sizing.speculative), made.speculative, 0)?;
    same("clusters", profile.clusters, made.clusters, 0)?;
    let Some(numbers) = published(name) else { return Ok(()) };
    same("configured machines", numbers.machines[0], made.configured, 0)?;
    same("idle machines", numbers.machines[1], made.idle, 0)?;
    same("speculative machines", numbers.machines[2], made.speculative, 0)?;
    same("machine records", numbers.machines[3], made.records(), 0)?;
    for (what, at, wanted) in [
        ("cache gangs", 4, numbers.gangs[0]),
        ("database gangs", 5, numbers.gangs[1]),
        ("small training gangs", 7, numbers.gangs[2]),
        ("medium training gangs", 8, numbers.gangs[3]),
    ] {
        same(what, wanted, made.gangs[at], numbers.slack)?;
    }
    same("gangs a cluster", 222, made.gangs() / made.clusters.max(1), 0)?;
    same("rows a cluster", 235, made.needs / made.clusters.max(1), 0)
}
