//! A shard as a component: [`Shard::start`] with [`Options`] gives a [`Handle`].
//!
//! One thread decides ([`decide`]); it owns the core and nothing in it waits for a peer or a disk. Tasks around it
//! read sessions, call the provider and serve readers; they talk to it through one bounded queue. Only the deciding
//! thread, the session listener and a successor's epoch end the component; the admin listener never does.

mod decide;
mod pause;
mod supervise;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bigfleet_net::admin::{self, BuildInfo, Pages, Readiness, Supervised};
use bigfleet_net::clock::SystemClock;
use bigfleet_net::{channel, grpc, ids, listen};
use bigfleet_types::Clock;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::audit::{self, Audit, Reopen};
use crate::control::{self, Control};
use crate::epoch::{self, Epoch, Superseded};
use crate::inspect::ReadService;
use crate::io::Published;
use crate::metrics::Metrics;
use crate::options::{Invalid, Options};
use crate::provider_client::{self, ProviderClient};
use crate::session::{SessionService, Sessions};
use decide::{OsChance, Shell};
use supervise::{Running, STREAMS_GRACE, Stops};

/// Inputs that may wait for the deciding thread; whoever brings more waits.
const INPUTS: usize = 4096;
/// How long the start waits to learn the admin listener's port.
const ADMIN_BOUND_WITHIN: Duration = Duration::from_secs(1);

/// Why a shard did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option makes no sense.
    #[error(transparent)]
    Options(#[from] Invalid),
    /// There is no epoch to be had.
    #[error(transparent)]
    Epoch(#[from] epoch::Error),
    /// The provider's address is none.
    #[error("--provider-addr: {0}")]
    Provider(#[from] channel::Error),
    /// The session listener cannot be bound.
    #[error("--listen: {0}")]
    Listen(#[from] listen::Error),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] audit::OpenError),
    /// There is no chance to be had.
    #[error(transparent)]
    Chance(#[from] ids::Error),
    /// The deciding thread cannot be started.
    #[error("cannot start the deciding thread: {0}")]
    Thread(std::io::Error),
}

/// Why a shard ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another process of this shard runs.
    #[error(transparent)]
    Superseded(#[from] Superseded),
    /// The deciding thread panicked or ended.
    #[error("the deciding thread ended by itself; see the panic above")]
    Decisions,
    /// The session listener ended.
    #[error("the session listener ended by itself: {0}")]
    Listener(String),
}

/// The component.
#[derive(Debug)]
pub struct Shard;

/// A running shard. Dropping it stops the shard without waiting for the end.
#[derive(Debug)]
pub struct Handle {
    grpc_addr: SocketAddr,
    admin: watch::Receiver<Option<SocketAddr>>,
    readiness: Readiness,
    epoch: i64,
    reopen: Option<Reopen>,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
    ended: JoinHandle<Result<(), Failure>>,
}

impl Shard {
    /// Checks the options, locks the data directory, takes an epoch and starts everything. Returns once sessions
    /// are accepted; the first List may still be under way then. Must run on a tokio runtime, best one with
    /// several threads.
    ///
    /// # Errors
    /// Every variant of [`StartError`]. A provider that cannot be reached is none: the shard stays unready.
    pub async fn start(options: Options) -> Result<Handle, StartError> {
        options.validate()?;
        let chance = OsChance::new()?;
        let clock = SystemClock::start();
        let epoch = Arc::new(Epoch::take(&options.data_dir, clock.now())?);
        // Marks what this shard logs, wherever it runs.
        let span = tracing::error_span!("shard", id = %options.id, epoch = epoch.value());
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let build = BuildInfo::this("shard");
        build.register(&mut registry);

        let provider = provider_client::Options {
            addr: options.provider_addr.clone(),
            shard: options.id.clone(),
            epoch: epoch.value(),
            max_list_bytes: options.max_list_bytes,
        };
        let provider = ProviderClient::new(provider, metrics.clone())?;
        let audit = options
            .audit_log
            .as_deref()
            .map(|path| Audit::open(path, &options.id, epoch.value(), metrics.audit_records_lost.clone()));
        let audit = audit.transpose()?;
        let reopen = audit.as_ref().map(Audit::reopener);
        let listener = listen::bind_addr(&options.listen).await?;

        let (inputs, incoming) = mpsc::channel(INPUTS);
        let (published, readers) = watch::channel(Arc::new(Published::default()));
        let sessions = Sessions::new(metrics.clone());
        let server = grpc::Server::new(listener)
            .add_service(
                SessionService::new(sessions.clone(), inputs.clone(), span.clone())
                    .into_server(options.max_rollup_bytes),
            )
            .add_service(ReadService::new(readers.clone()).into_server());
        let grpc_addr = server.dial_addr();

        let stops = Stops::default();
        let paused = pause::Watch::begin(&options, inputs.clone(), readers).instrument(span.clone()).await;
        let readiness = Readiness::latched("first provider reconcile not yet complete");
        let config = control::Config { epoch: epoch.value(), ..options.control.clone() };
        let (tell_superseded, superseded) = mpsc::channel(1);
        let mutations = TaskTracker::new();
        let shell = Shell {
            clock,
            runtime: tokio::runtime::Handle::current(),
            provider,
            sessions: sessions.clone(),
            audit,
            data_dir: options.data_dir.clone(),
            published,
            inputs: inputs.clone(),
            mutations: mutations.clone(),
            epoch: epoch.clone(),
            superseded: tell_superseded,
            readiness: readiness.clone(),
        };
        let origin = Instant::now();
        let core =
            Control::new(config, Box::new(chance), metrics).measured_by(Box::new(move || origin.elapsed()));
        let decided =
            shell.spawn(core, incoming, stops.decisions.clone(), span.clone()).map_err(StartError::Thread)?;
        tokio::spawn(paused.run(stops.decisions.clone()).instrument(span.clone()));
        let serving = tokio::spawn(server.serve(stops.streams.clone(), STREAMS_GRACE));
        let (admin, bound) = serve_admin(&options, registry, &readiness, build, &stops.admin).await;
        span.in_scope(|| announce(&options, grpc_addr));

        let stop = CancellationToken::new();
        let running =
            Running { stop: stop.clone(), stops, inputs, sessions, mutations, admin, _epoch: epoch.clone() };
        let ended = tokio::spawn(running.supervise(decided, serving, superseded).instrument(span));
        Ok(Handle {
            grpc_addr,
            admin: bound,
            readiness,
            epoch: epoch.value(),
            reopen,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            ended,
        })
    }
}

impl Handle {
    /// Where sessions and readers are served, as a client on this machine dials it.
    #[must_use]
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Where metrics and probes are served; `None` while that listener is off or cannot be bound.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        *self.admin.borrow()
    }

    /// Whether the first List has been applied.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// This process's epoch.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Has the audit log opened anew, after it was moved aside (SIGHUP).
    pub fn reopen_audit_log(&self) {
        if let Some(reopen) = &self.reopen
            && !reopen.reopen()
        {
            tracing::error!("the audit log is behind and was not opened anew; ask again");
        }
    }

    /// Asks the shard to stop: no new work, up to 10 s for provider calls in flight, then sessions end. Changes no
    /// machine.
    pub fn shutdown(&self) {
        self.stop.cancel();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// Why the shard ended although nobody asked it to.
    pub async fn wait(&mut self) -> Result<(), Failure> {
        match (&mut self.ended).await {
            Ok(result) => result,
            Err(error) => Err(Failure::Listener(format!("its supervisor ended: {error}"))),
        }
    }
}

/// The admin listener, supervised; where it is bound.
async fn serve_admin(
    options: &Options,
    registry: Registry,
    readiness: &Readiness,
    build: BuildInfo,
    stop: &CancellationToken,
) -> (Option<Supervised>, watch::Receiver<Option<SocketAddr>>) {
    let admin::Addr::On(addr) = &options.metrics_addr else { return (None, watch::channel(None).1) };
    let pages = Pages { registry: Arc::new(registry), readiness: readiness.clone(), build };
    let mut admin = admin::supervise(addr.clone(), pages, stop.clone());
    // A port that is taken now is tried again for ever; the shard does not wait for that.
    let _ = tokio::time::timeout(ADMIN_BOUND_WITHIN, admin.wait_bound()).await;
    let bound = admin.bound();
    (Some(admin), bound)
}

/// The line by which an operator of the shard sees what runs.
fn announce(options: &Options, addr: SocketAddr) {
    let control = &options.control;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %addr,
        provider = %options.provider_addr,
        reclaim_cap_fraction = control.reclaim_cap_fraction,
        reclaim_after = ?control.policy.reclaim_after,
        max_actions_per_cycle = control.max_actions_per_cycle,
        empty_rollup_guard = control.empty_rollup_guard,
        "shard started"
    );
    if control.actuation_paused {
        tracing::warn!("actuation is paused by --actuation-paused: actions are decided and not executed");
    }
    if control.dry_run {
        tracing::info!("dry run: actions are decided and logged, and not executed");
    }
}
