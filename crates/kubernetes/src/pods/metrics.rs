//! The pod controller's metrics.

use bigfleet_net::metrics::{Labels, counters, gauge, gauges};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::core::Outcome;
use super::table::Kind;

/// What all names begin with.
pub(super) const PREFIX: &str = "bigfleet_unschedulable_pod_controller";

const OUTCOMES: [Outcome; 7] = [
    Outcome::Created,
    Outcome::Exists,
    Outcome::Updated,
    Outcome::PodGone,
    Outcome::PodTerminal,
    Outcome::PodExcluded,
    Outcome::Error,
];

#[derive(Debug, Clone)]
pub(super) struct Metrics {
    pub(super) reconciles: Family<Labels<1>, Counter>,
    pub(super) approximated: Family<Labels<1>, Counter>,
    pub(super) notices: Family<Labels<1>, Counter>,
    pub(super) invalid_objects: Family<Labels<1>, Counter>,
    pub(super) orphans_deleted: Family<Labels<1>, Counter>,
    pub(super) cache_synced: Family<Labels<1>, Gauge>,
    pub(super) pods: Gauge,
    pub(super) requests: Gauge,
    pub(super) waiting: Gauge,
    pub(super) leader: Gauge,
}

impl Metrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let name = |suffix: &str| format!("{PREFIX}_{suffix}");
        let metrics = Self {
            reconciles: counters(registry, &name("reconciles"), "Looks at a pod, by how they ended"),
            approximated: counters(
                registry,
                &name("approximated"),
                "CapacityRequests written that say less than their pod, by what was left out",
            ),
            notices: counters(registry, &name("notices"), "What people were told of pods, by reason"),
            invalid_objects: counters(
                registry,
                &name("invalid_objects"),
                "Objects that could not be read, by kind",
            ),
            orphans_deleted: counters(
                registry,
                &name("orphans_deleted"),
                "CapacityRequests deleted because their pod is gone or has another, by how that ended",
            ),
            cache_synced: gauges(
                registry,
                &name("cache_synced"),
                "1 when all objects of the kind are known and can still be read",
            ),
            pods: gauge(registry, &name("pods"), "Pods that are known"),
            requests: gauge(registry, &name("capacity_requests"), "CapacityRequests that are known"),
            waiting: gauge(registry, &name("queue_depth"), "Pods that wait for a look at them"),
            leader: gauge(registry, &name("leader"), "1 while this process is the one that acts"),
        };
        // Series that alerts ask for are there from the start.
        for outcome in OUTCOMES {
            drop(metrics.reconciles.get_or_create(&[("outcome", outcome.label())]));
        }
        metrics
    }

    pub(super) fn synced(&self, kind: Kind, synced: bool) {
        self.cache_synced.get_or_create(&[("kind", kind_label(kind))]).set(i64::from(synced));
    }
}

pub(super) fn kind_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "Pod",
        Kind::CapacityRequest => "CapacityRequest",
        Kind::Node => "Node",
    }
}
