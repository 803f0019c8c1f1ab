//! The deciding thread: it owns the core, feeds it and carries out what it asks for, without waiting for anybody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::admin::Readiness;
use bigfleet_net::clock::SystemClock;
use bigfleet_net::ids;
use bigfleet_types::Clock;
use bigfleet_types::chance::Chance;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::audit::Audit;
use crate::control::Control;
use crate::decision_audit::DecisionAudit;
use crate::epoch::{Epoch, Superseded};
use crate::io::{Input, Output, Published};
use crate::provider_client::ProviderClient;
use crate::session::Sessions;

/// Inputs taken in before the core is asked what to do about them.
const BATCH: usize = 1024;
/// How often the outboxes are measured at least.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// What the outputs of the core act on.
pub(super) struct Shell {
    pub(super) clock: SystemClock,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) provider: ProviderClient,
    pub(super) sessions: Sessions,
    pub(super) audit: Option<Audit>,
    /// Where audits of decisions leave what they find.
    pub(super) data_dir: PathBuf,
    pub(super) published: watch::Sender<Arc<Published>>,
    pub(super) inputs: mpsc::Sender<Input>,
    /// The calls in flight that change machines.
    pub(super) mutations: TaskTracker,
    pub(super) epoch: Arc<Epoch>,
    pub(super) superseded: mpsc::Sender<Superseded>,
    pub(super) readiness: Readiness,
}

impl Shell {
    /// Starts the thread. The receiver resolves when it has ended, by a panic too.
    pub(super) fn spawn(
        self,
        core: Control,
        inputs: mpsc::Receiver<Input>,
        stop: CancellationToken,
        span: tracing::Span,
    ) -> std::io::Result<oneshot::Receiver<()>> {
        let (ended, decided) = oneshot::channel();
        // A runtime of its own, for its timer only: whatever the others are busy with, it wakes up.
        let timer = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("decide".into()).spawn(move || {
            timer.block_on(self.run(core, inputs, stop).instrument(span));
            // Nobody may be waiting any more.
            let _ = ended.send(());
        })?;
        Ok(decided)
    }

    async fn run(mut self, mut core: Control, mut inputs: mpsc::Receiver<Input>, stop: CancellationToken) {
        let mut measure = tokio::time::interval(MEASURE_EVERY);
        loop {
            let now = self.clock.now();
            core.poll(now);
            core.drain_outputs().for_each(|output| self.carry_out(output));
            if core.ready() {
                self.readiness.set_ready();
            }
            let wake = core.next_wake(now).and_then(|at| self.clock.instant(at));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(input) = inputs.recv() => {
                    core.handle(self.clock.now(), input);
                    for _ in 1..BATCH {
                        let Ok(input) = inputs.try_recv() else { break };
                        core.handle(self.clock.now(), input);
                    }
                }
                _ = measure.tick() => self.sessions.measure(),
                () = sleep_until(wake) => {}
            }
        }
        if let Some(audit) = self.audit.take() {
            audit.close();
        }
    }

    fn carry_out(&self, output: Output) {
        let (provider, inputs) = (self.provider.clone(), self.inputs.clone());
        // An answer that finds the deciding thread gone has nobody left to act on it.
        match output {
            Output::List { call, known } => {
                let task = async move {
                    let (known, result) = provider.list(known).await;
                    let _ = inputs.send(Input::Listed { call, known, result }).await;
                };
                self.runtime.spawn(task.in_current_span());
            }
            Output::Get { call, machine } => {
                let task = async move {
                    let result = provider.get(&machine).await;
                    let _ = inputs.send(Input::Got { call, result }).await;
                };
                self.runtime.spawn(task.in_current_span());
            }
            Output::Mutate { call, machine, mutation } => {
                let task = async move {
                    let result = provider.mutate(&machine, mutation).await;
                    let _ = inputs.send(Input::Acked { call, result }).await;
                };
                self.mutations.spawn_on(task.in_current_span(), &self.runtime);
            }
            Output::Send { session, lane, message } => self.sessions.send(session, lane, *message),
            Output::Close { session, reason } => self.sessions.close(session, reason),
            Output::Audit(record) => {
                if let Some(audit) = &self.audit {
                    audit.record(self.clock.now(), record);
                }
            }
            Output::Publish(published) => {
                self.published.send_replace(published);
            }
            Output::AuditDecision(audit) => self.audit_decision(audit),
            Output::CheckEpoch => {
                let (epoch, superseded) = (self.epoch.clone(), self.superseded.clone());
                self.runtime.spawn_blocking(move || match epoch.check() {
                    Ok(None) => {}
                    Ok(Some(error)) => tracing::error!(%error, "cannot tell whether a successor runs"),
                    // One report is enough, and it fits.
                    Err(by) => drop(superseded.try_send(by)),
                });
            }
        }
    }

    /// On a thread of its own: a full pass takes a processor for as long as a cold start does. Nobody waits for it, not
    /// even the end of the process.
    fn audit_decision(&self, audit: Box<DecisionAudit>) {
        let (inputs, data_dir, span) = (self.inputs.clone(), self.data_dir.clone(), tracing::Span::current());
        let cycle = audit.cycle;
        let work = move || {
            let _entered = span.enter();
            let result = catch_unwind(AssertUnwindSafe(|| audit.check_and_keep(&data_dir)));
            let result = result.map_err(|panic| said(&*panic));
            // The large parts go before the answer wakes somebody up.
            drop(audit);
            let _ = inputs.blocking_send(Input::DecisionAudited { cycle, result });
        };
        if let Err(error) = std::thread::Builder::new().name("decision-audit".into()).spawn(work) {
            let inputs = self.inputs.clone();
            let result = Err(format!("it has no thread: {error}"));
            self.runtime.spawn(async move {
                let _ = inputs.send(Input::DecisionAudited { cycle, result }).await;
            });
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a word"))
}

async fn sleep_until(at: Option<std::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Ids that nobody can guess, from the operating system.
pub(super) struct OsChance(u64);

impl OsChance {
    /// # Errors
    /// The operating system has no random numbers.
    pub(super) fn new() -> Result<Self, ids::Error> {
        Ok(Self(ids::random_u64()?))
    }
}

impl Chance for OsChance {
    fn next_u64(&mut self) -> u64 {
        match ids::random_u64() {
            Ok(next) => std::mem::replace(&mut self.0, next),
            // It worked at the start, so this does not happen; if it does, ids that can be guessed are the greater
            // evil, and the end of this thread ends the process.
            Err(error) => panic!("{error}"),
        }
    }
}
