//! Gangs preempt all or nothing, and may move to another domain for it (engine.md 12.5).

use std::collections::BTreeSet;

use bigfleet_types::MachineState;

use crate::amounts::Amounts;
use crate::pass::{Part, Pass};

/// A domain that preemption would complete.
struct Move {
    have: Vec<usize>,
    victims: Vec<usize>,
}

impl Pass<'_> {
    /// The recorded domain if its victims cover the deficit; else the domain that costs the fewest victims; else
    /// nothing at all.
    pub(crate) fn preempt_for_gang(&mut self, row: usize, deficit: Amounts) {
        let recorded = self.progress[row].domain.clone();
        if let Some(domain) = &recorded {
            let (picks, left) = self.pick(row, deficit.clone(), &[], Some(domain));
            if left.is_zero() {
                self.victims.extend(&picks);
                self.progress[row].victims = picks;
                return;
            }
        }
        let others = self.values(row).into_iter().filter(|value| Some(value) != recorded.as_ref());
        let moves = others.filter_map(|value| Some((value.clone(), self.try_move(row, &value)?)));
        let claimed = |move_: &Move| move_.victims.iter().filter(|unit| self.is_claimed(**unit)).count();
        let best = moves.min_by_key(|(value, m)| (claimed(m), m.victims.len(), value.clone()));
        match best {
            Some((_, best)) => self.make_move(row, best),
            None => self.progress[row].unresolved = Some(deficit),
        }
    }

    /// Every value of the gang's key that a matching machine carries.
    fn values(&self, row: usize) -> BTreeSet<String> {
        let need = &self.rows[row];
        let matching = self.units.iter().filter(|unit| need.matches(unit));
        matching.filter_map(|unit| unit.domain(need.same_key()?)).map(str::to_owned).collect()
    }

    /// What the gang would have in another domain, and the victims that complete it; `None` if none do.
    fn try_move(&self, row: usize, value: &str) -> Option<Move> {
        let have: Vec<usize> = self
            .all_units()
            .filter(|unit| self.is_in(row, *unit, Some(value)) && self.is_had(row, *unit))
            .collect();
        let gap = self.rows[row].aggregate.minus(&self.sum(row, have.iter().copied()));
        let (victims, left) = self.pick(row, gap, &[], Some(value));
        left.is_zero().then_some(Move { have, victims })
    }

    /// engine.md 12.5.2: the machine is the gang's for the taking.
    fn is_had(&self, row: usize, unit: usize) -> bool {
        let (need, of) = (&self.rows[row], &self.units[unit]);
        if !need.matches(of) || self.reserved.contains(&unit) || self.victims.contains(&unit) {
            return false;
        }
        let fits = self.covers_floor(row, unit);
        let outranked = |by: &usize| self.rows[*by].precedence() > need.precedence();
        match of.state() {
            MachineState::Idle | MachineState::Speculative => {
                of.is_acquirable() && fits && !self.is_claimed(unit)
            }
            MachineState::Draining => {
                fits && !self.used_drains.contains(&unit) && self.drain_part(row, unit).is_some()
            }
            _ => {
                let usable = match self.part(row, unit) {
                    Some(Part::OwnBound | Part::OwnCreating) => true,
                    Some(Part::Orphan | Part::Sibling) => fits,
                    Some(Part::CreatingForUnknown) | None => false,
                };
                usable && of.facts.eligibility.creditable && self.claims.get(&unit).is_none_or(outranked)
            }
        }
    }

    /// engine.md 12.5.3: keeps the new domain for the gang and gives back what it took in the old one.
    fn make_move(&mut self, row: usize, to: Move) {
        let drains = to.have.iter().filter(|unit| self.units[**unit].state() == MachineState::Draining);
        self.used_drains.extend(drains);
        self.reserved.extend(&to.have);
        self.victims.extend(&to.victims);
        for unit in std::mem::take(&mut self.progress[row].acquired) {
            self.claims.remove(&unit);
        }
        let credited = self.sum(row, self.progress[row].credited.iter().copied());
        self.progress[row].remaining = self.rows[row].aggregate.minus(&credited);
        self.progress[row].victims = to.victims;
    }
}
