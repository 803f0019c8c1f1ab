//! The verdicts that a cycle has something to do for: what is unmet, and what gets machines.
//!
//! Of half a million verdicts hardly any is other than a cycle ago. Those that are not stay the same value in memory, so
//! that finding the others takes a look at pointers, and everything that a cycle does for verdicts follows these few.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_engine::{Shared, Verdict};
use bigfleet_types::NeedKey;

/// How far ahead a verdict is looked for that came or went in between.
const AHEAD: usize = 8;

/// The open verdicts, by key.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// All verdicts of the last cycle. As long as they live, none of their places in memory is another's.
    known: Shared<Arc<Verdict>>,
    rows: BTreeMap<NeedKey, Arc<Verdict>>,
}

/// Whether anybody waits for the Need, or something begins for it.
fn is_open(verdict: &Verdict) -> bool {
    !verdict.satisfied || verdict.bootstraps > 0 || verdict.provisions > 0
}

impl Open {
    /// The open verdicts, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Verdict>> {
        self.rows.values()
    }

    /// Takes in the verdicts of a cycle.
    pub(super) fn take_in(&mut self, verdicts: &Shared<Arc<Verdict>>) {
        let (old, new) = (&self.known[..], &verdicts[..]);
        if std::ptr::eq(old, new) {
            return;
        }
        let (mut gone, mut fresh) = (Vec::new(), Vec::new());
        let (mut left, mut right) = (0, 0);
        let same = |left: usize, right: usize| match (old.get(left), new.get(right)) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        while left < old.len() || right < new.len() {
            if same(left, right) {
                (left, right) = (left + 1, right + 1);
                continue;
            }
            // Whatever is missed here is taken out and put in again: it costs time and changes nothing.
            let came = (1..=AHEAD).find(|ahead| same(left, right + ahead));
            let went = (1..=AHEAD).find(|ahead| same(left + ahead, right));
            let (next_left, next_right) = match (came, went) {
                (Some(came), went) if went.is_none_or(|went| came <= went) => (left, right + came),
                (_, Some(went)) => (left + went, right),
                _ => ((left + 1).min(old.len()), (right + 1).min(new.len())),
            };
            gone.extend(&old[left..next_left]);
            fresh.extend(&new[right..next_right]);
            (left, right) = (next_left, next_right);
        }
        for verdict in gone.into_iter().filter(|verdict| is_open(verdict)) {
            self.rows.remove(&verdict.key);
        }
        for verdict in fresh.into_iter().filter(|verdict| is_open(verdict)) {
            self.rows.insert(verdict.key.clone(), verdict.clone());
        }
        self.known = verdicts.clone();
    }
}

#[cfg(test)]
mod tests {
    use bigfleet_engine::{Engine, Event, Policy};
    use bigfleet_types::{
        ClusterId, Group, Machine, MachineId, MachineState, Need, PenaltyBucket, Profile, ResourceName,
        Resources, UnixNanos,
    };
    use proptest::prelude::*;

    use super::*;

    fn row(priority: i32) -> Need {
        let zero = PenaltyBucket::ZERO;
        let one = Resources::from_amounts([(ResourceName::new("cpu"), 1000)]);
        Need {
            profile: Arc::new(Profile::new(Vec::new(), Vec::new(), priority, zero, zero)),
            aggregate: one.clone(),
            min_unit: one,
            group: Group::NONE,
            arrival: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Rows come and go, machines for some of them: after every decision the open verdicts are known.
        #[test]
        fn the_open_verdicts_are_those_that_are_open(
            steps in prop::collection::vec((prop::collection::btree_set(0..40i32, 0..40), 0..12usize), 1..16),
        ) {
            let mut engine = Engine::new(Policy::default());
            let mut open = Open::default();
            for (wanted, machines) in steps {
                let cluster = ClusterId::trusted("a");
                let rows = wanted.into_iter().map(row).collect();
                engine.apply(Event::Demand { cluster, rows, at: UnixNanos(1) });
                for number in 0..12 {
                    let id = MachineId::trusted(format!("m{number}"));
                    if number < machines {
                        let mut machine = Machine::new(id, MachineState::Idle);
                        machine.resources = row(0).aggregate;
                        let machine = Arc::new(machine);
                        engine.apply(Event::Machine { machine, facts: bigfleet_engine::Facts::default() });
                    } else {
                        engine.apply(Event::Removed(id));
                    }
                }
                let verdicts = engine.decide(UnixNanos(1)).verdicts;
                open.take_in(&verdicts);
                let mut expected: Vec<_> = verdicts.iter().filter(|v| is_open(v)).cloned().collect();
                expected.sort_by(|a, b| a.key.cmp(&b.key));
                prop_assert_eq!(open.iter().cloned().collect::<Vec<_>>(), expected);
            }
        }
    }
}
