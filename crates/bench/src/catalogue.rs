//! The realistic catalogue: kinds of workloads as they run in large fleets, by how often each occurs.

use bigfleet_types::{Family, PenaltyBucket, Quantity};

/// Resources of one pod.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Thousandths of a core.
    pub cpu: i64,
    /// MiB.
    pub memory: i64,
    /// Devices.
    pub gpus: i64,
    /// How many of a hundred pods have this size.
    pub percent: u64,
}

/// A kind of workload.
#[derive(Debug, Clone, Copy)]
pub struct Archetype {
    /// Its name.
    pub name: &'static str,
    /// How often its objects occur, relative to the others.
    pub weight: u64,
    /// Pods that one machine holds.
    pub pods_per_node: u64,
    /// Instance types; a workload object asks for one of them.
    pub types: &'static [&'static str],
    /// Sizes of its pods.
    pub sizes: &'static [Size],
    /// Priority of its pods.
    pub priority: i32,
    /// Interruption penalty in dollars.
    pub interruption: i64,
    /// Reclamation penalty in dollars.
    pub reclamation: i64,
    /// How many of a hundred pods must spread over zones. Spread that is only wished for never reaches the shard.
    pub hard_spread: u64,
    /// Smallest and largest gang, if its pods come in gangs that share a rack.
    pub gang: Option<(u64, u64)>,
    /// Whether half of its machines are spot machines.
    pub spot: bool,
}

const fn size(cpu: i64, memory: i64, gpus: i64, percent: u64) -> Size {
    Size { cpu, memory, gpus, percent }
}

const GI: i64 = 1024;

const PLAIN: Archetype = Archetype {
    name: "",
    weight: 0,
    pods_per_node: 100,
    types: &[],
    sizes: &[],
    priority: 100,
    interruption: 0,
    reclamation: 0,
    hard_spread: 0,
    gang: None,
    spot: false,
};

/// All kinds that run at any time. One more comes only in bursts, gangs of 64 to 256 whole machines in a zone, and has
/// no share in the steady state.
pub const CATALOGUE: [Archetype; 9] = [
    Archetype {
        name: "tiny-stateless",
        weight: 16073,
        types: &["m6i.large", "m6i.xlarge"],
        sizes: &[size(400, 500, 0, 60), size(300, 384, 0, 40)],
        interruption: 32,
        reclamation: 64,
        ..PLAIN
    },
    Archetype {
        name: "cpu-service",
        weight: 2755,
        types: &["m6i.xlarge", "m6i.2xlarge"],
        sizes: &[size(2200, 8500, 0, 70), size(4200, 16500, 0, 30)],
        priority: 1000,
        interruption: 1024,
        reclamation: 8192,
        hard_spread: 75,
        ..PLAIN
    },
    Archetype {
        name: "cpu-batch",
        weight: 1378,
        types: &["c6i.4xlarge", "c6i.8xlarge", "n2-standard-32"],
        sizes: &[size(4000, 8 * GI, 0, 60), size(8000, 16 * GI, 0, 40)],
        interruption: 64,
        reclamation: 256,
        spot: true,
        ..PLAIN
    },
    Archetype {
        name: "critical-realtime",
        weight: 230,
        types: &["c6i.4xlarge", "m6i.2xlarge"],
        sizes: &[size(4000, 8 * GI, 0, 100)],
        priority: 1_000_000,
        interruption: 65536,
        reclamation: 65536,
        hard_spread: 100,
        ..PLAIN
    },
    Archetype {
        name: "memory-cache",
        weight: 2000,
        types: &["r6i.xlarge", "r6i.2xlarge"],
        sizes: &[size(2000, 16 * GI, 0, 100)],
        priority: 1000,
        interruption: 4096,
        reclamation: 16384,
        gang: Some((3, 5)),
        ..PLAIN
    },
    Archetype {
        name: "stateful-db",
        weight: 2000,
        types: &["r6i.2xlarge", "r6i.4xlarge"],
        sizes: &[size(8000, 32 * GI, 0, 100)],
        priority: 1000,
        interruption: 8192,
        reclamation: 32768,
        gang: Some((3, 5)),
        ..PLAIN
    },
    Archetype {
        name: "gpu-inference",
        weight: 100,
        pods_per_node: 8,
        types: &["a3-highgpu-8g", "a2-highgpu-8g"],
        sizes: &[size(8000, 32 * GI, 1, 100)],
        priority: 1000,
        interruption: 4096,
        reclamation: 8192,
        ..PLAIN
    },
    Archetype {
        name: "gpu-training-small",
        weight: 32,
        pods_per_node: 1,
        types: &["a3-highgpu-8g"],
        sizes: &[size(64000, 256 * GI, 8, 100)],
        priority: 1000,
        interruption: 16384,
        reclamation: 32768,
        gang: Some((2, 8)),
        ..PLAIN
    },
    Archetype {
        name: "gpu-training-medium",
        weight: 18,
        pods_per_node: 1,
        types: &["a3-highgpu-8g"],
        sizes: &[size(64000, 256 * GI, 8, 100)],
        priority: 1000,
        interruption: 32768,
        reclamation: 65536,
        gang: Some((8, 16)),
        ..PLAIN
    },
];

/// Zones of every kind.
pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Machines in one rack.
pub const RACK: u64 = 50;

/// The label that names a machine's rack.
pub const RACK_KEY: &str = "topology.bigfleet/rack";

/// The device of those kinds that want one.
pub const GPU: &str = "nvidia.com/gpu";

/// The on-demand price of a type, in millionths of a dollar an hour.
#[must_use]
pub fn price(instance_type: &str) -> i64 {
    match instance_type {
        "m6i.large" => 96_000,
        "m6i.xlarge" => 192_000,
        "m6i.2xlarge" => 384_000,
        "c6i.4xlarge" => 680_000,
        "c6i.8xlarge" => 1_360_000,
        "n2-standard-32" => 1_550_000,
        "r6i.xlarge" => 252_000,
        "r6i.2xlarge" => 504_000,
        "r6i.4xlarge" => 1_008_000,
        "a2-highgpu-8g" => 29_400_000,
        _ => 88_250_000,
    }
}

impl Archetype {
    /// Eighths of the average number of pods of an object: 21.375, the mean over the size bands of deployments, or
    /// the mean gang.
    #[must_use]
    pub fn eighths_of_replicas(&self) -> u64 {
        self.gang.map_or(171, |(least, most)| 4 * (least + most))
    }

    /// Whether a whole gang fits one machine.
    #[must_use]
    pub fn gang_fits_machine(&self) -> bool {
        self.gang.is_some_and(|(_, most)| most <= self.pods_per_node)
    }
}

/// The bucket of a penalty in dollars.
#[must_use]
pub fn penalty(dollars: i64) -> PenaltyBucket {
    PenaltyBucket::from_dollars(Quantity::from_nano(i128::from(dollars) * 1_000_000_000, Family::Decimal))
}
