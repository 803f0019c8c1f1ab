//! The pod controller as a process: election, watches, workers, Events, metrics.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::admin::{self, BuildInfo, Pages, Readiness, Supervised};
use bigfleet_net::clock::SystemClock;
use bigfleet_net::{ids, listen};
use bigfleet_types::{Clock as _, UnixNanos};
use futures::stream::{BoxStream, StreamExt as _, select_all};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::Api;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::core::{Notice, Outcome, Rules};
use super::feed::{self, Item};
use super::metrics::{Metrics, PREFIX, kind_label};
use super::notices::Notices;
use super::penalties::{self, Defaults};
use super::table::{Ended, Event, Job, Kind, Orphan, Table};
use super::writes::{self, Failure};
use crate::client::{self, Limits};
use crate::crd::{GROUP, POD_CONTROLLER, VERSION};
use crate::lease::{self, Elector, Leadership};

/// How many writes run at once.
const WORKERS: usize = 16;
/// How many pods are looked at before watches get their turn again.
const SLICE: usize = 512;
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Orphans are deleted one in this time: 100 a second.
const ORPHAN_EVERY: Duration = Duration::from_millis(10);
const RELOAD_EVERY: Duration = Duration::from_secs(10);
const SAY_EVERY: Duration = Duration::from_secs(30);

/// What a pod controller needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where metrics and probes are served; `None` for nowhere.
    pub metrics_addr: Option<listen::Addr>,
    /// How much may be asked of the API server.
    pub limits: Limits,
    /// Whether to act only while holding the lease, so that two replicas are safe.
    pub leader_elect: bool,
    /// What holds for all pods; its penalty defaults come from `defaults_file` when there is one.
    pub rules: Rules,
    /// Penalties by PriorityClass; read again when it changes.
    pub defaults_file: Option<PathBuf>,
    /// Selects the nodes whose machines are not the fleet's; empty selects none.
    pub unmanaged_node_selector: String,
}

/// Why a pod controller does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The defaults cannot be read.
    #[error("--priority-class-defaults {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The defaults cannot be used.
    #[error("--priority-class-defaults {}: {source}", path.display())]
    Defaults {
        /// The file.
        path: PathBuf,
        /// Why.
        source: penalties::Error,
    },
    /// Another process may act now.
    #[error("the lease {0} was lost; another replica acts now")]
    LeaseLost(&'static str),
    /// A defect of ours.
    #[error("the pod controller's task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// A pod controller that runs.
#[derive(Debug)]
pub struct Handle {
    admin: Option<Supervised>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Handle {
    /// Where metrics and probes are served, once they are. `None` when they are switched off.
    pub async fn metrics_addr(&mut self) -> Option<std::net::SocketAddr> {
        match &mut self.admin {
            Some(admin) => admin.wait_bound().await,
            None => None,
        }
    }

    /// Asks for its end.
    pub fn shutdown(&self) {
        self.stop.cancel();
    }

    /// Waits for its end. Safe to drop and call again before it has answered.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] and [`Error::Task`].
    pub async fn wait(&mut self) -> Result<(), Error> {
        let ended = (&mut self.task).await?;
        self.stop.cancel();
        if let Some(admin) = self.admin.take() {
            admin.join().await;
        }
        ended
    }
}

/// Starts a pod controller over `client`, whose own retries must be off. Must run on a tokio runtime. It waits for as
/// long as it takes until it may act and knows all pods.
///
/// # Errors
/// [`Error::Unreadable`] and [`Error::Defaults`]; nothing runs then.
pub fn start(client: Client, mut options: Options) -> Result<Handle, Error> {
    let mut text = String::new();
    if let Some(path) = &options.defaults_file {
        text = read(path)?;
        options.rules.defaults = parse(path, &text)?;
    }
    let mut registry = Registry::default();
    let build = BuildInfo::this("pod-controller");
    build.register(&mut registry);
    let metrics = Metrics::new(&mut registry);
    let namespace = client.default_namespace().to_owned();
    let calls = client::calls(&mut registry, PREFIX);
    let client = client::limited(client, options.limits, calls);
    let readiness = Readiness::settable("waiting for the lease");
    let stop = CancellationToken::new();
    let admin = options.metrics_addr.clone().map(|addr| {
        let pages = Pages { registry: Arc::new(registry), readiness: readiness.clone(), build };
        admin::supervise(addr, pages, stop.clone())
    });
    let controller = Controller {
        client,
        namespace,
        metrics,
        readiness,
        clock: SystemClock::start(),
        stop: stop.clone(),
        defaults_text: text,
        options,
    };
    let task = tokio::spawn(controller.run());
    Ok(Handle { admin, stop, task })
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })
}

fn parse(path: &Path, text: &str) -> Result<Defaults, Error> {
    Defaults::parse(text).map_err(|source| Error::Defaults { path: path.to_owned(), source })
}

struct Controller {
    client: Client,
    namespace: String,
    metrics: Metrics,
    readiness: Readiness,
    clock: SystemClock,
    stop: CancellationToken,
    defaults_text: String,
    options: Options,
}

/// A write that has ended.
enum Written {
    Job(Box<Job>, Result<Ended, Failure>),
    Orphan(Result<Ended, Failure>),
}

impl Controller {
    async fn run(self) -> Result<(), Error> {
        let leadership = if self.options.leader_elect {
            let identity = lease::identity(&std::env::var("HOSTNAME").unwrap_or_else(|_| "local".to_owned()));
            let options = lease::Options::new(self.namespace.clone(), POD_CONTROLLER, identity);
            let elector = Elector::new(self.client.clone(), options, Arc::new(self.clock));
            // A replica that stands by is as ready as it can be.
            let readiness = self.readiness.clone();
            match elector.acquire(&self.stop, move || readiness.set_ready()).await {
                Some(leadership) => Some(leadership),
                None => return Ok(()),
            }
        } else {
            None
        };
        let lost = leadership.as_ref().map_or_else(CancellationToken::new, |one| one.lost().clone());
        let stop = self.stop.clone();
        let metrics = self.metrics.clone();
        metrics.leader.set(1);
        let result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = lost.cancelled() => Err(Error::LeaseLost(POD_CONTROLLER)),
            () = self.act() => Ok(()),
        };
        metrics.leader.set(0);
        if let (Ok(()), Some(leadership)) = (&result, leadership) {
            Leadership::release(leadership).await;
        }
        result
    }

    /// Acts until dropped.
    async fn act(self) {
        self.readiness.set_unready("pods and CapacityRequests are being listed");
        let mut acting = Acting::new(self);
        let mut items = acting.watches();
        let start = Instant::now();
        let tick = |every| {
            let mut ticks = interval_at(start + every, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (mut sweeps, mut reloads) = (tick(SWEEP_EVERY), tick(RELOAD_EVERY));
        let (mut says, mut orphans) = (tick(SAY_EVERY), tick(ORPHAN_EVERY));
        loop {
            acting.dispatch();
            let wake = acting.wake();
            tokio::select! {
                // Watches never end; their back-off makes them begin again.
                Some(item) = items.next() => acting.take(item),
                Some(ended) = acting.writes.join_next() => acting.ended(ended),
                () = tokio::time::sleep_until(wake) => {}
                _ = orphans.tick(), if acting.table.has_orphans() && acting.writes.len() < WORKERS => acting.delete_orphan(),
                _ = sweeps.tick() => acting.table.sweep(),
                _ = reloads.tick() => acting.reload().await,
                _ = says.tick() => acting.say(),
            }
        }
    }
}

/// What a controller has while it acts.
struct Acting {
    controller: Controller,
    table: Table,
    notices: Notices,
    writes: JoinSet<Written>,
    synced: bool,
}

impl Acting {
    fn new(controller: Controller) -> Self {
        let watches_nodes = !controller.options.unmanaged_node_selector.is_empty();
        Self {
            table: Table::new(controller.options.rules.clone(), watches_nodes),
            notices: Notices::start(controller.client.clone(), controller.metrics.notices.clone()),
            writes: JoinSet::new(),
            synced: false,
            controller,
        }
    }

    fn watches(&self) -> futures::stream::SelectAll<BoxStream<'static, Item>> {
        let client = &self.controller.client;
        let mut all = vec![feed::pods(client), feed::requests(client)];
        for kind in [Kind::Pod, Kind::CapacityRequest] {
            self.controller.metrics.synced(kind, false);
        }
        let selector = &self.controller.options.unmanaged_node_selector;
        if !selector.is_empty() {
            all.push(feed::nodes(client, selector));
            self.controller.metrics.synced(Kind::Node, false);
        }
        select_all(all)
    }

    fn now(&self) -> UnixNanos {
        self.controller.clock.now()
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Event(event) => {
                let kind = event.kind();
                if event == Event::Listed(kind) {
                    self.controller.metrics.synced(kind, true);
                }
                for uid in self.table.on(event) {
                    self.notices.forget(&uid);
                }
                if !self.synced && self.table.missing().is_empty() {
                    self.synced = true;
                    self.controller.readiness.set_ready();
                    self.table.sweep();
                    let (pods, requests) = self.table.sizes();
                    tracing::info!(pods, requests, "everything is listed");
                }
            }
            Item::Unreadable { kind, meta, error } => {
                let label = kind_label(kind);
                let about = ObjectReference {
                    api_version: Some(match kind {
                        Kind::CapacityRequest => format!("{GROUP}/{VERSION}"),
                        Kind::Pod | Kind::Node => "v1".to_owned(),
                    }),
                    kind: Some(label.to_owned()),
                    name: meta.name.clone(),
                    namespace: meta.namespace.clone(),
                    uid: meta.uid.clone(),
                    ..ObjectReference::default()
                };
                let message = format!("the object cannot be read: {error}; nothing is changed for it");
                let notice = Notice { warning: true, reason: "Unreadable", message };
                let now = self.now();
                if self.notices.tell(&about, &notice, now) {
                    self.controller.metrics.invalid_objects.get_or_create(&[("kind", label)]).inc();
                }
            }
            Item::Denied(kind) => self.controller.metrics.synced(kind, false),
        }
    }

    /// Gives out as much work as there are workers for.
    fn dispatch(&mut self) {
        let now = self.now();
        for _ in 0..SLICE {
            if self.writes.len() >= WORKERS {
                break;
            }
            let Some(job) = self.table.next(now) else { break };
            if job.decision.action == super::core::Action::Nothing {
                self.settle(job, Ok(Ended::Done(None)));
                continue;
            }
            let client = self.controller.client.clone();
            self.writes.spawn(async move {
                let result = writes::carry_out(&client, &job.key.0, &job.decision.action).await;
                Written::Job(Box::new(job), result)
            });
        }
        let (pods, requests) = self.table.sizes();
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.controller.metrics.pods.set(gauge(pods));
        self.controller.metrics.requests.set(gauge(requests));
        self.controller.metrics.waiting.set(gauge(self.table.waiting()));
    }

    fn ended(&mut self, ended: Result<Written, tokio::task::JoinError>) {
        match ended {
            Ok(Written::Job(job, result)) => self.settle(*job, result),
            Ok(Written::Orphan(result)) => {
                let outcome = if result.is_ok() { "deleted" } else { "error" };
                self.controller.metrics.orphans_deleted.get_or_create(&[("outcome", outcome)]).inc();
                if let Err(Failure { message: Some(message), .. }) = result {
                    tracing::warn!(message, "an orphaned CapacityRequest stays until the next sweep");
                }
            }
            // Its key stays at work for ever, which would be silent: rather end the process with a message.
            Err(error) => std::panic::resume_unwind(Box::new(format!("a write panicked: {error}"))),
        }
    }

    fn settle(&mut self, job: Job, result: Result<Ended, Failure>) {
        let now = self.now();
        let decision = &job.decision;
        let (ended, outcome, notices) = match result {
            Ok(ended) => (ended, decision.outcome, decision.notices.clone()),
            Err(Failure { ended, message }) => {
                let refused = ended == Ended::Refused;
                let notice = message.map(|message| Notice {
                    warning: true,
                    reason: if refused { "CapacityRequestRefused" } else { "CapacityRequestFailed" },
                    message: format!("the API server does not take the pod's CapacityRequest: {message}"),
                });
                let outcome = if ended == Ended::Moot { Outcome::PodGone } else { Outcome::Error };
                (ended, outcome, notice.into_iter().collect())
            }
        };
        if let Some(pod) = &job.pod {
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            };
            for notice in &notices {
                self.notices.tell(&about, notice, now);
            }
            if matches!(outcome, Outcome::Created | Outcome::Updated) {
                for reason in &pod.approximated {
                    self.controller.metrics.approximated.get_or_create(&[("reason", *reason)]).inc();
                }
            }
        }
        self.controller.metrics.reconciles.get_or_create(&[("outcome", outcome.label())]).inc();
        self.table.done(&job, ended, now, ids::random_u64().unwrap_or(u64::MAX));
    }

    fn delete_orphan(&mut self) {
        let Some(Orphan { key, uid }) = self.table.next_orphan() else { return };
        let client = self.controller.client.clone();
        self.writes.spawn(async move {
            Written::Orphan(writes::delete(&Api::namespaced(client, &key.0), &key.1, &uid).await)
        });
    }

    /// When there may be work without anything happening.
    fn wake(&self) -> Instant {
        let more = self.table.waiting() > 0 && self.writes.len() < WORKERS && self.synced;
        let due = if more { Some(self.now()) } else { self.table.wakes() };
        let instant = due.and_then(|at| self.controller.clock.instant(at)).map(Instant::from_std);
        // While all workers are busy their end is what wakes.
        let full = self.writes.len() >= WORKERS || !self.synced;
        instant.filter(|_| !full).unwrap_or_else(|| Instant::now() + SAY_EVERY)
    }

    async fn reload(&mut self) {
        let Some(path) = self.controller.options.defaults_file.clone() else { return };
        let (at, text) = match tokio::task::spawn_blocking(move || {
            let text = read(&path);
            (path, text)
        })
        .await
        {
            Ok((path, Ok(text))) => (path, text),
            Ok((_, Err(error))) => {
                tracing::warn!(%error, "the penalty defaults stay as they are");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the penalty defaults stay as they are");
                return;
            }
        };
        if text == self.controller.defaults_text {
            return;
        }
        match parse(&at, &text) {
            Ok(defaults) => {
                tracing::info!("the penalty defaults have changed; every pod is looked at again");
                self.table.set_rules(Rules { defaults, ..self.table.rules().clone() });
            }
            Err(error) => tracing::warn!(%error, "the penalty defaults stay as they are"),
        }
        // Text that cannot be used is told once.
        self.controller.defaults_text = text;
    }

    fn say(&self) {
        let missing: Vec<&str> = self.table.missing().into_iter().map(kind_label).collect();
        if !missing.is_empty() {
            tracing::info!(
                ?missing,
                "still listing; no CapacityRequest is written before everything is known"
            );
        }
    }
}
