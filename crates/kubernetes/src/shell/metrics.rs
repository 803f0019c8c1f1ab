//! What the shell counts of itself.

use std::time::Duration;

use bigfleet_net::metrics::{Buckets, Labels, counters, gauge, gauges, histogram, histograms};
use bigfleet_operator::io::Phase;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::write::phase_label;

pub(super) struct Metrics {
    pub(super) cache_synced: Family<Labels<1>, Gauge>,
    pub(super) invalid_objects: Family<Labels<1>, Counter>,
    pub(super) upcoming_writes: Family<Labels<2>, Counter>,
    pub(super) upcoming_seconds: Family<OwnedPhase, Histogram, Buckets>,
    pub(super) acknowledge_seconds: Histogram,
    rollup_seconds: Histogram,
    rollup_phase_seconds: Family<OwnedPhase, Histogram, Buckets>,
    pub(super) inflight: Gauge,
}

/// The labels of a frame that needed no write.
const UNCHANGED: Labels<2> = [("op", "status_update"), ("outcome", "noop")];

/// The phase that was written.
pub(super) type OwnedPhase = [(&'static str, &'static str); 1];

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            rollup_seconds: histogram(
                registry,
                "bigfleet_operator_rollup_duration_seconds",
                "How long a roll-up took, from the demand to the session's queue",
                Buckets::C,
            ),
            rollup_phase_seconds: histograms(
                registry,
                "bigfleet_operator_rollup_phase_duration_seconds",
                "The same by phase; nothing is listed for a roll-up, so that list is always 0",
                Buckets::C,
            ),
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
        };
        // Series that dashboards ask for are there from the start.
        for phase in ["list", "build", "enqueue"] {
            drop(metrics.rollup_phase_seconds.get_or_create(&[("phase", phase)]));
        }
        for phase in Phase::ALL.map(phase_label) {
            drop(metrics.upcoming_seconds.get_or_create(&[("phase", phase)]));
        }
        for op in ["create", "spec_update", "status_update", "delete"] {
            drop(metrics.upcoming_writes.get_or_create(&[("op", op), ("outcome", "success")]));
        }
        drop(metrics.upcoming_writes.get_or_create(&UNCHANGED));
        metrics
    }

    /// A roll-up was built and queued.
    pub(super) fn rollup(&self, build: Duration, enqueue: Duration) {
        self.rollup_seconds.observe((build + enqueue).as_secs_f64());
        for (phase, took) in [("list", Duration::ZERO), ("build", build), ("enqueue", enqueue)] {
            self.rollup_phase_seconds.get_or_create(&[("phase", phase)]).observe(took.as_secs_f64());
        }
    }

    /// UpcomingNodes that needed no write.
    pub(super) fn unchanged(&self, frames: u64) {
        self.upcoming_writes.get_or_create(&UNCHANGED).inc_by(frames);
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
