//! Background work: what the back end does after the caller was answered.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bigfleet_types::MachineId;
use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Provider;
use crate::backend::{Backend, Error};
use crate::blob::Blob;
use crate::defects::Defect;
use crate::kind::Kind;
use crate::scrub::scrub;
use crate::table::{Failure, Outcome, Work};

/// Pause before the result of work is offered to a failing store again.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Why a Configure that a restart interrupted fails.
pub(super) const INTERRUPTED_CONFIGURE: &str = "Configure was interrupted by a restart of the provider, which does not \
     keep bootstrap blobs; replace the machine";

/// How work begins.
#[derive(Debug)]
pub(super) enum Begin {
    /// A call was accepted just now.
    Fresh(Option<Blob>),
    /// A restart interrupted it.
    Resumed,
}

impl Provider {
    /// Starts work in the background.
    pub(super) fn spawn_work(&self, work: Work, begin: Begin, cancel: CancellationToken) {
        let provider = self.clone();
        self.shared.tasks.spawn(async move { provider.work(work, begin, cancel).await });
    }

    /// Makes work known, so that it can be stopped.
    pub(super) fn register(&self, work: &Work) -> CancellationToken {
        let cancel = CancellationToken::new();
        self.shared.running().insert(work.machine_id.clone(), cancel.clone());
        cancel
    }

    /// Does work and records its end. Returns without one when the machine moved on or the provider stops.
    pub(super) async fn work(&self, work: Work, begin: Begin, cancel: CancellationToken) {
        let shared = &self.shared;
        shared.metrics.transition(work.kind, "started");
        let limit = shared.options.timeouts.of(work.kind);
        let did = AssertUnwindSafe(perform(&*shared.backend, &work, begin)).catch_unwind();
        let mut did = std::pin::pin!(did.fuse());
        let performed = async {
            match timeout(limit, did.as_mut()).await {
                Ok(Ok(result)) => result,
                Ok(Err(_panic)) => {
                    shared.metrics.panics.inc();
                    Err(format!("the back end panicked in {}", work.kind).into())
                }
                Err(_elapsed) => Err(format!("timeout: {} took longer than {limit:?}", work.kind).into()),
            }
        };
        let result = tokio::select! {
            result = performed => result,
            () = cancel.cancelled() => return,
            () = shared.stop.cancelled() => return,
        };
        self.end(&work, result).await;
        if shared.options.switch().is(Defect::LateSuccessWins) && !did.is_terminated() {
            tokio::select! {
                () = shared.stop.cancelled() => {}
                late = did => if let Ok(Ok(outcome)) = late { self.end(&work, Ok(outcome)).await },
            }
        }
    }

    async fn end(&self, work: &Work, result: Result<Outcome, Failure>) {
        let shared = &self.shared;
        let id = &work.machine_id;
        if let Err(Failure { reason, .. }) = &result {
            tracing::warn!(machine = %id, kind = %work.kind, operation = work.operation_id, reason, "work failed");
        }
        let outcome = if result.is_ok() { "succeeded" } else { "failed" };
        loop {
            let gate = shared.gates.hold(id).await;
            let (current, durable) = shared.journal.plan(|table| {
                let change = table.plan_end(work, result.clone());
                (change.is_some(), change)
            });
            let stored = durable.wait().await;
            if stored.is_ok() {
                if current {
                    shared.running().remove(id);
                }
                drop(gate);
                shared.metrics.transition(work.kind, if current { outcome } else { "stale" });
                return;
            }
            drop(gate);
            shared.metrics.store_errors.inc();
            if shared.journal.broken().borrow().is_some() {
                // The next start takes the work up.
                return shared.stop.cancelled().await;
            }
            tokio::select! {
                () = shared.stop.cancelled() => return,
                () = tokio::time::sleep(STORE_RETRY) => {}
            }
        }
    }

    /// Stops the work of a machine that has moved on. The caller holds its gate: without it, this could stop the work
    /// of a call that was accepted meanwhile.
    pub(super) fn stop_stale_work(&self, id: &MachineId) {
        let works = {
            let table = self.shared.journal.read();
            table.record(id.as_str()).is_some_and(|record| Kind::under_way(record.state()).is_some())
        };
        if !works && let Some(cancel) = self.shared.running().remove(id) {
            cancel.cancel();
        }
    }
}

/// One piece of work. Errors come back fit for `last_error`.
async fn perform(backend: &dyn Backend, work: &Work, begin: Begin) -> Result<Outcome, Failure> {
    let blob = match begin {
        Begin::Fresh(blob) => blob.unwrap_or_default(),
        Begin::Resumed if work.kind == Kind::Configure => {
            return Err(INTERRUPTED_CONFIGURE.into());
        }
        Begin::Resumed => {
            return backend.resume(work).await.map_err(|error| failure(&error, None));
        }
    };
    let operation = work.operation();
    let clean = |error: Error| failure(&error, Some(&blob));
    match work.kind {
        Kind::Create => Ok(backend.create(operation).await.map_err(clean)?.into()),
        Kind::Configure => {
            backend.configure(operation, &blob).await.map_err(clean)?;
            backend.confirm_node_ready(operation).await.map_err(clean)?;
            Ok(Outcome::Configured)
        }
        Kind::Drain => backend.drain(operation).await.map(|()| Outcome::Drained).map_err(clean),
        Kind::Delete => backend.delete(operation).await.map(|()| Outcome::Deleted).map_err(clean),
    }
}

fn failure(error: &Error, blob: Option<&Blob>) -> Failure {
    Failure { reason: scrub(&error.to_string(), blob), untouched: error.is_untouched() }
}
