//! Telling people: an Event and a count once for each object and reason, a log line at most once a minute for each
//! object.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_net::metrics::Labels;
use bigfleet_types::UnixNanos;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::mpsc;

use super::core::Notice;
use crate::client::{Bucket, Class};
use crate::crd::POD_CONTROLLER;

/// Events a second in the long run, and at once after a pause.
const RATE: (u32, u32) = (10, 100);
const WAITING: usize = 256;
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Bytes that the API server takes of a message.
const MESSAGE: usize = 1024;

/// What has been said of one object.
#[derive(Debug, Default)]
struct Said {
    reasons: BTreeSet<&'static str>,
    logged: Option<UnixNanos>,
}

/// Remembers what has been said. [`Self::forget`] keeps it from growing.
#[derive(Debug)]
pub(super) struct Notices {
    said: BTreeMap<String, Said>,
    queue: mpsc::Sender<(Notice, ObjectReference)>,
    budget: Bucket,
    counts: Family<Labels<1>, Counter>,
}

impl Notices {
    /// Publishes on a task that ends with this value. Must run on a tokio runtime.
    pub(super) fn start(client: Client, counts: Family<Labels<1>, Counter>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(publish(client, waiting));
        Self { said: BTreeMap::new(), queue, budget: Bucket::new(RATE.0, RATE.1), counts }
    }

    /// Says something about an object. Whether it was new.
    pub(super) fn tell(&mut self, about: &ObjectReference, notice: &Notice, now: UnixNanos) -> bool {
        let said = self.said.entry(about.uid.clone().unwrap_or_default()).or_default();
        let due = said.logged.is_none_or(|at| now.since(at) >= LOG_EVERY);
        if notice.warning && due {
            said.logged = Some(now);
            let (namespace, name) = (about.namespace.as_deref(), about.name.as_deref());
            tracing::warn!(kind = about.kind, namespace, name, reason = notice.reason, "{}", notice.message);
        }
        if !said.reasons.insert(notice.reason) {
            return false;
        }
        self.counts.get_or_create(&[("reason", notice.reason)]).inc();
        if self.budget.try_take(Class::Urgent).is_ok() {
            // Events are dropped rather than late: the count and the log have them.
            let _ = self.queue.try_send((notice.clone(), about.clone()));
        }
        true
    }

    /// The object is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.said.remove(uid);
    }
}

async fn publish(client: Client, mut waiting: mpsc::Receiver<(Notice, ObjectReference)>) {
    let reporter = Reporter { controller: POD_CONTROLLER.to_owned(), instance: None };
    let recorder = Recorder::new(client, reporter);
    while let Some((notice, about)) = waiting.recv().await {
        let mut message = notice.message;
        message.truncate(message.floor_char_boundary(MESSAGE));
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.to_owned(),
            note: Some(message),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &about).await {
            tracing::debug!(%error, reason = notice.reason, "an Event was not recorded");
        }
    }
}
