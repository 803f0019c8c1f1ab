//! What a provider counts. Names begin with `bigfleet_<name>_`.

use std::time::Duration;

use bigfleet_net::metrics::{Buckets, Labels, code_label, counter, counters, histograms};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::Code;

use crate::faults::Method;
use crate::kind::Kind;

/// Calls refused for who made them. Not the provider's own: its name is the same in all programs.
#[derive(Debug, Clone)]
pub(super) struct Rejected(Family<Labels<3>, Counter>);

impl Rejected {
    pub(super) fn count(&self, method: Method, reason: &'static str) {
        let labels = [("component", "provider"), ("rpc", method.name()), ("reason", reason)];
        self.0.get_or_create(&labels).inc();
    }
}

/// What all programs count alike.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) rejected: Rejected,
    pub(super) connections: Counter,
    fenced: Family<Labels<1>, Counter>,
}

impl Security {
    /// Registers everything.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let help = "Calls refused for who made them, by call and reason; any is a security event";
        let rejected = Rejected(counters(registry, "bigfleet_identity_rejected", help));
        let help = "Calls of a superseded process, or seen before, by direction; any wants a look";
        let fenced = counters(registry, "bigfleet_fenced", help);
        let limits: Family<Labels<1>, Counter> =
            counters(registry, "bigfleet_limit_hit", "What was turned away because there was too much of it");
        let connections = limits.get_or_create(&[("limit", "connections")]).clone();
        Self { rejected, connections, fenced }
    }

    /// A call was fenced.
    pub(super) fn fenced(&self) {
        self.fenced.get_or_create(&[("direction", "shard_to_provider")]).inc();
    }
}

/// The provider's metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    requests: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram, Buckets>,
    transitions: Family<Labels<2>, Counter>,
    reconciles: Family<Labels<1>, Counter>,
    pub(super) panics: Counter,
    pub(super) store_errors: Counter,
}

impl Metrics {
    /// Registers everything under `bigfleet_<name>_`.
    pub(super) fn register(registry: &mut Registry, name: &str) -> Self {
        let name = |rest: &str| format!("bigfleet_{name}_{rest}");
        Self {
            requests: counters(registry, &name("grpc_requests"), "Calls by method and status code"),
            seconds: histograms(
                registry,
                &name("grpc_request_duration_seconds"),
                "Time from request to answer",
                Buckets::A,
            ),
            transitions: counters(
                registry,
                &name("transitions"),
                "Operations by kind: started, succeeded, failed, stale (the machine moved on)",
            ),
            reconciles: counters(
                registry,
                &name("reconcile"),
                "Looks at the back end's own list, by outcome",
            ),
            panics: counter(registry, &name("panics"), "Panics that were caught"),
            store_errors: counter(
                registry,
                &name("store_errors"),
                "Changes refused because the store failed",
            ),
        }
    }

    pub(super) fn answered(&self, method: Method, code: Code, took: Duration) {
        self.requests.get_or_create(&[("method", method.name()), ("code", code_label(code))]).inc();
        self.seconds.get_or_create(&[("method", method.name())]).observe(took.as_secs_f64());
    }

    pub(super) fn transition(&self, kind: Kind, outcome: &'static str) {
        self.transitions.get_or_create(&[("kind", kind.name()), ("outcome", outcome)]).inc();
    }

    pub(super) fn reconciled(&self, outcome: &'static str) {
        self.reconciles.get_or_create(&[("outcome", outcome)]).inc();
    }
}
