//! Objects that cannot be read: told once, counted once, logged once a minute, and otherwise left alone.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bigfleet_net::metrics::Labels;
use bigfleet_operator::service::Note;
use kube::api::ObjectMeta;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::Instant;

use super::events::Events;
use super::lock;

const LOG_EVERY: Duration = Duration::from_secs(60);
/// Objects that are remembered. One that a watch gap hides the end of would stay for ever.
const OBJECTS: usize = 10_000;
/// Longest error that is told of an object.
const TOLD: usize = 512;

pub(super) struct Unreadable {
    /// By kind and uid: when it was logged last.
    known: Mutex<HashMap<(&'static str, String), Instant>>,
    counter: Family<Labels<1>, Counter>,
    events: Events,
}

impl Unreadable {
    pub(super) fn new(counter: Family<Labels<1>, Counter>, events: Events) -> Self {
        Self { known: Mutex::default(), counter, events }
    }

    /// An object could not be read.
    pub(super) fn report(&self, kind: &'static str, meta: &ObjectMeta, error: &str) {
        let name = full_name(meta);
        let now = Instant::now();
        let key = (kind, key(meta));
        let mut known = lock(&self.known);
        let before = known.get(&key).copied();
        if before.is_some_and(|logged| now.duration_since(logged) < LOG_EVERY) {
            return;
        }
        known.insert(key, now);
        if known.len() > OBJECTS
            && let Some(oldest) = known.iter().min_by_key(|(_, logged)| **logged).map(|(key, _)| key.clone())
        {
            known.remove(&oldest);
        }
        drop(known);
        let error: String = error.chars().take(TOLD).collect();
        tracing::warn!(
            kind,
            object = name,
            error,
            "an object cannot be read and is left out; correct or delete it"
        );
        if before.is_some() {
            return;
        }
        self.counter.get_or_create(&[("kind", kind)]).inc();
        let reason = if kind == "CapacityRequest" { "InvalidCapacityRequest" } else { "UnreadableObject" };
        let message = format!("the object cannot be read and is left out: {error}");
        let note = Note { about: (kind.to_owned(), name), warning: true, reason, message };
        self.events.send(note, meta.uid.clone());
    }

    /// An object can be read, or is gone: should it become unreadable again, that is news.
    pub(super) fn forget(&self, kind: &'static str, meta: &ObjectMeta) {
        let mut known = lock(&self.known);
        // Nearly always empty: no key is made for nothing.
        if !known.is_empty() {
            known.remove(&(kind, key(meta)));
        }
    }
}

fn key(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_else(|| full_name(meta))
}

/// `namespace/name`, or the name of what has no namespace.
pub(super) fn full_name(meta: &ObjectMeta) -> String {
    let name = meta.name.clone().unwrap_or_default();
    meta.namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}
