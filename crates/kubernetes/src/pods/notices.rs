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

/// Objects of which it is remembered what was said. Of one that is forgotten too early, everything is said again.
const OBJECTS: usize = 10_000;

/// What has been said of one object.
#[derive(Debug, Default)]
struct Said {
    /// Its place in [`Memory::ages`].
    age: u64,
    reasons: BTreeSet<&'static str>,
    logged: Option<UnixNanos>,
}

/// What has been said, by the object's uid: of the newest [`OBJECTS`] that are not known to be gone.
#[derive(Debug, Default)]
struct Memory {
    said: BTreeMap<String, Said>,
    /// Uids by when something was said first.
    ages: BTreeMap<u64, String>,
    next: u64,
}

impl Memory {
    fn of(&mut self, uid: &str) -> &mut Said {
        if !self.said.contains_key(uid) {
            self.next += 1;
            self.ages.insert(self.next, uid.to_owned());
            self.said.insert(uid.to_owned(), Said { age: self.next, ..Said::default() });
            if self.said.len() > OBJECTS
                && let Some((_, oldest)) = self.ages.pop_first()
            {
                self.said.remove(&oldest);
            }
        }
        self.said.entry(uid.to_owned()).or_default()
    }

    fn forget(&mut self, uid: &str) {
        if let Some(said) = self.said.remove(uid) {
            self.ages.remove(&said.age);
        }
    }
}

/// Remembers what has been said.
#[derive(Debug)]
pub(super) struct Notices {
    memory: Memory,
    queue: mpsc::Sender<(Notice, ObjectReference)>,
    budget: Bucket,
    counts: Family<Labels<1>, Counter>,
}

impl Notices {
    /// Publishes on a task that ends with this value. Must run on a tokio runtime.
    pub(super) fn start(client: Client, counts: Family<Labels<1>, Counter>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(publish(client, waiting));
        Self { memory: Memory::default(), queue, budget: Bucket::new(RATE.0, RATE.1), counts }
    }

    /// Says something about an object. Whether it was new.
    pub(super) fn tell(&mut self, about: &ObjectReference, notice: &Notice, now: UnixNanos) -> bool {
        let said = self.memory.of(about.uid.as_deref().unwrap_or_default());
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
        self.memory.forget(uid);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_remembered_of_so_many_objects_and_no_more() {
        let mut memory = Memory::default();
        let uid = |n: usize| format!("u-{n}");
        for n in 0..OBJECTS {
            memory.of(&uid(n)).reasons.insert("a");
        }
        assert!(memory.of(&uid(0)).reasons.contains("a"), "as many as that are remembered");
        memory.forget(&uid(1));
        memory.of(&uid(OBJECTS)).reasons.insert("a");
        assert!(memory.of(&uid(0)).reasons.contains("a"), "one that is gone has made room");
        for n in 0..3 * OBJECTS {
            memory.of(&format!("later-{n}")).reasons.insert("a");
            assert!(memory.said.len() <= OBJECTS && memory.ages.len() == memory.said.len());
        }
        assert!(memory.of(&format!("later-{}", 3 * OBJECTS - 1)).reasons.contains("a"), "the newest are");
        assert!(!memory.of(&uid(0)).reasons.contains("a"), "the oldest go");
    }
}
