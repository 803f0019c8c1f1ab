//! The provider at work: the table behind its journal, the back end behind its gates, the calls on the wire.

pub mod desk;
mod gates;
mod handle;
mod journal;
mod listing;
mod metrics;
mod policy;
mod reconcile;
mod service;
mod turns;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigfleet_net::tls::Tls;
use bigfleet_net::{admin, ids, limits};
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{MachineId, MachineState};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use crate::backend::Backend;
use crate::blob::Blob;
use crate::defects::{Defect, Switch};
use crate::faults::Faults;
use crate::instance::Invalid;
use crate::kind::Kind;
use crate::store::{self, Store};
use crate::table::{Ack, Call, Checks, Refusal, Table, Unreadable, Work};
use gates::Gates;
use journal::Journal;
use metrics::Metrics;
use work::Begin;

pub use handle::{Failed, Handle};
pub use journal::NotStored;
pub use reconcile::{DescribeError, Reconciled};

/// How long work of each kind may take before the machine fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Create; default 5 min.
    pub create: Duration,
    /// Configure and the node-ready check together; default 5 min.
    pub configure: Duration,
    /// Drain; default 10 min.
    pub drain: Duration,
    /// Delete; default 5 min.
    pub delete: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        Self { create: minutes(5), configure: minutes(5), drain: minutes(10), delete: minutes(5) }
    }
}

impl Timeouts {
    /// One limit for every kind, in place of the defaults.
    #[must_use]
    pub fn all(limit: Duration) -> Self {
        Self { create: limit, configure: limit, drain: limit, delete: limit }
    }

    /// The limit for one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Create => self.create,
            Kind::Configure => self.configure,
            Kind::Drain => self.drain,
            Kind::Delete => self.delete,
        }
    }
}

/// How a provider runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Names the provider in metrics (`bigfleet_<name>_...`): lower-case letters, digits and `_`.
    pub name: String,
    /// What operation ids begin with; default `op`.
    pub operation_prefix: String,
    /// Limits of background work.
    pub timeouts: Timeouts,
    /// Whether an instance without a zone is refused; default false.
    pub require_zone: bool,
    /// How often the back end's own list is looked at after the start; `None` for never. Default 1 min.
    pub reconcile_interval: Option<Duration>,
    /// How long one look may take; default 30 s.
    pub reconcile_timeout: Duration,
    /// Answer a call only when its work has ended, so that each call lands in its stable state. For tests only:
    /// callers must never depend on it. Default false.
    pub settle_before_ack: bool,
    /// Whether a shard's call is fenced by its newest epoch on any machine, not only on the same one. It closes the gap
    /// that a superseded process has on machines which its successor has not touched yet, but is not what every suite
    /// expects. Default false.
    pub strict_epoch: bool,
    /// Whether the server tells its schema to whoever asks (gRPC reflection); default false.
    pub reflection: bool,
    /// TLS on the calls: every caller must then be who it says it is. Default plaintext, which anybody may call.
    pub tls: Option<Tls>,
    /// A socket in the file system where the provider's owner brings Failed machines back ([`desk`]); default none.
    pub admin_socket: Option<PathBuf>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served; default nowhere.
    pub metrics_addr: admin::Addr,
    /// How long a stop waits for calls in flight; default 10 s.
    pub shutdown_grace: Duration,
    /// A rule to break, so that a suite can be shown to see it; default none.
    #[cfg(feature = "defects")]
    pub defect: Option<Defect>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "provider".into(),
            operation_prefix: "op".into(),
            timeouts: Timeouts::default(),
            require_zone: false,
            reconcile_interval: Some(Duration::from_secs(60)),
            reconcile_timeout: Duration::from_secs(30),
            settle_before_ack: false,
            strict_epoch: false,
            reflection: false,
            tls: None,
            admin_socket: None,
            metrics_addr: admin::Addr::Off,
            shutdown_grace: limits::SHUTDOWN_GRACE,
            #[cfg(feature = "defects")]
            defect: None,
        }
    }
}

impl Options {
    fn switch(&self) -> Switch {
        #[cfg(feature = "defects")]
        return Switch::new(self.defect);
        #[cfg(not(feature = "defects"))]
        Switch::default()
    }
}

/// Why a provider does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The store refused the machines that the back end described.
    #[error("what the back end describes cannot be stored: {0}")]
    NotStored(NotStored),
    /// The store holds what no version of the kit writes.
    #[error("the store holds a record that makes no sense: {0}; restore it from a backup, or move it away")]
    Unreadable(#[from] Unreadable),
    /// The back end described something impossible.
    #[error("the back end describes an impossible machine: {0}; nothing was started")]
    Instance(#[from] Invalid),
    /// The back end did not say what it has.
    #[error("{0}; nothing was started")]
    Describe(#[from] DescribeError),
    /// The system has no randomness to give.
    #[error(transparent)]
    Random(#[from] ids::Error),
    /// The admin socket cannot be listened on.
    #[error(transparent)]
    Desk(#[from] desk::Closed),
    /// The schema cannot be told.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The system has no thread to give.
    #[error("cannot start the store's thread: {0}")]
    Thread(std::io::Error),
}

pub(crate) struct Shared {
    journal: Journal,
    gates: Arc<Gates>,
    backend: Arc<dyn Backend>,
    faults: Arc<dyn Faults>,
    options: Options,
    metrics: Metrics,
    security: metrics::Security,
    tasks: TaskTracker,
    policy: policy::Policy,
    turns: turns::Turns,
    running: Mutex<HashMap<MachineId, CancellationToken>>,
    reconciling: tokio::sync::Mutex<()>,
    stop: CancellationToken,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<MachineId, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// A provider from the inside: what its author's program, a double's knobs and tests use beside the wire. Clones are
/// the same provider.
#[derive(Debug, Clone)]
pub struct Provider {
    pub(crate) shared: Arc<Shared>,
}

impl Provider {
    /// Opens the store, adopts what the back end describes, and takes up interrupted work. Serves nothing yet.
    async fn open(
        backend: Arc<dyn Backend>,
        faults: Arc<dyn Faults>,
        options: Options,
        mut store: Box<dyn Store>,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        let mut table = Table::new(options.operation_prefix.clone()).strict_epoch(options.strict_epoch);
        table.switch = options.switch();
        for change in store.load()? {
            let change = table.read_back(change);
            table.apply(change)?;
        }
        table.audit()?;
        let interrupted = table.interrupted();
        let metrics = Metrics::register(registry, &options.name);
        let security = metrics::Security::register(registry);
        let policy = policy::Policy::new(options.tls.is_some(), security.rejected.clone());
        let shared = Shared {
            journal: Journal::start(table, store).map_err(StartError::Thread)?,
            gates: Arc::new(Gates::default()),
            backend,
            faults,
            options,
            metrics,
            security,
            tasks: TaskTracker::new(),
            policy,
            turns: turns::Turns::default(),
            running: Mutex::default(),
            reconciling: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
        };
        let provider = Self { shared: Arc::new(shared) };
        if let Err(error) = provider.prepare(&interrupted).await {
            provider.close().await;
            return Err(error);
        }
        for work in interrupted.into_iter().filter(|work| work.kind != Kind::Configure) {
            tracing::info!(machine = %work.machine_id, kind = %work.kind, "taking up work that a restart interrupted");
            let cancel = provider.register(&work);
            provider.spawn_work(work, Begin::Resumed, cancel);
        }
        Ok(provider)
    }

    /// What must be true before anybody may ask: the table has an identity, what the back end has is known, and a
    /// Configure that a restart interrupted has failed, because its blob is gone.
    async fn prepare(&self, interrupted: &[Work]) -> Result<(), StartError> {
        let identity = ids::random_u64()?.max(1);
        let (_, durable) = self.shared.journal.plan(|table| ((), table.plan_identity(identity)));
        durable.wait().await.map_err(StartError::NotStored)?;
        self.seed().await?;
        for work in interrupted.iter().filter(|work| work.kind == Kind::Configure) {
            tracing::warn!(machine = %work.machine_id, "a restart interrupted its Configure: it fails");
            let failed = Err(work::INTERRUPTED_CONFIGURE.into());
            let (_, durable) = self.shared.journal.plan(|table| ((), table.plan_end(work, failed)));
            durable.wait().await.map_err(StartError::NotStored)?;
        }
        Ok(())
    }

    /// One accepted call: judged, made durable, answered, and its work started.
    async fn dispatch(&self, call: Call, blob: Option<Blob>) -> Result<Ack, Status> {
        let shared = &self.shared;
        let overlaps = self.overlaps(&call).await;
        let gate = shared.gates.hold(&call.machine).await;
        let (plan, durable) = shared.journal.plan(|table| {
            let mut plan = table.plan(&call, &BackendChecks(&*shared.backend));
            if overlaps {
                table.mint_another(&call, &mut plan);
            }
            let change = plan.change.take();
            (plan, change)
        });
        durable.wait().await.map_err(|error| {
            shared.metrics.store_errors.inc();
            Status::unavailable(format!("nothing was changed: {error}"))
        })?;
        // Under the gate, so that whoever fails the machine next finds the work to stop.
        let work = plan.work.map(|work| (self.register(&work), work));
        drop(gate);
        if matches!(plan.answer, Err(Refusal::Fenced { .. } | Refusal::Superseded { .. })) {
            shared.security.fenced();
        }
        let mut ack = plan.answer?;
        if let Some((cancel, work)) = work {
            if shared.options.settle_before_ack {
                self.work(work, Begin::Fresh(blob), cancel).await;
                if let Some(machine) = self.machine(call.machine.as_str()) {
                    ack.machine = machine;
                }
            } else {
                self.spawn_work(work, Begin::Fresh(blob), cancel);
            }
        }
        Ok(ack)
    }

    /// Whether a Create may overtake another, where that is broken on purpose: it saw the slot still free.
    async fn overlaps(&self, call: &Call) -> bool {
        let shared = &self.shared;
        if !shared.options.switch().is(Defect::CreatesDoNotCollapse) || call.command.kind() != Kind::Create {
            return false;
        }
        let free = |table: &Table| {
            table.record(call.machine.as_str()).is_some_and(|r| r.state() == MachineState::Speculative)
        };
        let saw = free(&shared.journal.read());
        tokio::time::sleep(Duration::from_millis(20)).await;
        saw
    }

    /// One machine as callers see it, before any fault of a double.
    #[must_use]
    pub fn machine(&self, id: &str) -> Option<Arc<pb::Machine>> {
        self.shared.journal.read().machine(id)
    }

    /// All machines in id order, likewise.
    #[must_use]
    pub fn machines(&self) -> Vec<Arc<pb::Machine>> {
        self.shared.journal.read().records().map(|(_, record)| record.machine()).collect()
    }

    /// How many machines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.journal.read().count()
    }

    /// The revision that a List would answer with.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.journal.read().head()
    }

    /// Changes that are planned and wait for the store.
    #[must_use]
    pub fn waiting_writes(&self) -> usize {
        self.shared.journal.waiting()
    }

    /// Abandons work in flight (a restart takes it up), writes what waits, and closes the store.
    async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.journal.close().await;
    }
}

struct BackendChecks<'a>(&'a dyn Backend);

impl Checks for BackendChecks<'_> {
    fn can_delete(&self, machine: &pb::Machine) -> bool {
        self.0.can_delete(machine)
    }

    fn in_stock(&self, machine: &pb::Machine) -> Result<(), String> {
        self.0.in_stock(machine)
    }
}
