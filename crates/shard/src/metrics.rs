//! Every metric of the shard. One struct of typed handles; cloning shares them.

use std::sync::atomic::AtomicU64;

use bigfleet_engine::ActionKind;
use bigfleet_net::metrics::{
    Buckets, Labels, OwnedLabels, counter, counters, gauge, gauges, histogram, histograms, register,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// A gauge of fractions.
pub type FloatGauge = Gauge<f64, AtomicU64>;
/// Counters with `N` fixed labels.
pub type Counters<const N: usize> = Family<Labels<N>, Counter>;
/// Gauges with `N` fixed labels.
pub type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
/// Histograms with `N` fixed labels.
pub type Histograms<const N: usize> = Family<Labels<N>, Histogram, Buckets>;

macro_rules! metrics {
    ($($name:ident: $type:ty = $make:expr, $help:literal;)*) => {
        /// The handles. Names in the registry are `bigfleet_shard_` and the field's name.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            $(#[doc = $help] pub $name: $type,)*
        }

        impl Metrics {
            /// Registers every metric.
            #[must_use]
            #[allow(clippy::redundant_closure_call, reason = "the table reads as a table")]
            pub fn register(registry: &mut Registry) -> Self {
                let registry = registry.sub_registry_with_prefix("bigfleet_shard");
                Self { $($name: ($make)(&mut *registry, stringify!($name), $help),)* }
            }
        }
    };
}

fn seconds_a(r: &mut Registry, name: &str, help: &str) -> Histogram {
    histogram(r, name, help, Buckets::A)
}

fn seconds_b(r: &mut Registry, name: &str, help: &str) -> Histogram {
    histogram(r, name, help, Buckets::B)
}

fn family_a<const N: usize>(r: &mut Registry, name: &str, help: &str) -> Histograms<N> {
    histograms(r, name, help, Buckets::A)
}

fn family_b<const N: usize>(r: &mut Registry, name: &str, help: &str) -> Histograms<N> {
    histograms(r, name, help, Buckets::B)
}

fn float(r: &mut Registry, name: &str, help: &str) -> FloatGauge {
    register(r, name, help, FloatGauge::default())
}

fn floats<const N: usize>(r: &mut Registry, name: &str, help: &str) -> Family<Labels<N>, FloatGauge> {
    register(r, name, help, Family::default())
}

fn float_owned<const N: usize>(
    r: &mut Registry,
    name: &str,
    help: &str,
) -> Family<OwnedLabels<N>, FloatGauge> {
    register(r, name, help, Family::default())
}

metrics! {
    cycle_duration_seconds: Histogram = seconds_a, "Time of one cycle, with the time to apply what came in since the one before";
    cycle_phase_duration_seconds: Histograms<1> = family_a, "Time of one cycle by phase, which sum to it; reconcile is the time to apply what came in since the cycle before, snapread to index it";
    provisioning_latency_seconds: Histogram = seconds_b, "From a Need becoming unmet to its first Configured machine";
    configure_phase_seconds: Histogram = seconds_b, "From the start of a Bootstrap to Configured, successes only";
    request_bootstrap_seconds: Histogram = seconds_b, "Round trip of a bootstrap request to the operator, successes only";
    drain_phase_seconds: Histogram = seconds_b, "From the start of a drain to Idle, successes only";
    actions: Counters<1> = counters, "Actions decided for execution, without suppressed and dry-run ones";
    action_execute_outcomes: Counters<2> = counters, "What became of executed actions";
    actions_deferred: Counter = counter, "Actions put off by the limit of actions in one cycle";
    actions_dropped: Counter = counter, "Actions lost to a full queue; the board has none, so this stays 0";
    actions_deduped: Counter = counter, "Actions not started because the machine moved on or is already in work";
    action_queue_depth: Gauge = gauge, "Actions decided and not yet started";
    execute_inflight: Gauge = gauge, "Actions in execution; compare with the execute concurrency";
    reclaims_capped: Counter = counter, "Reclaims put off by the cap; 0 in a healthy fleet";
    actions_suppressed: Counters<1> = counters, "Actions decided and not executed because actuation is paused";
    actions_dryrun: Counters<1> = counters, "Actions decided and not executed because this is a dry run";
    actuation_paused: Gauge = gauge, "1 while actuation is paused";
    rollup_quarantined: Family<OwnedLabels<1>, Gauge> = gauges, "Consecutive suspicious roll-ups held";
    idle_releases: Counter = counter, "Idle machines given back";
    machines_rejected: Counters<1> = counters, "Provider records refused";
    rollups_rejected: Family<OwnedLabels<1>, Counter> = counters, "Roll-ups refused whole";
    inventory_machines: Gauges<3> = gauges, "Machines by state, capacity type and stamped interruption penalty";
    demand_machines: Gauges<1> = gauges, "Rows of demand by interruption penalty. Rows, not machines: the name is historical";
    demand_rows: Gauge = gauge, "Rows of demand";
    unmet_needs: Gauges<1> = gauges, "Unsatisfied Needs by reason";
    deficit: Family<OwnedLabels<1>, FloatGauge> = float_owned, "Sum of all shortfalls by resource, in cores, bytes or units";
    capacity_dollars_per_hour: Family<Labels<2>, FloatGauge> = floats, "Sum of declared prices";
    expected_interruption_dollars_per_hour: Family<Labels<1>, FloatGauge> = floats, "Sum of interruption probability times stamped finite penalty of bound machines";
    shortfalls: Gauge = gauge, "Needs with a deficit that nothing in this shard can meet";
    shortfalls_aged: Gauges<1> = gauges, "Shortfalls by age in cycle intervals";
    shortfalls_by_priority: Gauges<1> = gauges, "Shortfalls by class of priority";
    shortfall_oldest_seconds: FloatGauge = float, "Age of the oldest shortfall";
    active_sessions: Gauge = gauge, "Operators connected";
    session_lifecycle: Counters<1> = counters, "Sessions installed, replaced and removed";
    session_identity_rejected: Counter = counter, "Sessions whose certificate names another cluster; any is a security event";
    observed_transitions: Counters<3> = counters, "Changes of state that the provider reported";
    failed_machines: Gauges<1> = gauges, "Failed machines by what they were doing";
    stuck_transitions: Gauges<1> = gauges, "Machines in one transition for too long";
    provider_contract_violations: Counters<1> = counters, "Provider records repaired or odd";
    removals_quarantined: Gauge = gauge, "Machines missing from the List whose removal is held";
    unattributed_bound_machines: Gauge = gauge, "Bound machines without any usable stamp";
    self_fenced: Gauge = gauge, "1 after three machines in a row fenced us: nothing is executed until a restart";
    provider_circuit_open: Gauge = gauge, "1 while calls that change machines are held back";
    provider_rpc_duration_seconds: Histograms<2> = family_b, "Time of provider calls by status code";
    inventory_age_seconds: FloatGauge = float, "Age of the last successful List, at the last cycle";
    cooled_down_machines: Gauge = gauge, "Machines withheld after failed operations, and classes out of stock";
    reclaims_deferred_no_session: Counter = counter, "Reclaims put off because the cluster's operator is away";
    endings_dropped: Counter = counter, "Ended bindings forgotten for want of room before their operator may have heard of them";
    over_advertised_shapes: Gauge = gauge, "Machine shapes whose hosts joined with less than advertised";
    unreported_clusters: Gauge = gauge, "Clusters that hold machines and have not spoken since the start";
    rollup_age_seconds: Family<OwnedLabels<1>, FloatGauge> = float_owned, "Age of the last accepted roll-up, at the last cycle";
    session_outbox_depth: Gauges<1> = gauges, "Frames that wait to be sent to operators, by lane";
    session_frames_coalesced: Counter = counter, "Frames replaced by a newer one before they were sent";
    decision_audits: Counter = counter, "Decisions compared with a full pass over the same state";
    decision_divergences: Counter = counter, "Decisions that differed from a full pass over the same state; any is a defect of this program";
    decision_audits_failed: Counter = counter, "Audits of decisions that ended without an answer";
    audit_records_lost: Counter = counter, "Audit records that could not be written";
    epoch: Gauge = gauge, "This process's fencing epoch";
}

impl Metrics {
    /// Makes the counters with known label values exist: what was never counted is 0, not unknown.
    pub fn begin_at_zero(&self) {
        for kind in ActionKind::ALL.map(ActionKind::name) {
            for counters in [&self.actions, &self.actions_suppressed, &self.actions_dryrun] {
                drop(counters.get_or_create(&[("kind", kind)]));
            }
        }
        for reason in ["price", "interruption_probability", "structural"] {
            drop(self.machines_rejected.get_or_create(&[("reason", reason)]));
        }
        for event in ["installed", "replaced", "removed"] {
            drop(self.session_lifecycle.get_or_create(&[("event", event)]));
        }
    }
}
