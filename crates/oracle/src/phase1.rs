//! Phase 1: credit, then acquire (engine.md 8).

use std::collections::BTreeMap;

use bigfleet_types::MachineState;

use crate::amounts::Amounts;
use crate::pass::{Part, Pass};

impl Pass<'_> {
    /// engine.md 8.1: Needs of equal precedence in two rounds, so that none takes a machine that serves its equal.
    pub(crate) fn phase1(&mut self) {
        let mut start = 0;
        while start < self.rows.len() {
            let precedence = self.rows[start].precedence();
            let equals = self.rows[start..].iter().take_while(|row| row.precedence() == precedence).count();
            let group = start..start + equals;
            for row in group.clone() {
                self.round1(row);
            }
            for row in group {
                self.round2(row);
            }
            start += equals;
        }
    }

    fn round1(&mut self, row: usize) {
        let is_gang = self.rows[row].same_key().is_some();
        if self.rows[row].aggregate.is_zero() {
            self.progress[row].settled = true;
            self.progress[row].same_satisfiable = is_gang;
        } else if !is_gang {
            for unit in self.walk(row) {
                if self.part(row, unit) == Some(Part::OwnBound) {
                    self.credit(row, unit);
                }
            }
        } else if self.own_machines_suffice(row) {
            self.settle_gang(row);
        }
    }

    fn round2(&mut self, row: usize) {
        if self.progress[row].settled {
            return;
        }
        if self.rows[row].same_key().is_some() {
            return self.settle_gang(row);
        }
        for unit in self.walk(row) {
            self.credit(row, unit);
        }
        self.guarantee_floor(row);
        self.acquire(row, None, true);
    }

    /// Whether the gang's own bound machines in one domain cover it.
    fn own_machines_suffice(&self, row: usize) -> bool {
        let Some(key) = self.rows[row].same_key() else { return false };
        let mut domains: BTreeMap<&str, Amounts> = BTreeMap::new();
        for unit in self.all_units() {
            if self.creditable(row, unit) == Some(Part::OwnBound)
                && let Some(value) = self.units[unit].domain(key)
            {
                let sum = domains.entry(value).or_default();
                *sum = sum.add(&self.contribution(row, unit));
            }
        }
        domains.values().any(|sum| sum.covers(&self.rows[row].aggregate))
    }

    /// Claims a bound or Creating machine if something is missing that it has (engine.md 8.2, progress).
    pub(crate) fn credit(&mut self, row: usize, unit: usize) {
        let worth = self.contribution(row, unit);
        if worth.lessens(&self.progress[row].remaining) {
            self.claims.insert(unit, row);
            let progress = &mut self.progress[row];
            progress.credited.push(unit);
            progress.remaining = progress.remaining.minus(&worth);
        }
    }

    /// engine.md 8.2, floor guarantee: some machine of the Need is as large as its largest pod.
    fn guarantee_floor(&mut self, row: usize) {
        let (floor, aggregate) = (self.rows[row].min_unit.clone(), self.rows[row].aggregate.clone());
        if floor.is_zero() || self.progress[row].credited.iter().any(|unit| self.covers_floor(row, *unit)) {
            return;
        }
        let Some(large) = self.walk(row).into_iter().find(|unit| self.covers_floor(row, *unit)) else {
            let progress = &mut self.progress[row];
            progress.remaining = progress.remaining.max(&floor);
            return;
        };
        let credited = self.progress[row].credited.clone();
        let mut kept: Vec<usize> = credited.iter().copied().chain([large]).collect();
        self.claims.insert(large, row);
        if self.units[large].state() == MachineState::Configured {
            kept = self.without_surplus(row, kept, &credited, &aggregate);
            self.claims.retain(|unit, _| kept.contains(unit) || !credited.contains(unit));
        }
        let remaining = aggregate.minus(&self.sum(row, kept.iter().copied()));
        self.progress[row].credited = kept;
        self.progress[row].remaining = remaining;
    }

    /// engine.md 8.1.2 and 11: the cheapest machine that helps and keeps the spread, again and again; Idle ones first,
    /// Speculative ones only if the Need may provision. Then the trim of 8.4.
    pub(crate) fn acquire(&mut self, row: usize, domain: Option<&str>, provision: bool) {
        let missing = self.progress[row].remaining.clone();
        while !self.progress[row].remaining.is_zero() {
            let best = self
                .all_units()
                .filter(|unit| self.units[*unit].is_acquirable() && !self.is_claimed(*unit))
                .filter(|unit| provision || self.units[*unit].state() == MachineState::Idle)
                .filter(|unit| self.is_suitable(row, *unit) && self.is_in(row, *unit, domain))
                .filter(|unit| self.contribution(row, *unit).lessens(&self.progress[row].remaining))
                .filter(|unit| self.keeps_spread(row, *unit, &[]))
                .min_by_key(|unit| self.acquisition_order(row, *unit));
            let Some(unit) = best else { return };
            let worth = self.contribution(row, unit);
            self.claims.insert(unit, row);
            let progress = &mut self.progress[row];
            progress.acquired.push(unit);
            progress.remaining = progress.remaining.minus(&worth);
        }
        if self.spread_terms(row).is_empty() {
            let acquired = self.progress[row].acquired.clone();
            let kept = self.without_surplus(row, acquired.clone(), &acquired, &missing);
            self.claims.retain(|unit, _| kept.contains(unit) || !acquired.contains(unit));
            self.progress[row].acquired = kept;
        }
    }
}
