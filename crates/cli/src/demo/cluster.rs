//! A simulated cluster of the demo, with the real operator, and the hosts that join and leave it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use bigfleet_operator::memory::{Config, Deployment, MemoryCluster, PodPhase, PodSpec, View, blob};
use bigfleet_operator::service;
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_provider_kit::backend::Error;
use bigfleet_provider_kit::fakecloud::NodeHook;
use bigfleet_provider_kit::{Blob, Operation};
use bigfleet_types::{CapacityType, Clock, ClusterId, keys};
use tokio_util::sync::CancellationToken;

/// Pods of one level. Together they fill a machine of the catalogue: 7 of its 7.5 cores, all of its memory.
pub(crate) const PODS_PER_LEVEL: u32 = 7;
/// The largest level of one deployment.
pub(crate) const MOST_LEVELS: u32 = 40;
/// How long a bootstrap blob may be used.
const BLOB_TTL: Duration = Duration::from_secs(600);

/// The kinds of demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Priority 100; an interruption costs nothing.
    Batch,
    /// Priority 100,000; an interruption costs 50 cents.
    Production,
    /// Priority 1,000,000; an interruption costs $16.
    Critical,
}

impl Tier {
    /// The name of its deployment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Production => "production",
            Self::Critical => "critical",
        }
    }

    fn pod(self) -> PodSpec {
        let (priority, interruption) = match self {
            Self::Batch => (100, None),
            Self::Production => (100_000, Some("0.5".to_owned())),
            Self::Critical => (1_000_000, Some("16".to_owned())),
        };
        let requests = [("cpu", "1"), ("memory", "4Gi")];
        PodSpec {
            requests: requests.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
            priority,
            interruption_penalty: interruption,
            ..PodSpec::default()
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cluster and how much of each tier it wants.
pub(crate) struct Cluster {
    memory: MemoryCluster,
    opening: BTreeMap<Tier, u32>,
    levels: Mutex<BTreeMap<Tier, u32>>,
}

impl Cluster {
    /// A cluster with these tiers, which wants so many levels of each. Nobody serves it yet.
    pub(crate) fn start(
        name: &str,
        opening: &[(Tier, u32)],
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let id = ClusterId::parse(name).with_context(|| format!("cluster {name}"))?;
        let memory = MemoryCluster::start(id, Config::default(), clock, stop.clone());
        let opening: BTreeMap<Tier, u32> = opening.iter().copied().collect();
        for (tier, level) in &opening {
            memory.apply_deployment(Deployment {
                namespace: "demo".to_owned(),
                name: tier.name().to_owned(),
                replicas: level * PODS_PER_LEVEL,
                pod: tier.pod(),
                daemon_set: false,
            })?;
        }
        Ok(Self { memory, levels: Mutex::new(opening.clone()), opening })
    }

    /// Starts its operator, which dials the shard.
    pub(crate) fn operate(
        &self,
        shard: &str,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> anyhow::Result<service::Handle> {
        let id = self.memory.id().clone();
        let template =
            Template::parse(blob::TEMPLATE).context("the bootstrap template of simulated machines")?;
        let bootstrap = Bootstrap::new(id.clone(), Some(template), Statics::default(), BLOB_TTL);
        let options = service::Options::new(id, shard);
        Ok(service::start(options, Arc::new(bootstrap), Arc::new(self.memory.clone()), clock, stop)?)
    }

    pub(crate) fn name(&self) -> &str {
        self.memory.id().as_str()
    }

    pub(crate) fn memory(&self) -> &MemoryCluster {
        &self.memory
    }

    fn levels(&self) -> MutexGuard<'_, BTreeMap<Tier, u32>> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its tiers and how much of each it wants.
    pub(crate) fn demand(&self) -> Vec<(Tier, u32)> {
        self.levels().iter().map(|(tier, level)| (*tier, *level)).collect()
    }

    /// How much of a tier it wants; nothing of one that it does not have.
    pub(crate) fn level(&self, tier: Tier) -> u32 {
        self.levels().get(&tier).copied().unwrap_or(0)
    }

    /// Changes that; at most [`MOST_LEVELS`]. Gives the level in force.
    pub(crate) fn set_level(&self, tier: Tier, level: u32) -> anyhow::Result<u32> {
        let level = level.min(MOST_LEVELS);
        let mut levels = self.levels();
        self.memory.scale(tier.name(), level * PODS_PER_LEVEL)?;
        levels.insert(tier, level);
        Ok(level)
    }

    /// Back to what it wanted at first.
    pub(crate) fn reset(&self) -> anyhow::Result<()> {
        for (tier, level) in &self.opening {
            self.set_level(*tier, *level)?;
        }
        Ok(())
    }

    /// How many pods it wants.
    pub(crate) fn pods_wanted(&self) -> usize {
        let levels: u32 = self.levels().values().sum();
        usize::try_from(levels * PODS_PER_LEVEL).unwrap_or(usize::MAX)
    }

    /// Whether exactly the pods that it wants exist and run.
    pub(crate) fn is_content(&self, view: &View) -> bool {
        view.pods.len() == self.pods_wanted() && view.pods_in(PodPhase::Running) == view.pods.len()
    }
}

/// What happens on a simulated host when it joins or leaves its cluster.
pub(crate) struct Hosts(pub(crate) BTreeMap<String, MemoryCluster>);

impl Hosts {
    fn cluster(&self, operation: Operation<'_>) -> Result<&MemoryCluster, Error> {
        let name = &operation.machine.cluster;
        self.0.get(name).ok_or_else(|| Error::new(format!("there is no cluster {name:?} in this demo")))
    }
}

#[async_trait]
impl NodeHook for Hosts {
    /// Boots with the blob and waits until the node is Ready: a machine is Configured only then.
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        let machine = operation.machine;
        let mut labels = machine.labels.clone();
        labels.insert(keys::INSTANCE_TYPE.to_owned(), machine.instance_type.clone());
        labels.insert(keys::ZONE.to_owned(), machine.zone.clone());
        if let Some(label) = CapacityType::from_number(machine.capacity_type).and_then(CapacityType::label) {
            labels.insert(keys::CAPACITY_TYPE.to_owned(), label.to_owned());
        }
        let of = |vector: &Option<bigfleet_proto::v1alpha1::Resources>| {
            vector.as_ref().map(|vector| vector.resources.clone()).filter(|vector| !vector.is_empty())
        };
        let allocatable = of(&machine.allocatable).or_else(|| of(&machine.resources)).unwrap_or_default();
        let joined = self.cluster(operation)?.join(operation.id, blob.expose(), labels, &allocatable).await;
        joined.map(|_node| ()).map_err(|error| Error::new(error.to_string()))
    }

    /// Waits for the operator's evictions, at most the grace, and takes the node away.
    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        let cluster = self.cluster(operation)?;
        let grace = Duration::from_secs(u64::try_from(operation.grace_seconds).unwrap_or(0));
        let empty = cluster
            .wait_for(|view| view.nodes.iter().all(|node| node.machine != *operation.id || node.pods == 0));
        // Pods that outlive the grace go down with their host.
        let _ = tokio::time::timeout(grace, empty).await;
        cluster.remove_node(operation.id);
        Ok(())
    }
}
