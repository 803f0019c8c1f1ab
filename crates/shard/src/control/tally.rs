//! Gauges over the inventory, kept up to date change by change.

use std::collections::BTreeMap;

use bigfleet_types::{CapacityType, MachineState, PenaltyBucket, StampedPenalty};

use super::record::Record;
use crate::metrics::Metrics;

/// Label values of penalty buckets; index 0 is a machine or row without one.
pub(crate) const BUCKETS: [&str; 28] = [
    "unspecified",
    "0",
    "0.5",
    "1",
    "2",
    "4",
    "8",
    "16",
    "32",
    "64",
    "128",
    "256",
    "512",
    "1024",
    "2048",
    "4096",
    "8192",
    "16384",
    "32768",
    "65536",
    "131072",
    "262144",
    "524288",
    "1048576",
    "2097152",
    "4194304",
    "8388608",
    "pinned",
];

type Cell = (MachineState, CapacityType, usize);

/// Counts and sums over all records.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    machines: BTreeMap<Cell, i64>,
    price: BTreeMap<(MachineState, CapacityType), i128>,
    risk: BTreeMap<CapacityType, i128>,
    failed: BTreeMap<&'static str, i64>,
    stuck: BTreeMap<&'static str, i64>,
    unattributed: i64,
    cooling: i64,
    changed: bool,
}

fn bucket(penalty: Option<StampedPenalty>) -> usize {
    let Some(penalty) = penalty else { return 0 };
    let fits = |bucket: &PenaltyBucket| StampedPenalty::from(*bucket) >= penalty;
    usize::from(PenaltyBucket::all().find(fits).unwrap_or(PenaltyBucket::PINNED).number())
}

impl Tally {
    /// Adds (`sign` 1) or takes away (`sign` -1) a record.
    pub(crate) fn count(&mut self, record: &Record, sign: i64) {
        let machine = &record.machine;
        let (state, capacity) = (machine.state, machine.capacity_type);
        let penalty = machine.attribution.interruption;
        let weight = i128::from(sign);
        *self.machines.entry((state, capacity, bucket(penalty))).or_default() += sign;
        *self.price.entry((state, capacity)).or_default() += weight * i128::from(machine.price.nano());
        if let (true, Some(StampedPenalty::Finite(dollars))) = (state.is_bound(), penalty) {
            let chance = i128::from(machine.interruption_probability.nano());
            let risk = i128::from(dollars.nano()) * chance / 1_000_000_000;
            *self.risk.entry(capacity).or_default() += weight * risk;
        }
        if state == MachineState::Failed {
            *self.failed.entry(record.failed_from.map_or("unknown", MachineState::name)).or_default() += sign;
        }
        if record.stuck {
            *self.stuck.entry(state.name()).or_default() += sign;
        }
        if state.is_bound() && machine.attribution.is_empty() {
            self.unattributed += sign;
        }
        if record.cool_until.is_some() {
            self.cooling += sign;
        }
        self.changed = true;
    }

    /// Machines in a state.
    pub(crate) fn in_state(&self, state: MachineState) -> usize {
        let cells = self.machines.iter().filter(|((s, _, _), _)| *s == state);
        cells.map(|(_, n)| usize::try_from(*n).unwrap_or(0)).sum()
    }

    /// Machines in a cool-down.
    pub(crate) fn cooling(&self) -> i64 {
        self.cooling
    }

    /// Writes the gauges; cells that emptied are written as zero.
    pub(crate) fn publish(&mut self, metrics: &Metrics) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        for ((state, capacity, bucket), count) in &self.machines {
            let labels = [
                ("state", state.name()),
                ("capacity_type", capacity.name()),
                ("interruption_penalty_bucket", BUCKETS[*bucket]),
            ];
            metrics.inventory_machines.get_or_create(&labels).set(*count);
        }
        for ((state, capacity), nano) in &self.price {
            let labels = [("state", state.name()), ("capacity_type", capacity.name())];
            metrics.capacity_dollars_per_hour.get_or_create(&labels).set(dollars(*nano));
        }
        for (capacity, nano) in &self.risk {
            let labels = [("capacity_type", capacity.name())];
            metrics.expected_interruption_dollars_per_hour.get_or_create(&labels).set(dollars(*nano));
        }
        for (cause, count) in &self.failed {
            metrics.failed_machines.get_or_create(&[("cause", *cause)]).set(*count);
        }
        for (state, count) in &self.stuck {
            metrics.stuck_transitions.get_or_create(&[("state", *state)]).set(*count);
        }
        metrics.unattributed_bound_machines.set(self.unattributed);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a gauge; nothing decides by it")]
fn dollars(nano: i128) -> f64 {
    nano as f64 / 1e9
}
