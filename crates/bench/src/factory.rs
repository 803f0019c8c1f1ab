//! Makes machine records: texts are shared as far as a provider's records would share them, ids never.

use std::sync::Arc;

use bigfleet_engine::{Event, Facts};
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Host, Labels, Machine, MachineId, MachineState, NanoDollars,
    Probability, Resources,
};

use crate::workload::START;

/// A cluster by number.
pub(crate) fn cluster(number: impl std::fmt::Display) -> ClusterId {
    ClusterId::trusted(format!("cluster-{number:0>5}"))
}

/// What machines of one kind and place have in common.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) instance_type: Arc<str>,
    pub(crate) zone: Arc<str>,
    pub(crate) capacity_type: CapacityType,
    pub(crate) price: NanoDollars,
    pub(crate) interruption: Probability,
    pub(crate) capacity: Resources,
    pub(crate) labels: Labels,
}

/// Makes records and counts them.
#[derive(Debug)]
pub(crate) struct Factory {
    made: u64,
    provider: Arc<str>,
}

impl Factory {
    pub(crate) fn new() -> Self {
        Self { made: 0, provider: "cloud".into() }
    }

    /// The next machine. Ids are those of a cloud: of one length and in no order that means anything.
    pub(crate) fn make(
        &mut self,
        model: &Model,
        state: MachineState,
        bound: Option<(&ClusterId, &Attribution)>,
    ) -> Event {
        let number = self.made;
        self.made += 1;
        // An odd factor makes no two numbers equal below 2^40.
        let scrambled = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & 0xFF_FFFF_FFFF;
        let mut machine = Machine::new(MachineId::trusted(format!("i-{scrambled:010x}")), state);
        machine.instance_type = model.instance_type.clone();
        machine.zone = model.zone.clone();
        machine.capacity_type = model.capacity_type;
        machine.price = model.price;
        machine.interruption_probability = model.interruption;
        machine.resources = model.capacity.clone();
        machine.allocatable = model.capacity.clone();
        machine.labels = model.labels.clone();
        if state != MachineState::Speculative {
            let reference = format!("host-{scrambled:010x}").into();
            machine.host = Some(Host { provider: self.provider.clone(), reference });
        }
        if let Some((cluster, attribution)) = bound {
            machine.cluster = Some(cluster.clone());
            machine.attribution = attribution.clone();
        }
        let idle_since = (state == MachineState::Idle).then_some(START);
        Event::Machine { machine: Arc::new(machine), facts: Facts { idle_since, ..Facts::default() } }
    }
}
