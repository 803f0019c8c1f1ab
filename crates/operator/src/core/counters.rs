//! What the core counts; a shell exports it.

use std::collections::BTreeMap;

/// Counts since the start, and a few gauges. Labelled counters are maps from the label's value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Roll-ups handed to the session.
    pub rollups: u64,
    /// Roll-ups that were too large to send.
    pub rollups_too_large: u64,
    /// Roll-ups that the shard refused.
    pub rollups_rejected: u64,
    /// Gauge: encoded bytes of the last roll-up that was built.
    pub rollup_bytes: u64,
    /// Gauge: needs in the last roll-up that was built.
    pub rollup_needs: u64,
    /// Gauge: when the shard last confirmed a roll-up, Unix nanoseconds; 0 before the first.
    pub rollup_confirmed_unix_nanos: i64,
    /// Gauge: requests that contribute to the demand.
    pub requests: u64,
    /// Gauge: of these, the ones whose status does not say that they are acknowledged.
    pub requests_pending: u64,
    /// Gauge: requests whose acknowledgement waits for a write or its answer.
    pub ack_queue: u64,
    /// Requests acknowledged.
    pub acknowledged: u64,
    /// Requests that contribute nothing, by reason; each uid counts once a reason.
    pub requests_skipped: BTreeMap<&'static str, u64>,
    /// Amounts that were too large to state, cut to the largest that can be.
    pub amounts_saturated: u64,
    /// Gauge: the percents by which DaemonSets take of the fleet's nodes, by resource; empty when that is not asked for.
    pub daemonset_overhead: BTreeMap<&'static str, u64>,
    /// Bootstrap requests, by result.
    pub bootstrap: BTreeMap<&'static str, u64>,
    /// Entries of reclaim instructions that were not acted on, by reason.
    pub reclaim_unresolved: BTreeMap<&'static str, u64>,
    /// Gauge: drains under way.
    pub drains_active: u64,
    /// Drains that ended, by result.
    pub drain_results: BTreeMap<&'static str, u64>,
    /// Evictions asked for, by answer.
    pub evictions: BTreeMap<&'static str, u64>,
    /// Nodes that more than one claim to be, or machines with more than one node.
    pub identity_conflicts: u64,
    /// Writes of UpcomingNodes and AvailableCapacities, by outcome.
    pub read_back_writes: BTreeMap<&'static str, u64>,
    /// Frames whose UpcomingNode said it all already.
    pub upcoming_unchanged: u64,
    /// Frames of the shard that were ignored, by reason.
    pub frames_ignored: BTreeMap<&'static str, u64>,
    /// Quantities in frames that could not be read and were left out.
    pub quantities_dropped: u64,
    /// Sessions that were ended because the shard stopped answering.
    pub sessions_dropped: u64,
}

/// Adds one to a labelled counter.
pub(crate) fn bump(counter: &mut BTreeMap<&'static str, u64>, label: &'static str) {
    *counter.entry(label).or_default() += 1;
}
