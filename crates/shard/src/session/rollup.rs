//! Roll-ups on their way through the gate: one at a time a session, the newest first.
//!
//! A roll-up replaces everything that its cluster said before, so one that still waits is worthless once a newer one
//! is here. Of one that passed, only what differs from the one before goes on to the deciding thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigfleet_net::log_limit::LogLimit;
use bigfleet_proto::gate::rollup::Heading;
use bigfleet_types::ClusterId;
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::DECODE_BUDGET_KIB;
use crate::io::{Change, Ingest, Input, SessionId};

const SECURITY_LOG_PAUSE: Duration = Duration::from_secs(60);

/// Room for one roll-up. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Mailbox(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    newest: Mutex<Option<Bytes>>,
    filled: Notify,
}

impl Mailbox {
    /// Puts a roll-up in, in place of one that waits.
    pub(super) fn put(&self, rollup: Bytes) {
        *self.0.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(rollup);
        self.0.filled.notify_one();
    }

    async fn take(&self) -> Bytes {
        loop {
            let waiting = self.0.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
            match waiting {
                Some(rollup) => return rollup,
                None => self.0.filled.notified().await,
            }
        }
    }

    /// Takes roll-ups through the gate until nobody wants them any more.
    pub(super) async fn serve(
        self,
        session: SessionId,
        cluster: ClusterId,
        inputs: mpsc::Sender<Input>,
        budget: Arc<Semaphore>,
    ) {
        let mut security_log = LogLimit::every(SECURITY_LOG_PAUSE);
        let mut ingest = Ingest::default();
        loop {
            let rollup = self.take().await;
            let Heading { cluster_id, timestamp_unix_nanos } = Heading::of(&rollup);
            if cluster_id != cluster.as_str()
                && let Some(suppressed) = security_log.pass()
            {
                let named: String = cluster_id.chars().take(253).collect();
                tracing::error!(
                    target: "security", %cluster, ?named, suppressed,
                    "a roll-up names another cluster than its session; it is refused"
                );
            }
            let rows = through_gate(&mut ingest, rollup, cluster.clone(), &budget).await;
            if inputs.send(Input::Rollup { session, timestamp_unix_nanos, rows }).await.is_err() {
                return;
            }
        }
    }
}

/// Waits for its share of the budget, then checks and compares on a thread that carries no frames.
async fn through_gate(
    ingest: &mut Ingest,
    message: Bytes,
    cluster: ClusterId,
    budget: &Arc<Semaphore>,
) -> Result<Change, String> {
    let kib = (message.len() / 1024 + 1).min(DECODE_BUDGET_KIB);
    let share = budget.clone().acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)).await;
    let mut before = std::mem::take(ingest);
    let compared = tokio::task::spawn_blocking(move || {
        let rows = before.accept(&cluster, &message);
        drop((message, share));
        (before, rows)
    });
    match compared.await {
        Ok((after, rows)) => {
            *ingest = after;
            rows.map_err(|error| error.to_string())
        }
        // What came before is forgotten: the next roll-up goes on whole.
        Err(error) => Err(format!("the roll-up could not be checked: {error}")),
    }
}
