//! What the clusters want, and how that moves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigfleet_operator::memory::{Deployment, MemoryCluster, PodSpec};
use bigfleet_types::chance::{Chance as _, Seeded};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// One kind of workload: which machines it takes and how its size moves. Every machine has 4 cores and every type serves
/// one workload only, so that demand says exactly how many machines of a type a cluster needs; one type is fought over by
/// two clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    /// Comes and goes on owned machines, two pods on each.
    Moving,
    /// Only ever grows, on machines that are bought, one pod on each: none of its pods may ever be disturbed, and any
    /// machine beyond its pods was bought twice.
    Growing,
    /// Comes and goes on spot machines, one pod on each.
    Bursting,
    /// Would take every contested machine, has them all at first, and gives way; in one cluster.
    Yielding,
    /// Only ever grows, in another cluster, and matters more: every machine of it was preempted.
    Urgent,
}

/// The priorities of those two: far enough apart for the shortest grace.
pub(super) const YIELDING_PRIORITY: i32 = 100;
const URGENT_PRIORITY: i32 = 1_000_000;

impl Workload {
    pub(super) const ALL: [Self; 5] =
        [Self::Moving, Self::Growing, Self::Bursting, Self::Yielding, Self::Urgent];

    /// The only cluster in which it is, if there is only one.
    pub(super) fn home(self) -> Option<&'static str> {
        match self {
            Self::Yielding => Some("east"),
            Self::Urgent => Some("west"),
            Self::Moving | Self::Growing | Self::Bursting => None,
        }
    }

    /// The workloads of a cluster.
    pub(super) fn of(cluster: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |workload| workload.home().is_none_or(|home| home == cluster))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Growing => "growing",
            Self::Bursting => "bursting",
            Self::Yielding => "yielding",
            Self::Urgent => "urgent",
        }
    }

    pub(super) fn instance_type(self) -> &'static str {
        match self {
            Self::Moving => "metal.large",
            Self::Growing => "ondemand.large",
            Self::Bursting => "spot.large",
            Self::Yielding | Self::Urgent => "contested.large",
        }
    }

    /// The most pods of it in one cluster; growth has no limit of its own.
    fn most(self) -> u64 {
        match self {
            Self::Moving => 12,
            Self::Growing | Self::Yielding | Self::Urgent => u64::MAX,
            Self::Bursting => 3,
        }
    }

    /// How many machines so many pods need.
    pub(super) fn machines(self, pods: u32) -> u32 {
        match self {
            Self::Moving => pods.div_ceil(2),
            Self::Growing | Self::Bursting | Self::Yielding | Self::Urgent => pods,
        }
    }

    pub(super) fn deployment(self, replicas: u32) -> Deployment {
        let cpu = if self == Self::Moving { "2" } else { "4" };
        let priority = match self {
            Self::Yielding => YIELDING_PRIORITY,
            Self::Urgent => URGENT_PRIORITY,
            Self::Moving | Self::Growing | Self::Bursting => 0,
        };
        let type_key = bigfleet_types::keys::INSTANCE_TYPE.to_owned();
        Deployment {
            namespace: "default".into(),
            name: self.name().into(),
            replicas,
            pod: PodSpec {
                requests: BTreeMap::from([("cpu".into(), cpu.into())]),
                priority,
                requirements: vec![(type_key, "In".into(), vec![self.instance_type().into()])],
                shutdown: Duration::from_millis(100),
                ..PodSpec::default()
            },
            daemon_set: false,
        }
    }
}

/// How many pods each cluster wants of each workload. Copies are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand(Arc<Mutex<BTreeMap<(String, Workload), u32>>>);

impl Demand {
    pub(super) fn set(&self, cluster: &MemoryCluster, workload: Workload, pods: u32) {
        cluster.scale(workload.name(), pods).unwrap();
        self.0.lock().unwrap().insert((cluster.id().to_string(), workload), pods);
    }

    pub(super) fn get(&self, cluster: &str, workload: Workload) -> u32 {
        self.0.lock().unwrap().get(&(cluster.to_owned(), workload)).copied().unwrap_or(0)
    }

    /// Pods of a workload in all clusters.
    pub(super) fn total(&self, workload: Workload) -> u32 {
        self.0.lock().unwrap().iter().filter(|((_, w), _)| *w == workload).map(|(_, pods)| pods).sum()
    }
}

/// Demand that moves until it is held.
pub(super) struct Moving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Moving {
    /// Changes one workload of one cluster at a time, every few hundred milliseconds.
    pub(super) fn start(clusters: Vec<MemoryCluster>, demand: Demand, seed: u64) -> Self {
        let stop = CancellationToken::new();
        let mut chance = Seeded::new(seed);
        let moves = async move {
            loop {
                tokio::time::sleep(Duration::from_millis(150 + chance.below(450))).await;
                let cluster = &clusters[usize::try_from(chance.below(3)).unwrap()];
                let workload = match chance.below(8) {
                    0..=4 => Workload::Moving,
                    5 | 6 => Workload::Growing,
                    _ => Workload::Bursting,
                };
                let pods = match workload {
                    Workload::Growing => demand.get(cluster.id().as_str(), workload) + 1,
                    other => u32::try_from(chance.below(other.most() + 1)).unwrap(),
                };
                demand.set(cluster, workload, pods);
            }
        };
        let token = stop.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = moves => {}
                () = token.cancelled() => {}
            }
        });
        Self { stop, task }
    }

    pub(super) async fn hold(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
