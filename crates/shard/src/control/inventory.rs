//! All machines, with the indexes and gauges that every change keeps up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, UnixNanos};
use hashbrown::HashMap;

use super::flight::Flight;
use super::record::Record;
use super::stock::Stock;
use super::tally::Tally;
use crate::metrics::Metrics;

/// The inventory.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    records: HashMap<MachineId, Box<Record>>,
    indexes: Indexes,
    in_flight: BTreeSet<MachineId>,
    /// Machines of which the next List is to be heard although it says what the one before said.
    open: BTreeSet<MachineId>,
    generation: u64,
}

/// What follows from the records alone.
#[derive(Debug, Default)]
struct Indexes {
    by_audience: BTreeMap<ClusterId, BTreeSet<MachineId>>,
    configured: BTreeMap<ClusterId, usize>,
    stock: Stock,
    tally: Tally,
}

impl Inventory {
    pub(crate) fn get(&self, id: &MachineId) -> Option<&Record> {
        self.records.get(id).map(|record| &**record)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// All records, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&MachineId, &Record)> {
        self.records.iter().map(|(id, record)| (id, &**record))
    }

    /// So many more records are to come.
    pub(super) fn reserve(&mut self, more: usize) {
        self.records.reserve(more);
    }

    /// Moves on with every change: what was known at one value may be stale at a later one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Machines by what they are.
    pub(super) fn stock(&self) -> &Stock {
        &self.indexes.stock
    }

    /// Frees what vanished machines left behind.
    pub(super) fn sweep(&mut self) {
        self.indexes.stock.sweep();
    }

    /// Counts of machines.
    pub(super) fn tally(&self) -> &Tally {
        &self.indexes.tally
    }

    /// Writes the gauges.
    pub(super) fn publish(&mut self, metrics: &Metrics) {
        self.indexes.tally.publish(metrics);
    }

    /// Machines of which a cluster's operator hears, by id.
    pub(crate) fn of(&self, cluster: &ClusterId) -> impl Iterator<Item = &MachineId> {
        self.indexes.by_audience.get(cluster).into_iter().flatten()
    }

    /// Configured machines of a cluster.
    pub(crate) fn configured(&self, cluster: &ClusterId) -> usize {
        self.indexes.configured.get(cluster).copied().unwrap_or(0)
    }

    /// Clusters with Configured machines, by id.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &ClusterId> {
        self.indexes.configured.keys()
    }

    /// What the last List said of a machine is not what we hold, or we do not know.
    pub(super) fn reopen(&mut self, id: &MachineId) {
        self.open.insert(id.clone());
    }

    /// What the last List said of a machine is what we hold.
    pub(super) fn settle(&mut self, id: &MachineId) {
        self.open.remove(id);
    }

    /// Machines of which this List is to be heard whatever it says.
    pub(super) fn take_open(&mut self) -> BTreeSet<MachineId> {
        std::mem::take(&mut self.open)
    }

    /// Machines with an operation under way, by id.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (&MachineId, &Flight)> {
        self.in_flight.iter().filter_map(|id| Some((id, self.records.get(id)?.flight.as_deref()?)))
    }

    /// Adds a machine that is not there yet.
    pub(crate) fn insert(&mut self, machine: Arc<Machine>, now: UnixNanos) {
        self.generation += 1;
        let id = machine.id.clone();
        let record = Box::new(Record::new(machine, now, self.generation));
        self.indexes.count(&id, &record, 1);
        self.open.insert(id.clone());
        self.records.insert(id, record);
    }

    /// Changes a record; side tables follow a change of state.
    pub(crate) fn change(&mut self, id: &MachineId, now: UnixNanos, edit: impl FnOnce(&mut Record)) {
        let Some(record) = self.records.get_mut(id) else { return };
        self.indexes.count(id, record, -1);
        let before = record.state();
        edit(record);
        if record.state() != before {
            record.entered(before, now);
        }
        self.generation += 1;
        record.changed = self.generation;
        self.indexes.count(id, record, 1);
        self.open.insert(id.clone());
    }

    /// Takes a machine out.
    pub(crate) fn remove(&mut self, id: &MachineId) -> Option<Box<Record>> {
        let record = self.records.remove(id)?;
        self.indexes.count(id, &record, -1);
        self.in_flight.remove(id);
        self.open.insert(id.clone());
        self.generation += 1;
        Some(record)
    }

    /// The operation under way.
    pub(crate) fn flight_mut(&mut self, id: &MachineId) -> Option<&mut Flight> {
        self.records.get_mut(id)?.flight.as_deref_mut()
    }

    /// Begins an operation, or replaces it.
    pub(crate) fn take_off(&mut self, id: &MachineId, flight: Flight) {
        if let Some(record) = self.records.get_mut(id) {
            record.flight = Some(Box::new(flight));
            self.in_flight.insert(id.clone());
        }
    }

    /// Ends an operation.
    pub(crate) fn land(&mut self, id: &MachineId, now: UnixNanos) -> Option<Flight> {
        self.in_flight.remove(id);
        let record = self.records.get_mut(id)?;
        let flight = record.flight.take()?;
        self.open.insert(id.clone());
        record.settled = Some(now);
        Some(*flight)
    }
}

impl Indexes {
    /// Adds (`sign` 1) or takes away (`sign` -1) a record.
    fn count(&mut self, id: &MachineId, record: &Record, sign: i64) {
        self.tally.count(record, sign);
        self.stock.count(record, sign > 0);
        if let Some(cluster) = record.audience() {
            let ids = self.by_audience.entry(cluster.clone()).or_default();
            if sign > 0 {
                ids.insert(id.clone());
            } else {
                ids.remove(id);
            }
            if ids.is_empty() {
                self.by_audience.remove(cluster);
            }
        }
        if let (MachineState::Configured, Some(cluster)) = (record.state(), &record.machine.cluster) {
            let count = self.configured.entry(cluster.clone()).or_default();
            *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.configured.remove(cluster);
            }
        }
    }
}
