//! What the core and the session count, read when somebody asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bigfleet_net::metrics::gauge;
use bigfleet_operator::service::Handle;
use bigfleet_types::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

/// The operator that runs, if one does.
#[derive(Clone)]
pub(super) struct Running {
    handle: Arc<Mutex<Option<Handle>>>,
    leader: Gauge,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Running {
    pub(super) fn register(registry: &mut Registry, clock: Arc<dyn Clock>) -> Self {
        let leader = gauge(registry, "bigfleet_operator_leader", "Whether this process leads");
        let running = Self { handle: Arc::default(), leader, clock };
        registry.register_collector(Box::new(running.clone()));
        running
    }

    pub(super) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    pub(super) fn set(&self, handle: Handle) {
        *self.lock() = Some(handle);
    }

    pub(super) fn take(&self) -> Option<Handle> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Running {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let (counters, stats) = match &*self.lock() {
            None => return Ok(()),
            Some(handle) => (handle.counters(), handle.session_stats()),
        };
        let mut out = Out(encoder);
        out.gauge("session_up", "Whether a session with the shard is up", u64::from(stats.connected))?;
        out.seconds("session_age_seconds", "How long the session has been up", stats.age.as_secs_f64())?;
        let by = &stats.reconnects_by.into();
        out.family("session_reconnects", "Sessions lost or not to be had", "reason", by)?;
        out.counter(
            "sessions_dropped",
            "Sessions ended because the shard fell silent",
            counters.sessions_dropped,
        )?;
        out.counter("outbox_dropped", "Frames that a full outbox dropped", stats.outbox_dropped)?;
        out.counter("rollup_sent", "Roll-ups that left", stats.rollups_sent)?;
        let refused = stats.rollups_refused.saturating_add(counters.rollups_too_large);
        out.counter("rollup_too_large", "Roll-ups that were too large to send", refused)?;
        out.counter("rollup_rejected", "Roll-ups that the shard refused", counters.rollups_rejected)?;
        out.gauge("rollup_bytes", "Encoded bytes of the last roll-up", counters.rollup_bytes)?;
        out.gauge("rollup_needs", "Needs in the last roll-up", counters.rollup_needs)?;
        if counters.rollup_confirmed_unix_nanos > 0 {
            let confirmed = bigfleet_types::UnixNanos(counters.rollup_confirmed_unix_nanos);
            let age = self.clock.now().since(confirmed).as_secs_f64();
            out.seconds("rollup_age_seconds", "Since the shard last confirmed a roll-up", age)?;
        }
        let pending = counters.requests_pending;
        let phases = [("Pending", pending), ("Acknowledged", counters.requests.saturating_sub(pending))];
        out.gauges("crs", "CapacityRequests that contribute to the demand", "phase", &phases)?;
        let by = &counters.requests_skipped;
        out.family("crs_skipped", "CapacityRequests that contribute nothing", "reason", by)?;
        let shares: Vec<_> =
            counters.daemonset_overhead.iter().map(|(name, share)| (*name, *share)).collect();
        let help = "Percents that DaemonSets take of the fleet's nodes, by which the demand is raised";
        out.gauges("daemonset_overhead_percent", help, "resource", &shares)?;
        out.gauge("ack_queue_depth", "CapacityRequests that wait to be acknowledged", counters.ack_queue)?;
        out.counter("acknowledged", "CapacityRequests acknowledged", counters.acknowledged)?;
        out.counter(
            "amounts_saturated",
            "Amounts cut to the largest that can be stated",
            counters.amounts_saturated,
        )?;
        out.family("bootstrap", "Bootstrap requests", "result", &counters.bootstrap)?;
        let by = &counters.reclaim_unresolved;
        out.family("reclaim_unresolved", "Entries of reclaim instructions not acted on", "reason", by)?;
        out.gauge("drain_active", "Drains under way", counters.drains_active)?;
        out.family("drain_result", "Drains that ended", "result", &counters.drain_results)?;
        out.family("eviction", "Evictions asked for, by answer", "code", &counters.evictions)?;
        let conflicts = counters.identity_conflicts;
        out.counter(
            "node_identity_conflicts",
            "Nodes or machines with more than one counterpart",
            conflicts,
        )?;
        let by = &counters.read_back_writes;
        out.family("read_back_writes", "UpcomingNodes and AvailableCapacities written", "outcome", by)?;
        out.family(
            "frames_ignored",
            "Frames of the shard that were ignored",
            "reason",
            &counters.frames_ignored,
        )?;
        out.counter(
            "quantities_dropped",
            "Quantities in frames that could not be read",
            counters.quantities_dropped,
        )
    }
}

struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = ConstCounter::new(value);
        let (name, help) = full(name, help);
        metric.encode(self.0.encode_descriptor(&name, &help, None, MetricType::Counter)?)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let (name, help) = full(name, help);
        metric.encode(self.0.encode_descriptor(&name, &help, None, MetricType::Gauge)?)
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[(&'static str, u64)],
    ) -> fmt::Result {
        let (name, help) = full(name, help);
        let mut metric = self.0.encode_descriptor(&name, &help, None, MetricType::Gauge)?;
        for (value, number) in values {
            let labels = [(label, *value)];
            let number = ConstGauge::new(i64::try_from(*number).unwrap_or(i64::MAX));
            number.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let metric = ConstGauge::new(value);
        let (name, help) = full(name, help);
        metric.encode(self.0.encode_descriptor(&name, &help, None, MetricType::Gauge)?)
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &BTreeMap<&'static str, u64>,
    ) -> fmt::Result {
        let (name, help) = full(name, help);
        let mut metric = self.0.encode_descriptor(&name, &help, None, MetricType::Counter)?;
        for (value, count) in values {
            let labels = [(label, *value)];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// As the registry writes them.
fn full(name: &str, help: &str) -> (String, String) {
    (format!("bigfleet_operator_{name}"), format!("{help}."))
}
