//! The phase asked once more, for an explanation.

use super::{Taken, Victims, drains, score};
use crate::demand::Row;
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::{Domain, Pass};
use crate::phase1::Outcome;
use crate::place::Place;
use crate::policy::Policy;

/// The victims that one row had to pick from.
pub(crate) struct Again {
    victims: Victims,
    /// What the rows in front of it took.
    taken: Taken,
    /// Where a gang preempts.
    domain: Option<Domain>,
    deficit: Lanes,
}

impl Again {
    /// `pass` has the claims of Phase 1.
    pub(crate) fn new(pass: &Pass<'_>, outcomes: &[Outcome], position: usize, heard: &[bool]) -> Self {
        let (row, outcome) = (pass.rows[position], &outcomes[position]);
        let mut taken = Taken::default();
        for before in &outcomes[..position] {
            taken.victims.extend(before.victims().iter().map(|slot| (*slot, 0)));
            taken.reserved.extend(before.reserved());
        }
        let domain = outcome.victims().first().and_then(|slot| {
            let key = pass.matching.same(row.profile)?;
            let value = pass.fleet.classes.domain(pass.fleet.class(*slot), key)?;
            Some(Domain { key, value })
        });
        let recorded = outcome.choice.as_ref().and_then(|choice| choice.domain);
        let moves = domain.is_some() && domain != recorded;
        let mut deficit = if moves { row.aggregate.clone() } else { outcome.residual.clone() };
        let have = if moves { outcome.reserved() } else { outcome.drains() };
        have.iter().for_each(|slot| deficit.subtract(&row.worth(pass.fleet.capacity(*slot))));
        Self { victims: Victims::below(pass, row.need.profile.priority(), heard), taken, domain, deficit }
    }

    /// Whom the row would preempt without these machines.
    pub(crate) fn pick(
        &mut self,
        pass: &Pass<'_>,
        position: usize,
        outcome: &Outcome,
        barred: &[Slot],
        policy: &Policy,
    ) -> Vec<Slot> {
        let row = pass.rows[position];
        let was_free: Vec<Slot> = barred.iter().copied().filter(|slot| !self.taken.has(*slot)).collect();
        self.taken.reserved.extend(&was_free);
        let deficit = self.deficit.clone();
        let pick = if self.domain.is_some() {
            self.victims.pick(pass, row, self.domain, None, deficit, &self.taken, policy)
        } else {
            self.victims.pick_plain(pass, row, outcome, deficit, &self.taken, policy)
        };
        was_free.iter().for_each(|slot| {
            self.taken.reserved.remove(slot);
        });
        self.victims.rewind();
        // A gang preempts all or nothing.
        if self.domain.is_some() && !pick.left.is_zero() { Vec::new() } else { pick.slots }
    }
}

/// Whether a row may count on a machine that drains here.
pub(crate) fn may_count_on(row: &Row, is_gang: bool, place: Place) -> bool {
    drains::part(row, is_gang, place).is_some()
}

/// How good a victim a machine of this effective priority is.
pub(crate) fn score_of(pass: &Pass<'_>, slot: Slot, row: &Row, priority: i32, policy: &Policy) -> i128 {
    match pass.fleet.place(pass.fleet.pool(slot)) {
        Place::Bound(binding) => score::score(
            &policy.victims,
            row.need.profile.priority(),
            priority,
            binding.interruption,
            binding.reclamation,
        ),
        _ => 0,
    }
}
