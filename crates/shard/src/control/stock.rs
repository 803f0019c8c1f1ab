//! Machines by what they are, not which: counts for hints to operators. Everything that requirements can see, but for
//! the hostname of machines without one, is the same within a class.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bigfleet_types::{Machine, MachineState, NanoDollars};
use hashbrown::HashMap;

use super::record::Record;

/// A machine, compared by what requirements can see.
#[derive(Debug)]
struct Look(Arc<Machine>);

impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        let (left, right) = (&self.0, &other.0);
        left.instance_type == right.instance_type
            && left.zone == right.zone
            && left.capacity_type == right.capacity_type
            && left.labels == right.labels
    }
}

impl Eq for Look {}

impl Hash for Look {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.instance_type.hash(state);
        self.0.zone.hash(state);
        self.0.capacity_type.hash(state);
        self.0.labels.hash(state);
    }
}

/// One class.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) sample: Arc<Machine>,
    /// Idle machines by price.
    pub(super) idle: BTreeMap<NanoDollars, u32>,
    /// Slots by price.
    pub(super) speculative: BTreeMap<NanoDollars, u32>,
    /// Machines that will be one of these again: in transition or cooling down.
    pub(super) later: u32,
    members: u32,
}

/// All classes, numbered in the order of their first machine.
#[derive(Debug, Default)]
pub(super) struct Stock {
    numbers: HashMap<Look, usize>,
    classes: BTreeMap<usize, Class>,
    next: usize,
    /// Classes that lost their last machine, perhaps only for the moment.
    empty: BTreeSet<usize>,
}

impl Stock {
    /// Classes from a number on.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = (usize, &Class)> {
        self.classes.range(first..).map(|(number, class)| (*number, class))
    }

    pub(super) fn class(&self, number: usize) -> Option<&Class> {
        self.classes.get(&number)
    }

    /// The number of the next class.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Frees the classes without a machine.
    pub(super) fn sweep(&mut self) {
        for number in std::mem::take(&mut self.empty) {
            if let Some(class) = self.classes.remove(&number) {
                self.numbers.remove(&Look(class.sample));
            }
        }
    }

    /// Adds or takes away a record.
    pub(super) fn count(&mut self, record: &Record, add: bool) {
        let machine = &record.machine;
        let look = Look(machine.clone());
        let number = match self.numbers.get(&look) {
            Some(number) => *number,
            None => {
                let class = Class {
                    sample: machine.clone(),
                    idle: BTreeMap::new(),
                    speculative: BTreeMap::new(),
                    later: 0,
                    members: 0,
                };
                let number = self.next;
                self.next += 1;
                self.classes.insert(number, class);
                self.numbers.insert(look, number);
                number
            }
        };
        let Some(class) = self.classes.get_mut(&number) else { return };
        class.members = if add { class.members + 1 } else { class.members.saturating_sub(1) };
        if class.members == 0 {
            self.empty.insert(number);
        } else {
            self.empty.remove(&number);
        }
        let cools = record.cool_until.is_some();
        let prices = match machine.state {
            MachineState::Idle if !cools => &mut class.idle,
            MachineState::Speculative if !cools => &mut class.speculative,
            MachineState::Configured | MachineState::Failed => return,
            _ => {
                class.later = if add { class.later + 1 } else { class.later.saturating_sub(1) };
                return;
            }
        };
        let count = prices.entry(machine.price).or_default();
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            prices.remove(&machine.price);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigfleet_types::{MachineId, UnixNanos};

    fn record(kind: &str) -> Record {
        let mut machine = Machine::new(MachineId::trusted("m".to_owned()), MachineState::Idle);
        machine.instance_type = kind.into();
        Record::new(Arc::new(machine), UnixNanos(0), 0)
    }

    #[test]
    fn empty_classes_are_freed() {
        let mut stock = Stock::default();
        for n in 0..1000 {
            let record = record(&format!("type-{n}"));
            stock.count(&record, true);
            stock.count(&record, false);
            // Back before anyone looked: the class keeps its number.
            if n == 7 {
                stock.count(&record, true);
            }
            stock.sweep();
        }
        assert_eq!((stock.classes.len(), stock.numbers.len(), stock.empty.len()), (1, 1, 0));
        assert_eq!(stock.from(0).map(|(number, _)| number).collect::<Vec<_>>(), [7]);
        assert_eq!(stock.next(), 1000);
    }
}
