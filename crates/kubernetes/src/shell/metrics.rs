//! What the shell counts of itself.

use bigfleet_net::metrics::{Buckets, Labels, counters, gauge, gauges, histogram, histograms};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(super) struct Metrics {
    pub(super) cache_synced: Family<Labels<1>, Gauge>,
    pub(super) invalid_objects: Family<Labels<1>, Counter>,
    pub(super) upcoming_writes: Family<Labels<2>, Counter>,
    pub(super) upcoming_seconds: Family<OwnedPhase, Histogram, Buckets>,
    pub(super) acknowledge_seconds: Histogram,
    pub(super) inflight: Gauge,
}

/// The phase that was written.
pub(super) type OwnedPhase = [(&'static str, &'static str); 1];

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            cache_synced: gauges(
                registry,
                "bigfleet_operator_cache_synced",
                "Whether a kind has been read from beginning to end and can still be read",
            ),
            invalid_objects: counters(
                registry,
                "bigfleet_operator_invalid_objects",
                "Objects that could not be read and were left out; each counts once",
            ),
            upcoming_writes: counters(
                registry,
                "bigfleet_operator_upcoming_node_writes",
                "Writes of UpcomingNodes, by operation and outcome",
            ),
            upcoming_seconds: histograms(
                registry,
                "bigfleet_operator_node_state_update_duration_seconds",
                "How long it took to write a machine's UpcomingNode, by its phase",
                Buckets::D,
            ),
            acknowledge_seconds: histogram(
                registry,
                "bigfleet_operator_acknowledge_duration_seconds",
                "How long the write took that acknowledges a request",
                Buckets::B,
            ),
            inflight: gauge(
                registry,
                "bigfleet_operator_dispatch_inflight",
                "Writes to the API server under way",
            ),
        }
    }

    /// Counts one write of an UpcomingNode.
    pub(super) fn upcoming<T>(&self, op: &'static str, result: &kube::Result<T>) {
        let outcome = match result {
            Ok(_) => "success",
            Err(kube::Error::Api(status)) if status.code == 409 => "conflict",
            Err(_) => "error",
        };
        self.upcoming_writes.get_or_create(&[("op", op), ("outcome", outcome)]).inc();
    }
}
