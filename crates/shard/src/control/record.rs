//! What the shard knows of one machine.

use std::sync::Arc;

use bigfleet_engine::Purpose;
use bigfleet_types::{CapacityType, ClusterId, Machine, MachineState, NeedKey, Resources, UnixNanos};

use super::flight::Flight;

/// One machine: the provider's word and the side tables beside it.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) machine: Arc<Machine>,
    pub(crate) state_since: UnixNanos,
    /// Idle machines only.
    pub(crate) idle_since: Option<UnixNanos>,
    /// The local generation of its last change.
    pub(crate) changed: u64,
    /// The local generation of its first sight.
    pub(crate) inserted: u64,
    /// When an operation of ours on it last ended.
    pub(crate) settled: Option<UnixNanos>,
    /// Creating machines: for which Need.
    pub(crate) created_for: Option<NeedKey>,
    /// Idle machines: the cluster that saw it being created.
    pub(crate) meant_for: Option<ClusterId>,
    /// Draining machines: why.
    pub(crate) purpose: Purpose,
    /// From Create to Configured: what the slot promised.
    pub(crate) advertised: Option<Resources>,
    /// Failed machines: what they were doing.
    pub(crate) failed_from: Option<MachineState>,
    /// Operations that failed in a row.
    pub(crate) strikes: u32,
    /// Withheld until then.
    pub(crate) cool_until: Option<UnixNanos>,
    /// In one transition for longer than the watchdog's patience.
    pub(crate) stuck: bool,
    /// Stuck for so long that the engine is not to count on it.
    pub(crate) withheld: bool,
    pub(crate) flight: Option<Box<Flight>>,
}

/// What runs out together: (instance type, zone, capacity type).
pub(crate) type StockClass = (Arc<str>, Arc<str>, CapacityType);

impl Record {
    pub(crate) fn new(machine: Arc<Machine>, now: UnixNanos, generation: u64) -> Self {
        let state = machine.state;
        Self {
            state_since: now,
            idle_since: (state == MachineState::Idle).then_some(now),
            changed: generation,
            inserted: generation,
            settled: None,
            created_for: None,
            meant_for: None,
            purpose: if state == MachineState::Draining { Purpose::Unknown } else { Purpose::None },
            advertised: None,
            failed_from: None,
            strikes: 0,
            cool_until: None,
            stuck: false,
            withheld: false,
            flight: None,
            machine,
        }
    }

    pub(crate) fn state(&self) -> MachineState {
        self.machine.state
    }

    /// The cluster whose operator hears of this machine: the one that it belongs to, is created for or was created
    /// for.
    pub(crate) fn audience(&self) -> Option<&ClusterId> {
        let created_for = self.created_for.as_ref().map(|key| &key.cluster);
        self.machine.cluster.as_ref().or(created_for).or(self.meant_for.as_ref())
    }

    pub(crate) fn stock_class(&self) -> StockClass {
        (self.machine.instance_type.clone(), self.machine.zone.clone(), self.machine.capacity_type)
    }

    pub(crate) fn is_cooling(&self, now: UnixNanos) -> bool {
        self.cool_until.is_some_and(|until| until > now)
    }

    /// Brings the side tables in line with a change of state.
    pub(crate) fn entered(&mut self, before: MachineState, now: UnixNanos) {
        let state = self.state();
        self.state_since = now;
        self.idle_since = (state == MachineState::Idle).then_some(now);
        self.stuck = false;
        self.withheld = false;
        if state != MachineState::Creating {
            let key = self.created_for.take();
            let matured = state == MachineState::Idle;
            self.meant_for = key.map(|key| key.cluster).filter(|_| matured);
        }
        if state != MachineState::Draining {
            self.purpose = Purpose::None;
        }
        self.failed_from = (state == MachineState::Failed).then_some(before);
        if matches!(state, MachineState::Speculative | MachineState::Failed | MachineState::Configured) {
            self.advertised = None;
        }
    }
}
