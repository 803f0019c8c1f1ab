//! Shared shapes of our metrics: the bucket families, labels with exact text, and registration in one line.
//!
//! Labels are arrays of (name, value) text rather than derived enums, because the derive prints Rust variant names
//! and the label values are part of a public contract.

use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// `N` labels whose values are known at compile time.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];
/// `N` labels with values that arrive at run time, such as a cluster id. Whoever sets them bounds and removes them.
pub type OwnedLabels<const N: usize> = [(&'static str, String); N];

/// Bucket families of the public metrics: a first bound in seconds that doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// 1 ms to 8.192 s, 14 bounds.
    A,
    /// 10 ms to 327.68 s, 16 bounds.
    B,
    /// 1 ms to 32.768 s, 16 bounds.
    C,
    /// 1 ms to 65.536 s, 17 bounds.
    D,
}

impl Buckets {
    /// The upper bounds in seconds, ascending, without the infinite one.
    pub fn bounds(self) -> impl Iterator<Item = f64> {
        let (first, count) = match self {
            Self::A => (0.001, 14),
            Self::B => (0.01, 16),
            Self::C => (0.001, 16),
            Self::D => (0.001, 17),
        };
        exponential_buckets(first, 2.0, count)
    }

    /// A histogram of seconds over these bounds.
    #[must_use]
    pub fn histogram(self) -> Histogram {
        Histogram::new(self.bounds())
    }
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        self.histogram()
    }
}

/// Registers `metric` under `name` and gives it back, so that a component's struct reads as its list of metrics.
/// Counters are named without their `_total`, which the encoder adds.
pub fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// A registered counter. `name` comes without `_total`.
pub fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    register(registry, name, help, Counter::default())
}

/// A registered gauge of integers.
pub fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    register(registry, name, help, Gauge::default())
}

/// A registered histogram of seconds.
pub fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: Buckets) -> Histogram {
    register(registry, name, help, buckets.histogram())
}

/// A registered family of counters. `name` comes without `_total`.
pub fn counters<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Counter>
where
    L: EncodeLabelSet + Clone + Debug + Hash + Eq + Send + Sync + 'static,
{
    register(registry, name, help, Family::default())
}

/// A registered family of integer gauges.
pub fn gauges<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Gauge>
where
    L: EncodeLabelSet + Clone + Debug + Hash + Eq + Send + Sync + 'static,
{
    register(registry, name, help, Family::default())
}

/// A registered family of histograms of seconds.
pub fn histograms<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    buckets: Buckets,
) -> Family<L, Histogram, Buckets>
where
    L: EncodeLabelSet + Clone + Debug + Hash + Eq + Send + Sync + 'static,
{
    register(registry, name, help, Family::new_with_constructor(buckets))
}

/// The name of a gRPC status code, as the protocol spells it: a label of call counters.
#[must_use]
pub fn code_label(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    fn text(registry: &Registry) -> String {
        let mut out = String::new();
        encode(&mut out, registry).unwrap();
        out
    }

    #[test]
    fn families_have_the_published_bounds() {
        for (family, count, last) in [
            (Buckets::A, 14, 8.192),
            (Buckets::B, 16, 327.68),
            (Buckets::C, 16, 32.768),
            (Buckets::D, 17, 65.536),
        ] {
            let bounds: Vec<f64> = family.bounds().collect();
            assert_eq!(bounds.len(), count, "{family:?}");
            assert!((bounds[count - 1] - last).abs() < 1e-9, "{family:?}: {bounds:?}");
            assert!(bounds.windows(2).all(|w| (w[1] / w[0] - 2.0).abs() < 1e-12), "{family:?}");
        }
    }

    #[test]
    fn label_values_are_printed_as_given() {
        let mut registry = Registry::default();
        let kinds: Family<Labels<2>, Counter> = counters(&mut registry, "x_outcomes", "By kind");
        kinds.get_or_create(&[("kind", "Bootstrap"), ("outcome", "no_session")]).inc();
        let clusters: Family<OwnedLabels<1>, Gauge> = gauges(&mut registry, "x_quarantined", "By cluster");
        clusters.get_or_create(&[("cluster", "a\"b".to_owned())]).set(3);
        let out = text(&registry);
        assert!(out.contains("x_outcomes_total{kind=\"Bootstrap\",outcome=\"no_session\"} 1\n"), "{out}");
        assert!(out.contains("x_quarantined{cluster=\"a\\\"b\"} 3\n"), "{out}");
    }

    #[test]
    fn registered_handles_feed_the_registry() {
        let mut registry = Registry::default();
        counter(&mut registry, "x_a", "A").inc_by(4);
        gauge(&mut registry, "x_b", "B").set(-2);
        histogram(&mut registry, "x_c_seconds", "C", Buckets::A).observe(0.003);
        let phases: Family<Labels<1>, Histogram, Buckets> =
            histograms(&mut registry, "x_d_seconds", "D", Buckets::D);
        phases.get_or_create(&[("phase", "emit")]).observe(40.0);
        let out = text(&registry);
        for line in [
            "x_a_total 4",
            "x_b -2",
            "x_c_seconds_bucket{le=\"0.002\"} 0",
            "x_c_seconds_bucket{le=\"0.004\"} 1",
            "x_d_seconds_bucket{le=\"32.768\",phase=\"emit\"} 0",
            "x_d_seconds_count{phase=\"emit\"} 1",
        ] {
            assert!(out.lines().any(|l| l == line), "missing {line:?} in\n{out}");
        }
    }
}
