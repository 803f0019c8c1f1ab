//! Topology spread (engine.md 11).

use std::collections::BTreeSet;

use bigfleet_types::{MachineState, SpreadTerm, WhenUnsatisfiable::DoNotSchedule, keys};

use crate::pass::{Part, Pass};

impl Pass<'_> {
    /// The terms that are enforced: none for a gang (engine.md 9, Same beats spread), never the hostname (5).
    pub(crate) fn spread_terms(&self, row: usize) -> Vec<&SpreadTerm> {
        let row = &self.rows[row];
        let enforced = |term: &&SpreadTerm| {
            term.when_unsatisfiable == DoNotSchedule && &*term.topology_key != keys::HOSTNAME
        };
        let terms = row.profile.spread().iter().filter(enforced);
        if row.same_key().is_some() { Vec::new() } else { terms.collect() }
    }

    /// Whether one more machine passes every term. `coming` (pending drains and earlier victims) counts as if it
    /// were the Need's already, and its domains exist.
    pub(crate) fn keeps_spread(&self, row: usize, unit: usize, coming: &[usize]) -> bool {
        let progress = &self.progress[row];
        self.spread_terms(row).into_iter().all(|term| {
            let domain = |unit: usize| self.units[unit].domain(&term.topology_key);
            let Some(own) = domain(unit) else { return false };
            let mut universe = self.universe(row, &term.topology_key);
            universe.extend(coming.iter().filter_map(|unit| domain(*unit)).chain([own]));
            let machines = || progress.credited.iter().chain(&progress.acquired).chain(coming);
            let count = |value: &str| machines().filter(|m| domain(**m) == Some(value)).count();
            let fewest = universe.iter().map(|value| count(value)).min().unwrap_or(0);
            let skew = usize::try_from(term.max_skew.max(1)).unwrap_or(1);
            count(own) < fewest + skew
        })
    }

    /// Every value that a suitable machine carries that is Idle, Speculative, bound to the cluster or the Need's own
    /// Creating, claimed or not.
    fn universe(&self, row: usize, key: &str) -> BTreeSet<&str> {
        let counts = |unit: usize| match self.units[unit].state() {
            MachineState::Idle | MachineState::Speculative => true,
            _ => self.part(row, unit).is_some_and(|part| part != Part::CreatingForUnknown),
        };
        self.all_units()
            .filter(|unit| counts(*unit) && self.is_suitable(row, *unit))
            .filter_map(|unit| self.units[unit].domain(key))
            .collect()
    }
}
