//! The cluster in memory behind a clock: a task steps the store, carries its watch events and answers writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigfleet_types::{Clock, ClusterId, MachineId, UnixNanos};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::blob::{Blob, BlobError};
use super::object::{Budget, Config, Deployment, Disruption, EventNote};
use super::store::{ApplyError, Store};
use super::view::View;
use crate::io::{Input, Write, WriteError};
use crate::service::{ClusterShell, Note};

/// How many watch events may wait for the operator.
const INPUTS: usize = 4096;
/// How often the store is stepped although nothing is due, so that a clock of tests may jump.
const IDLE_STEP: Duration = Duration::from_secs(1);

/// A machine that cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Its blob tells it nothing.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its blob is for another cluster.
    #[error("the bootstrap blob is for cluster {blob}, this is {here}")]
    Cluster {
        /// The cluster in the blob.
        blob: ClusterId,
        /// This cluster.
        here: ClusterId,
    },
    /// Its blob is for another machine.
    #[error("the bootstrap blob is for machine {blob}, this is {machine}")]
    Machine {
        /// The machine in the blob.
        blob: MachineId,
        /// The machine that was given it.
        machine: MachineId,
    },
    /// The machine's own description is wrong.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The node was gone before it was Ready, or the cluster stopped.
    #[error("node {node} went away before it was ready")]
    Lost {
        /// The node.
        node: String,
    },
}

struct Inner {
    cluster: ClusterId,
    clock: Arc<dyn Clock>,
    store: Mutex<Store>,
    /// Where watch events go; the newest reader has them.
    inputs: Mutex<Option<mpsc::Sender<Input>>>,
    /// Counts the steps; whoever waits for a change looks again when it moves.
    steps: watch::Receiver<u64>,
    poke: tokio::sync::Notify,
}

/// A running cluster. Cheap to clone; the copies are one cluster.
#[derive(Clone)]
pub struct MemoryCluster {
    inner: Arc<Inner>,
}

impl fmt::Debug for MemoryCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCluster").field("cluster", &self.inner.cluster).finish_non_exhaustive()
    }
}

impl MemoryCluster {
    /// An empty cluster that lives until `stop`. Must run on a tokio runtime.
    #[must_use]
    pub fn start(cluster: ClusterId, config: Config, clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        let (stepped, steps) = watch::channel(0);
        let inner = Arc::new(Inner {
            cluster,
            clock,
            store: Mutex::new(Store::new(config)),
            inputs: Mutex::new(None),
            steps,
            poke: tokio::sync::Notify::new(),
        });
        tokio::spawn(run(Arc::clone(&inner), stepped, stop));
        Self { inner }
    }

    /// The cluster's id.
    #[must_use]
    pub fn id(&self) -> &ClusterId {
        &self.inner.cluster
    }

    fn with<T>(&self, change: impl FnOnce(&mut Store, UnixNanos) -> T) -> T {
        let result = change(&mut self.inner.lock(), self.inner.clock.now());
        self.inner.poke.notify_one();
        result
    }

    /// Creates or replaces a deployment.
    ///
    /// # Errors
    /// When a request of its pods is no quantity.
    pub fn apply_deployment(&self, deployment: Deployment) -> Result<(), ApplyError> {
        self.with(|store, _| store.apply_deployment(deployment))
    }

    /// Changes how many pods a deployment wants.
    ///
    /// # Errors
    /// When there is no such deployment.
    pub fn scale(&self, deployment: &str, replicas: u32) -> Result<(), ApplyError> {
        self.with(|store, _| store.scale(deployment, replicas))
    }

    /// Creates or replaces a disruption budget.
    pub fn apply_budget(&self, budget: Budget) {
        self.with(|store, _| store.apply_budget(budget));
    }

    /// Removes a disruption budget, if there is one of that name.
    pub fn remove_budget(&self, name: &str) {
        self.with(|store, _| store.remove_budget(name));
    }

    /// A machine boots with its bootstrap blob and joins; returns the node's name once the node is Ready. `labels`
    /// are the machine's own (type, zone); those of the blob win. `allocatable` holds quantity strings. Joining again
    /// is harmless.
    ///
    /// # Errors
    /// When the blob is not for this machine and cluster, an amount is no quantity, or the node goes away first.
    pub async fn join(
        &self,
        machine: &MachineId,
        blob: &[u8],
        mut labels: BTreeMap<String, String>,
        allocatable: &BTreeMap<String, String>,
    ) -> Result<String, JoinError> {
        let blob = Blob::parse(blob)?;
        if blob.cluster != self.inner.cluster {
            return Err(JoinError::Cluster { blob: blob.cluster, here: self.inner.cluster.clone() });
        }
        if blob.machine != *machine {
            return Err(JoinError::Machine { blob: blob.machine, machine: machine.clone() });
        }
        labels.extend(blob.labels);
        self.join_node(machine, labels, allocatable).await
    }

    /// As [`Self::join`], without a blob.
    ///
    /// # Errors
    /// When an amount is no quantity, or the node goes away before it is Ready.
    pub async fn join_node(
        &self,
        machine: &MachineId,
        labels: BTreeMap<String, String>,
        allocatable: &BTreeMap<String, String>,
    ) -> Result<String, JoinError> {
        let node = self.with(|store, now| store.join_node(now, machine, labels, allocatable))?;
        let mut steps = self.inner.steps.clone();
        loop {
            match self.inner.lock().nodes.get(&node).map(|record| record.node.ready) {
                Some(true) => return Ok(node),
                Some(false) => {}
                None => return Err(JoinError::Lost { node }),
            }
            if steps.changed().await.is_err() {
                return Err(JoinError::Lost { node });
            }
        }
    }

    /// A machine goes away with its node; pods that are still on it are lost. Gives whether there was one.
    pub fn remove_node(&self, machine: &MachineId) -> bool {
        self.with(|store, now| store.remove_node(now, machine))
    }

    /// The watch breaks for a while; then everything is listed anew.
    pub fn break_watch(&self, outage: Duration) {
        self.with(|store, now| store.break_watch(now, outage));
    }

    /// Lets the next `count` writes conflict.
    pub fn conflict_next(&self, count: u32) {
        self.with(|store, _| store.conflict_next(count));
    }

    /// The cluster as it stands.
    #[must_use]
    pub fn view(&self) -> View {
        self.inner.lock().view(self.inner.clock.now())
    }

    /// Bound pods that ended, the oldest first; a bounded number.
    #[must_use]
    pub fn evictions(&self) -> Vec<Disruption> {
        self.inner.lock().evictions()
    }

    /// Waits until the cluster looks as `wanted`; gives what it looked like. It looks after every step.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&View) -> bool) -> View {
        let mut steps = self.inner.steps.clone();
        loop {
            let view = self.view();
            // A cluster that has stopped changes no more: there is nothing to wait for.
            if wanted(&view) || steps.changed().await.is_err() {
                return view;
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Store> {
        // Every method of the store leaves it whole, so a panic elsewhere breaks nothing here.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locked after the store, if both are.
    fn reader(&self) -> MutexGuard<'_, Option<mpsc::Sender<Input>>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(inner: Arc<Inner>, stepped: watch::Sender<u64>, stop: CancellationToken) {
    loop {
        let now = inner.clock.now();
        let (due, wake, reader) = {
            let mut store = inner.lock();
            let due = store.step(now);
            // Taken with the events: those that an earlier reader is due must not reach a later one.
            (due, store.next_wake(now), inner.reader().clone())
        };
        stepped.send_modify(|n| *n += 1);
        if let Some(reader) = reader {
            for input in due {
                // A reader that left has been, or will be, replaced by one that is told of everything anew.
                if tokio::select! {
                    sent = reader.send(input) => sent.is_err(),
                    () = stop.cancelled() => true,
                } {
                    break;
                }
            }
        }
        let wait = wake.map_or(IDLE_STEP, |at| at.since(inner.clock.now()).min(IDLE_STEP));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = inner.poke.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

impl ClusterShell for MemoryCluster {
    fn inputs(&self) -> mpsc::Receiver<Input> {
        let (sender, reader) = mpsc::channel(INPUTS);
        self.with(|store, now| {
            store.start_watch(now);
            *self.inner.reader() = Some(sender);
        });
        reader
    }

    fn watch_pods(&self, node: &str) {
        self.with(|store, now| store.watch_pods(now, node));
    }

    fn unwatch_pods(&self, node: &str) {
        self.with(|store, _| store.unwatch_pods(node));
    }

    async fn write(&self, write: Write) -> Result<(), WriteError> {
        let latency = self.inner.lock().config.write_latency;
        tokio::time::sleep(latency).await;
        self.with(|store, now| store.write(now, &write))
    }

    fn note(&self, note: Note) {
        self.with(|store, now| {
            store.record_event(EventNote {
                at: now,
                about: note.about,
                warning: note.warning,
                reason: note.reason.to_owned(),
                message: note.message,
            });
        });
    }
}
