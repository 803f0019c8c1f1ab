//! Keeping up with the back end's own view: new machines, changed facts, vanished hosts, repairs.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{MachineId, MachineState};

use super::plan::Binding;
use super::{Change, Record, Table};
use crate::defects::Defect;
use crate::instance::Instance;

/// Why a vanished host failed, in `last_error`.
pub(crate) const HOST_GONE: &str = "host gone: the back end no longer has it";

impl Table {
    /// Plans what an instance brings: a machine that was not known, changed facts, or nothing. Life-cycle states
    /// are never touched, except that a host which the back end no longer has fails its machine: `as_of` is the
    /// revision at which the back end was asked (machines that changed since are left alone), `None` for a back end
    /// whose word on hosts does not count.
    pub fn plan_instance(&mut self, instance: &Instance, as_of: Option<u64>) -> Option<Change> {
        let Some(known) = self.records.get(instance.id.as_str()) else {
            return Some(self.change(described(instance), None));
        };
        let hostless = instance.host.is_none();
        if known.state == MachineState::Failed && known.untouched && hostless {
            return Some(self.change(described(instance), None));
        }
        if let Some(as_of) = as_of
            && hostless
            && known.revision <= as_of
            && matches!(known.state, MachineState::Idle | MachineState::Configured)
        {
            return self.plan_failure(&instance.id, HOST_GONE);
        }
        let mut record = known.clone();
        let before = record.machine();
        let machine = record.edit();
        machine.price_per_hour = instance.price_per_hour;
        machine.interruption_probability = instance.interruption_probability;
        machine.resources = wire_resources(&instance.resources);
        machine.allocatable = wire_resources(&instance.allocatable);
        machine.labels.clone_from(&instance.labels);
        let looked = self.switch.is(Defect::IdlingMovesRevision) && known.state == MachineState::Speculative;
        (looked || record.machine() != before).then(|| self.change(record, None))
    }

    /// Plans what it means that the back end left out a known machine: a slot goes, a host at rest fails.
    pub fn plan_vanished(&mut self, id: &MachineId, as_of: u64) -> Option<Change> {
        let record = self.records.get(id).filter(|record| record.revision <= as_of)?;
        match record.state {
            MachineState::Speculative => self.plan_removal(id.as_str()),
            MachineState::Idle | MachineState::Configured => self.plan_failure(id.as_str(), HOST_GONE),
            _ => None,
        }
    }

    /// Plans a machine that is already bound, for seeding. `None` when the id is known.
    pub fn plan_bound(&mut self, instance: &Instance, binding: &Binding) -> Option<Change> {
        if self.records.contains_key(instance.id.as_str()) || instance.host.is_none() {
            return None;
        }
        let mut record = described(instance);
        record.edit().cluster.clone_from(&binding.cluster);
        record.edit().shard_metadata.clone_from(&binding.metadata);
        record.enter(MachineState::Configured);
        Some(self.change(record, None))
    }

    /// Plans the failure of a machine in any state but Failed.
    pub fn plan_failure(&mut self, id: &str, reason: &str) -> Option<Change> {
        let mut record = self.records.get(id).filter(|record| record.state != MachineState::Failed)?.clone();
        record.fail(reason);
        Some(self.change(record, None))
    }

    /// Plans the end of a machine: it leaves every list. `None` when the id is not known.
    pub fn plan_removal(&mut self, id: &str) -> Option<Change> {
        self.records.get(id)?;
        self.planned += 1;
        Some(Change { removed: id.to_owned(), revision: self.planned, ..Change::default() })
    }

    /// Plans the way back of a Failed machine, to what the back end says it is. `None` when it is not Failed.
    pub fn plan_repair(&mut self, instance: &Instance) -> Option<Change> {
        self.records.get(instance.id.as_str()).filter(|record| record.state == MachineState::Failed)?;
        Some(self.change(described(instance), None))
    }
}

impl Record {
    pub(super) fn fail(&mut self, reason: &str) {
        let reason = if reason.is_empty() { "failed without saying why" } else { reason };
        self.edit().last_error = reason.to_owned();
        self.enter(MachineState::Failed);
    }
}

fn described(instance: &Instance) -> Record {
    let machine = pb::Machine {
        id: instance.id.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: i32::from(instance.capacity_type as u8),
        price_per_hour: instance.price_per_hour,
        interruption_probability: instance.interruption_probability,
        resources: wire_resources(&instance.resources),
        allocatable: wire_resources(&instance.allocatable),
        labels: instance.labels.clone(),
        ..pb::Machine::default()
    };
    match &instance.host {
        None => Record::new(machine, MachineState::Speculative),
        Some(host) => {
            let mut record = Record::new(machine, MachineState::Idle);
            record.set_host(host);
            record
        }
    }
}

pub(super) fn wire_resources(amounts: &BTreeMap<String, String>) -> Option<pb::Resources> {
    (!amounts.is_empty()).then(|| pb::Resources { resources: amounts.clone() })
}
