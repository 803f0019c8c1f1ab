//! The operator as a running thing: one task owns the core and connects it with a session and a cluster.
//!
//! * [`ClusterShell`]: what a cluster has to offer; the in-memory one does, Kubernetes is another.
//! * [`start`]: runs an operator over a shell; [`Handle`] looks at it and stops it.

mod run;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::Clock;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::core::{Config, Core, Counters};
use crate::io::{Input, Render, Write, WriteError};
use crate::session;

/// An Event that people may read on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is about: kind and name.
    pub about: (String, String),
    /// `true` for Warning.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// A cluster as an operator uses it: watches come as inputs, writes are answered.
pub trait ClusterShell: Send + Sync + 'static {
    /// What is known at the start and must be before a frame of the shard is judged: nodes and read-backs. Asked once,
    /// before [`Self::inputs`]; empty for a cluster in which nothing happened yet.
    fn first_inputs(&self) -> Vec<Input> {
        Vec::new()
    }

    /// Starts to watch: every object, then [`Input::Synced`], then changes. A later call ends the earlier watch.
    fn inputs(&self) -> mpsc::Receiver<Input>;

    /// Sends the pods of a node, then [`Input::PodsListed`], then their changes, as inputs.
    fn watch_pods(&self, node: &str);

    /// Sends the pods of a node no longer.
    fn unwatch_pods(&self, node: &str);

    /// Carries out one write.
    ///
    /// # Errors
    /// What the API server answered.
    fn write(&self, write: Write) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Records an Event, without waiting.
    fn note(&self, note: Note);

    /// A roll-up went into the session's queue: how long it took to build and to queue. For metrics.
    fn rollup_took(&self, build: Duration, enqueue: Duration) {
        let _ = (build, enqueue);
    }

    /// So many frames asked for UpcomingNodes that were there already. For metrics.
    fn upcoming_unchanged(&self, frames: u64) {
        let _ = frames;
    }
}

/// How an operator runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the core behaves; names the cluster.
    pub core: Config,
    /// How the session is kept; names the shard.
    pub session: session::Options,
    /// Parallel writes other than acknowledgements, which have `core.ack_concurrency`.
    pub write_concurrency: usize,
}

impl Options {
    /// The defaults, for one cluster and its shard at `host:port`.
    #[must_use]
    pub fn new(cluster: bigfleet_types::ClusterId, shard_addr: impl Into<String>) -> Self {
        Self {
            core: Config::new(cluster.clone()),
            session: session::Options::new(cluster, shard_addr),
            write_concurrency: 32,
        }
    }
}

/// An operator that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The shard's address is none.
    #[error("the shard's address is wrong: {0}")]
    Address(#[from] bigfleet_net::channel::Error),
}

/// A running operator. Dropping it stops the operator.
#[derive(Debug)]
pub struct Handle {
    session: session::Handle,
    counters: watch::Receiver<Counters>,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Handle {
    /// What the session has counted.
    #[must_use]
    pub fn session_stats(&self) -> session::Stats {
        self.session.stats()
    }

    /// What the core has counted, as of its last round.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.borrow().clone()
    }

    /// Ends the session and the core, and waits for them. Writes that have begun run on.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the operator did not end well");
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts an operator over a cluster, until `stop` or until its handle goes. Must run on a tokio runtime.
///
/// # Errors
/// When the options cannot be used; nothing runs then.
pub fn start<S: ClusterShell>(
    options: Options,
    render: Arc<dyn Render>,
    shell: Arc<S>,
    clock: Arc<dyn Clock>,
    stop: &CancellationToken,
) -> Result<Handle, StartError> {
    let stop = stop.child_token();
    let (session, events, session_task) = session::start(options.session, stop.clone())?;
    let (publish, counters) = watch::channel(Counters::default());
    let ack_concurrency = options.core.ack_concurrency;
    let core = Core::new(options.core, render);
    let runner = run::Runner::new(core, session.clone(), shell, clock, publish)
        .with_concurrency(ack_concurrency, options.write_concurrency);
    let task = tokio::spawn(runner.run(events, stop.clone()));
    Ok(Handle { session, counters, stop, tasks: vec![session_task, task] })
}
