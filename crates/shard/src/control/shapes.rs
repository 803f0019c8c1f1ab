//! Slots that promise more than their hosts deliver.
//!
//! A Need that buys by the promise and counts by the delivery would buy and release for ever. So once a host joined
//! with less, the slots of its class are taken for the smallest host seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_types::{Machine, MachineState, Resources};

use super::record::StockClass;

/// The smallest host seen of each class that over-promised.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    smallest: BTreeMap<StockClass, Resources>,
}

fn smaller(left: &Resources, right: &Resources) -> Resources {
    Resources::from_amounts(
        left.iter().map(|(name, amount)| (name.clone(), amount.min(right.get(name.as_str())))),
    )
}

impl Shapes {
    /// A host turned up with `delivered` where `promised` was said. Gives whether slots of the class are to be
    /// taken for less than before.
    pub(crate) fn delivered(
        &mut self,
        class: StockClass,
        promised: &Resources,
        delivered: &Resources,
    ) -> bool {
        if delivered.covers(promised) {
            return false;
        }
        match self.smallest.get_mut(&class) {
            None => {
                self.smallest.insert(class, delivered.clone());
                true
            }
            Some(known) if delivered.covers(known) => false,
            Some(known) => {
                *known = smaller(known, delivered);
                true
            }
        }
    }

    /// How many classes over-promise.
    pub(crate) fn len(&self) -> usize {
        self.smallest.len()
    }

    /// The machine as the engine should see it.
    pub(crate) fn believable(&self, machine: &Arc<Machine>) -> Arc<Machine> {
        if machine.state != MachineState::Speculative || self.smallest.is_empty() {
            return machine.clone();
        }
        let class = (machine.instance_type.clone(), machine.zone.clone(), machine.capacity_type);
        match self.smallest.get(&class) {
            None => machine.clone(),
            Some(smallest) => {
                let mut lowered = Machine::clone(machine);
                lowered.allocatable = smaller(machine.capacity(), smallest);
                Arc::new(lowered)
            }
        }
    }
}
