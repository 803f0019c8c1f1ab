//! A real Kubernetes as the operator uses it: watches become inputs, writes become API calls.
//!
//! * [`KubernetesShell::new`], then [`KubernetesShell::prime`], which reads nodes and read-backs, then
//!   `bigfleet_operator::service::start`.
//! * A watch that breaks is taken up where it was, or begins with a list that replaces what is known at its end, never
//!   in between. A list that is refused (403, 404) is not an empty one.
//! * An object that cannot be read costs one Event, one count and a log line a minute, and changes nothing else.

mod convert;
mod daemon_sets;
mod events;
pub(crate) mod follow;
mod metrics;
mod pods;
mod requests;
mod small;
mod synced;
mod unreadable;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigfleet_net::admin::Readiness;
use bigfleet_operator::io::{Input, Write, WriteError};
use bigfleet_operator::service::{ClusterShell, Note};
use bigfleet_types::Clock;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use events::Events;
use metrics::Metrics;
use synced::Synced;
use unreadable::Unreadable;

/// How many watch events may wait for the operator.
const INPUTS: usize = 4096;
/// How often the API server is asked for its version.
const VERSION_EVERY: Duration = Duration::from_secs(5 * 60);
/// How long until it is asked again when it did not say.
const VERSION_RETRY: Duration = Duration::from_secs(5);

/// How the shell behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Namespace and name of the pod that we run in: evicted last. `None` outside a cluster.
    pub own_pod: Option<(String, String)>,
    /// Whether DaemonSets are listed, which takes a right of its own.
    pub daemon_sets: bool,
}

/// A Kubernetes cluster. Dropping it ends its watches.
pub struct KubernetesShell {
    inner: Arc<Inner>,
    /// What has been read of the small kinds, and their watches, until the operator takes them over.
    primed: Mutex<Option<small::Small>>,
    first: Mutex<Vec<Input>>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
    pods: Mutex<BTreeMap<String, AbortOnDropHandle<()>>>,
}

impl fmt::Debug for KubernetesShell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesShell").finish_non_exhaustive()
    }
}

/// What watches and writes share.
struct Inner {
    client: Client,
    clock: Arc<dyn Clock>,
    options: Options,
    events: Events,
    metrics: Metrics,
    synced: Synced,
    unreadable: Unreadable,
    /// No write begins after this.
    halt: CancellationToken,
    uids: Mutex<Uids>,
    /// Counts the watches of pods.
    watches: AtomicU64,
    /// UpcomingNodes as the cluster holds them, by name.
    upcoming: Mutex<HashMap<String, write::Stored>>,
    /// Cancelled when a watch's task has ended, which none should.
    ended: CancellationToken,
    /// Where inputs go; the newest reader has them.
    sender: Mutex<Option<mpsc::Sender<Input>>>,
    version: watch::Sender<Option<String>>,
}

/// Uids of objects that Events may be about, by name.
#[derive(Debug, Default)]
struct Uids {
    nodes: HashMap<String, String>,
    /// Pods of draining nodes, `namespace/name`, and the watch that saw them.
    pods: HashMap<String, (String, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder leaves these half-changed, so a panic elsewhere breaks nothing here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KubernetesShell {
    /// A shell over `client`, whose own retries must be off and whose calls must end in time. Nothing is read yet.
    /// `halt` ends all writing: a write that has not begun by then is refused. `readiness` follows whether everything
    /// that is watched has been read. Must run on a tokio runtime.
    #[must_use]
    pub fn new(
        client: Client,
        options: Options,
        clock: Arc<dyn Clock>,
        registry: &mut Registry,
        readiness: Readiness,
        halt: CancellationToken,
    ) -> Self {
        let metrics = Metrics::register(registry);
        let events = Events::start(client.clone(), options.own_pod.as_ref().map(|(_, name)| name.clone()));
        let inner = Inner {
            synced: Synced::new(
                metrics.cache_synced.clone(),
                readiness,
                options.daemon_sets.then_some(daemon_sets::KIND),
            ),
            unreadable: Unreadable::new(metrics.invalid_objects.clone(), events.clone()),
            client,
            clock,
            options,
            events,
            metrics,
            halt,
            uids: Mutex::default(),
            watches: AtomicU64::new(0),
            upcoming: Mutex::default(),
            ended: CancellationToken::new(),
            sender: Mutex::default(),
            version: watch::Sender::new(None),
        };
        Self {
            inner: Arc::new(inner),
            primed: Mutex::default(),
            first: Mutex::default(),
            tasks: Mutex::default(),
            pods: Mutex::default(),
        }
    }

    /// Reads the API server's version, the nodes, and the UpcomingNodes and AvailableCapacities that are ours, however
    /// long that takes: a frame of the shard that is judged without them could undo what they say.
    pub async fn prime(&self) {
        let version = first_version(&self.inner).await;
        let mut small = small::Small::new(&self.inner);
        let mut first = vec![Input::ServerVersion(version)];
        first.extend(small.prime(&self.inner).await);
        *lock(&self.first) = first;
        *lock(&self.primed) = Some(small);
    }

    /// Cancelled when a watch has ended for good, which only a defect of ours can do: what follows would be blind.
    #[must_use]
    pub fn ended(&self) -> &CancellationToken {
        &self.inner.ended
    }

    /// The version of the API server; `None` until it is known.
    #[must_use]
    pub fn version(&self) -> watch::Receiver<Option<String>> {
        self.inner.version.subscribe()
    }
}

async fn ask_version(inner: &Inner) -> Option<String> {
    match inner.client.apiserver_version().await {
        Ok(info) => Some(info.git_version),
        Err(error) => {
            tracing::warn!(%error, "the API server does not say its version; asking again");
            None
        }
    }
}

async fn first_version(inner: &Inner) -> String {
    loop {
        if let Some(version) = ask_version(inner).await {
            inner.version.send_replace(Some(version.clone()));
            return version;
        }
        tokio::time::sleep(VERSION_RETRY).await;
    }
}

/// Follows the version: a control plane is upgraded under a running operator.
async fn follow_version(inner: Arc<Inner>, sender: mpsc::Sender<Input>) {
    loop {
        tokio::time::sleep(VERSION_EVERY).await;
        let Some(version) = ask_version(&inner).await else {
            continue;
        };
        let changed = inner.version.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&version);
            *known = Some(version.clone());
            changed
        });
        if changed && sender.send(Input::ServerVersion(version)).await.is_err() {
            return;
        }
    }
}

impl ClusterShell for KubernetesShell {
    fn first_inputs(&self) -> Vec<Input> {
        std::mem::take(&mut *lock(&self.first))
    }

    fn inputs(&self) -> mpsc::Receiver<Input> {
        let (sender, reader) = mpsc::channel(INPUTS);
        *lock(&self.inner.sender) = Some(sender.clone());
        let small = lock(&self.primed).take().unwrap_or_else(|| small::Small::new(&self.inner));
        let inner = || Arc::clone(&self.inner);
        let mut watches = small.follow(&self.inner, &sender);
        watches.push(Box::pin(requests::follow(inner(), sender.clone())));
        if self.inner.options.daemon_sets {
            watches.push(Box::pin(daemon_sets::follow(inner(), sender.clone())));
        }
        watches.push(Box::pin(follow_version(inner(), sender)));
        let guarded = watches.into_iter().map(|watch| {
            let guard = self.inner.ended.clone().drop_guard();
            AbortOnDropHandle::new(tokio::spawn(async move {
                watch.await;
                drop(guard);
            }))
        });
        *lock(&self.tasks) = guarded.collect();
        reader
    }

    fn watch_pods(&self, node: &str) {
        let Some(sender) = lock(&self.inner.sender).clone() else {
            return;
        };
        let task = tokio::spawn(pods::follow(Arc::clone(&self.inner), node.to_owned(), sender));
        // A watch of the node that runs already ends here: the new one sends every pod again.
        lock(&self.pods).insert(node.to_owned(), AbortOnDropHandle::new(task));
    }

    fn unwatch_pods(&self, node: &str) {
        lock(&self.pods).remove(node);
    }

    async fn write(&self, write: Write) -> Result<(), WriteError> {
        if self.inner.halt.is_cancelled() {
            return Err(WriteError::Other("this process leads no longer".to_owned()));
        }
        write::carry_out(&self.inner, write).await
    }

    fn note(&self, note: Note) {
        let uids = lock(&self.inner.uids);
        let (kind, name) = &note.about;
        let uid = match kind.as_str() {
            "Node" => uids.nodes.get(name).cloned(),
            "Pod" => uids.pods.get(name).map(|(uid, _)| uid.clone()),
            _ => None,
        };
        drop(uids);
        self.inner.events.send(note, uid);
    }

    fn rollup_took(&self, build: Duration, enqueue: Duration) {
        self.inner.metrics.rollup(build, enqueue);
    }

    fn upcoming_unchanged(&self, frames: u64) {
        self.inner.metrics.unchanged(frames);
    }
}
