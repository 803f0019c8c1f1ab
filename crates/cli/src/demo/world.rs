//! Everything that the demo runs, in one process: a simulated cloud behind the real provider server, a shard, and
//! three simulated clusters with real operators. They talk gRPC over loopback like separate processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use bigfleet_net::clock::SystemClock;
use bigfleet_net::listen;
use bigfleet_operator::service as operator;
use bigfleet_proto::v1alpha1::Machine;
use bigfleet_provider_kit::fakecloud::{self, Class, Control, FakeCloud, Latency};
use bigfleet_provider_kit::{FileStore, Host, Instance};
use bigfleet_shard::options::Options as ShardOptions;
use bigfleet_shard::service::Shard;
use bigfleet_types::{CapacityType, Clock, MachineId, MachineState};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::audit::{Entry, Tail};
use super::cluster::{Cluster, Hosts, Tier};
use super::scrape;
use crate::ctl::fleet;

/// The clusters, with their tiers and how many levels they want of each at first.
const CLUSTERS: [(&str, &[(Tier, u32)]); 3] = [
    ("cluster-a", &[(Tier::Batch, 6), (Tier::Production, 16)]),
    ("cluster-b", &[(Tier::Batch, 6), (Tier::Production, 0)]),
    ("cluster-c", &[(Tier::Batch, 6), (Tier::Production, 0), (Tier::Critical, 0)]),
];
/// How long one question over the wire may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How slow the simulated cloud is. Each machine has its own time within a quarter around these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) create: Duration,
    pub(crate) join: Duration,
    pub(crate) drain: Duration,
    /// Until a machine that broke has been replaced; exact.
    pub(crate) repair: Duration,
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    /// The cloud's catalogue.
    pub(crate) classes: Vec<Class>,
    pub(crate) pace: Pace,
    pub(crate) provider_listen: listen::Addr,
    /// The shard with all its rails; the provider's address and the data directory are filled in.
    pub(crate) shard: ShardOptions,
}

/// Where the parts of a world can be reached.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) provider: SocketAddr,
    pub(crate) shard: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) pause_file: PathBuf,
    pub(crate) audit_log: PathBuf,
}

/// A running world. Dropping it stops everything without waiting.
pub(crate) struct World {
    clusters: Vec<Cluster>,
    control: Control,
    places: Places,
    /// Told why a part ended although nobody asked it to.
    failed: watch::Receiver<Option<String>>,
    /// Where this world's records begin: a file of `--audit-log` may hold older ones.
    audit_from: u64,
    repaired_after: Duration,
    began: Instant,
    stop: CancellationToken,
    _stop_on_drop: tokio_util::sync::DropGuard,
    parts: Mutex<Option<Parts>>,
}

/// What has to be waited for at the end.
struct Parts {
    operators: Vec<operator::Handle>,
    shard: JoinHandle<anyhow::Result<()>>,
    provider: fakecloud::Handle,
}

impl World {
    /// Starts everything; durable state goes to `data_dir`. Must run on a tokio runtime.
    ///
    /// # Errors
    /// The part that does not start, and why. Nothing is left running.
    pub(crate) async fn start(stage: Stage, data_dir: &Path) -> anyhow::Result<Self> {
        let began = Instant::now();
        let stop = CancellationToken::new();
        let stop_on_drop = stop.clone().drop_guard();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let clusters = CLUSTERS.map(|(name, opening)| Cluster::start(name, opening, clock.clone(), &stop));
        let clusters = clusters.into_iter().collect::<anyhow::Result<Vec<_>>>()?;

        let hosts = Hosts(clusters.iter().map(|c| (c.name().to_owned(), c.memory().clone())).collect());
        let store = FileStore::open(data_dir.join("provider")).context("the simulated cloud's store")?;
        let listener = listen::bind_addr(&stage.provider_listen).await.context("--provider-listen")?;
        let cloud = fakecloud::Options {
            classes: stage.classes,
            latency: latencies(stage.pace),
            ..Default::default()
        };
        let cloud = FakeCloud::new(cloud)?.hook(Arc::new(hosts)).store(store);
        let provider = cloud.start(listener).await.context("the simulated cloud")?;

        let mut options = stage.shard;
        options.provider_addr = provider.dial_addr().to_string();
        options.data_dir = data_dir.join("shard");
        let audit_log = options.audit_log.get_or_insert_with(|| data_dir.join("audit.jsonl")).clone();
        // What cannot be looked at now is reported by the shard, which opens it.
        let audit_from = std::fs::metadata(&audit_log).map_or(0, |file| file.len());
        let pause_file = options.data_dir.join("PAUSE");
        let mut shard = Shard::start(options).await.context("the shard")?;
        let metrics =
            shard.metrics_addr().context("the shard's metrics listener cannot be bound; see the log")?;
        let places = Places {
            provider: provider.dial_addr(),
            shard: shard.grpc_addr(),
            metrics,
            pause_file,
            audit_log,
        };
        let (tell, failed) = watch::channel(None);
        let shard = tokio::spawn({
            let stop = stop.clone();
            async move {
                let asked = tokio::select! {
                    () = stop.cancelled() => true,
                    ended = shard.wait() => {
                        let why = ended.err().map_or("nobody asked it to".to_owned(), |e| e.to_string());
                        tell.send_replace(Some(format!("the shard ended: {why}")));
                        false
                    }
                };
                if asked {
                    shard.shutdown();
                    shard.wait().await?;
                }
                anyhow::Ok(())
            }
        });
        let addr = places.shard.to_string();
        let operators = clusters.iter().map(|cluster| cluster.operate(&addr, clock.clone(), &stop));
        let operators = operators.collect::<anyhow::Result<_>>()?;
        Ok(Self {
            clusters,
            control: provider.control().clone(),
            places,
            failed,
            audit_from,
            repaired_after: stage.pace.repair,
            began,
            stop,
            _stop_on_drop: stop_on_drop,
            parts: Mutex::new(Some(Parts { operators, shard, provider })),
        })
    }

    /// Stops operators, shard and provider, in this order, and waits for them.
    ///
    /// # Errors
    /// When a part had failed by itself.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Parts { operators, shard, provider }) = parts else { return Ok(()) };
        self.stop.cancel();
        for operator in operators {
            operator.stop().await;
        }
        let shard = shard.await.context("the shard's task").and_then(|ended| ended);
        provider.shutdown().await.context("the simulated cloud")?;
        shard
    }

    /// Waits until a part ends although nobody asked it to; gives which and why.
    pub(crate) async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The shard was stopped on purpose.
            Err(_) => std::future::pending().await,
        }
    }

    pub(crate) fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// One of the clusters by its name.
    pub(crate) fn cluster(&self, name: &str) -> anyhow::Result<&Cluster> {
        self.clusters
            .iter()
            .find(|cluster| cluster.name() == name)
            .ok_or_else(|| anyhow!("there is no cluster {name}"))
    }

    /// The cloud's knobs, and its machines before any fault.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// The provider's machines, asked for over the wire.
    pub(crate) async fn list(&self) -> anyhow::Result<Vec<Machine>> {
        fleet::machines(&self.places.provider.to_string(), PATIENCE).await
    }

    /// What the shard says about every Need, asked for over the wire.
    pub(crate) async fn needs(&self) -> anyhow::Result<fleet::Needs> {
        fleet::needs(&self.places.shard.to_string(), "", PATIENCE).await
    }

    /// What the shard says its machines cost, in dollars an hour, quota slots aside.
    pub(crate) async fn dollars_told_by_shard(&self) -> anyhow::Result<f64> {
        let page = scrape::metrics(self.places.metrics).await?;
        let slot = |labels: &str| labels.contains(MachineState::Speculative.name());
        Ok(scrape::sum(&page, "bigfleet_shard_capacity_dollars_per_hour", slot))
    }

    /// How many Idle machines the shard knows of, as of its last cycle.
    pub(crate) async fn idle_told_by_shard(&self) -> anyhow::Result<f64> {
        let page = scrape::metrics(self.places.metrics).await?;
        let idle = format!("state=\"{}\"", MachineState::Idle.name());
        Ok(scrape::sum(&page, "bigfleet_shard_inventory_machines", |labels| !labels.contains(&idle)))
    }

    /// A reader of this world's part of the audit log.
    pub(crate) fn tail(&self) -> Tail {
        Tail::new(&self.places.audit_log, self.audit_from)
    }

    /// Every action so far, from the shard's audit log.
    pub(crate) fn audit(&self) -> anyhow::Result<Vec<Entry>> {
        self.tail().read()
    }

    /// Whether every cluster has exactly the pods that it wants, all running, and no machine is on its way.
    pub(crate) fn at_rest(&self) -> bool {
        let on_its_way = |m: &Arc<Machine>| state(m).is_some_and(MachineState::is_transitional);
        self.all_run() && !self.control.machines().iter().any(on_its_way)
    }

    /// Whether every cluster has exactly the pods that it wants, all running.
    pub(crate) fn all_run(&self) -> bool {
        self.clusters.iter().all(|cluster| cluster.is_content(&cluster.memory().view()))
    }

    /// Breaks a machine of the cluster as a spot reclaim would: spot ones first. Gives which; `None` when the cluster
    /// has none. The cloud replaces it after a while.
    pub(crate) async fn kill(&self, cluster: &Cluster) -> anyhow::Result<Option<String>> {
        let machines = self.control.machines();
        let of_cluster =
            |m: &&Arc<Machine>| m.cluster == cluster.name() && state(m) == Some(MachineState::Configured);
        let Some(victim) = machines.iter().filter(of_cluster).max_by_key(|m| (m.capacity_type, &m.id)) else {
            return Ok(None);
        };
        let id = MachineId::parse(&victim.id)?;
        self.control.fail_machine(id.as_str(), "taken away by the demo").await.map_err(|e| anyhow!("{e}"))?;
        cluster.memory().remove_node(&id);
        let (control, stop, instance) = (self.control.clone(), self.stop.clone(), instance(victim));
        let repaired_after = self.repaired_after;
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(repaired_after) => {}
                () = stop.cancelled() => return,
            }
            // Nobody waits for the repair; a store that refuses has been logged by the kit.
            let replaced = match control.remove_machine(&instance.id).await {
                Ok(_) => control.add(instance).await.map(|_| ()),
                Err(error) => Err(error),
            };
            if let Err(error) = replaced {
                tracing::error!(%error, "the simulated cloud cannot replace a machine");
            }
        });
        Ok(Some(id.to_string()))
    }

    /// Whether the PAUSE file is there.
    pub(crate) fn is_paused(&self) -> bool {
        self.places.pause_file.exists()
    }

    /// Makes or removes the PAUSE file, which the shard looks for.
    pub(crate) fn pause(&self, pause: bool) -> anyhow::Result<()> {
        let path = &self.places.pause_file;
        let changed = match (pause, path.exists()) {
            (true, false) => std::fs::write(path, "by the demo\n"),
            (false, true) => std::fs::remove_file(path),
            _ => return Ok(()),
        };
        changed.with_context(|| format!("the file {}", path.display()))
    }

    /// Back to the demand of the beginning.
    pub(crate) fn reset(&self) -> anyhow::Result<()> {
        self.clusters.iter().try_for_each(Cluster::reset)
    }
}

/// The state of a provider's record; `None` for a number that no state has.
pub(crate) fn state(machine: &Machine) -> Option<MachineState> {
    MachineState::from_number(machine.state)
}

/// Whether it is paid for by the hour.
pub(crate) fn is_bought(machine: &Machine) -> bool {
    let kind = CapacityType::from_number(machine.capacity_type);
    matches!(kind, Some(CapacityType::OnDemand | CapacityType::Spot))
}

/// The slot of a machine as the cloud described it at first: owned machines with a host, the others without.
fn instance(machine: &Machine) -> Instance {
    let of = |vector: &Option<bigfleet_proto::v1alpha1::Resources>| {
        vector.as_ref().map(|vector| vector.resources.clone()).unwrap_or_default()
    };
    let host = Host { provider: "fakecloud".to_owned(), reference: format!("host-{}-replaced", machine.id) };
    Instance {
        id: machine.id.clone(),
        host: (!is_bought(machine)).then_some(host),
        instance_type: machine.instance_type.clone(),
        zone: machine.zone.clone(),
        capacity_type: CapacityType::from_number(machine.capacity_type).unwrap_or_default(),
        price_per_hour: machine.price_per_hour,
        interruption_probability: machine.interruption_probability,
        resources: of(&machine.resources),
        allocatable: of(&machine.allocatable),
        labels: machine.labels.clone(),
    }
}

fn latencies(pace: Pace) -> fakecloud::Latencies {
    let around = |duration: Duration| {
        let quarter = Latency::fixed(duration / 4).min_ms;
        let middle = Latency::fixed(duration).min_ms;
        Latency { min_ms: middle - quarter, max_ms: middle.saturating_add(quarter) }
    };
    fakecloud::Latencies {
        create: around(pace.create),
        configure: around(pace.join),
        drain: around(pace.drain),
        delete: around(pace.drain),
    }
}

#[cfg(test)]
mod tests;
