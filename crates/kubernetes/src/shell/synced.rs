//! Which kinds have been read, for the gauge and the readiness probe.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bigfleet_net::admin::Readiness;
use bigfleet_net::metrics::Labels;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::lock;

/// Kinds that must always be read before the operator is ready.
pub(super) const KINDS: [&str; 4] = ["CapacityRequest", "Node", "UpcomingNode", "AvailableCapacity"];

pub(super) struct Synced {
    state: Mutex<BTreeMap<&'static str, bool>>,
    gauge: Family<Labels<1>, Gauge>,
    readiness: Readiness,
}

impl Synced {
    /// `more` is one more kind that must be read.
    pub(super) fn new(
        gauge: Family<Labels<1>, Gauge>,
        readiness: Readiness,
        more: Option<&'static str>,
    ) -> Self {
        let kinds = || KINDS.into_iter().chain(more);
        for kind in kinds() {
            gauge.get_or_create(&[("kind", kind)]).set(0);
        }
        Self { state: Mutex::new(kinds().map(|kind| (kind, false)).collect()), gauge, readiness }
    }

    /// A kind has been read from beginning to end, or cannot be read any more.
    pub(super) fn set(&self, kind: &'static str, synced: bool) {
        self.gauge.get_or_create(&[("kind", kind)]).set(i64::from(synced));
        let mut state = lock(&self.state);
        state.insert(kind, synced);
        let missing: Vec<&str> =
            state.iter().filter(|(_, synced)| !**synced).map(|(kind, _)| *kind).collect();
        if missing.is_empty() {
            self.readiness.set_ready();
        } else {
            self.readiness.set_unready(format!("not read yet: {}", missing.join(", ")));
        }
    }
}
