//! Phase 1: every Need, in precedence order, is credited with machines that it has and acquires what it lacks.
//!
//! Needs of equal precedence take two rounds, so that none takes a machine that serves an equal.

mod acquire;
mod credit;
mod floor;
mod trim;

use bigfleet_types::MachineState;

use crate::demand::Row;
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::Pass;

/// What Phase 1 found for one row.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What is missing; no positive lane when satisfied.
    pub(crate) residual: Lanes,
    /// Bound and in-flight machines claimed.
    pub(crate) credited: usize,
    /// Free machines claimed, in the order of acquisition.
    pub(crate) acquired: Vec<Slot>,
}

/// A row on its way through the two rounds.
#[derive(Debug)]
struct Work {
    remaining: Lanes,
    /// In the order of the walk.
    credited: Vec<Slot>,
    /// One of these is as large as the largest pod.
    floor_met: bool,
}

impl Work {
    /// Claims a machine as credit.
    fn credit(&mut self, pass: &mut Pass<'_>, row: &Row, slot: Slot) {
        pass.claim(slot);
        let capacity = pass.fleet.capacity(slot);
        self.remaining.subtract(capacity);
        self.floor_met = self.floor_met || capacity.covers(&row.min_unit);
        self.credited.push(slot);
    }
}

/// Runs the phase: one outcome per row, in precedence order.
pub(crate) fn run(pass: &mut Pass<'_>) -> Vec<Outcome> {
    let rows: Vec<&Row> = pass.demand.in_order().collect();
    let mut outcomes = Vec::with_capacity(rows.len());
    for equals in rows.chunk_by(|a, b| a.need.precedence() == b.need.precedence()) {
        let first_round: Vec<_> = equals.iter().map(|row| keep_own(pass, row)).collect();
        for (row, work) in equals.iter().zip(first_round) {
            outcomes.push(settle(pass, row, work));
        }
    }
    outcomes
}

/// The first round: own bound machines until they cover the Need.
fn keep_own(pass: &mut Pass<'_>, row: &Row) -> Work {
    let mut work = Work { remaining: row.aggregate.clone(), credited: Vec::new(), floor_met: false };
    if row.unsupported.is_none() {
        pass.matching.look(row.profile, &pass.fleet.classes);
        credit::own_bound(pass, row, &mut work);
    }
    work
}

/// The second round: the rest of the credit walk, then acquisition.
fn settle(pass: &mut Pass<'_>, row: &Row, mut work: Work) -> Outcome {
    let mut acquired = Vec::new();
    if row.unsupported.is_none() && !row.aggregate.is_zero() {
        credit::others(pass, row, &mut work);
        floor::guarantee(pass, row, &mut work);
        acquired = acquire::acquire(pass, row, &mut work);
    }
    Outcome { residual: work.remaining, credited: work.credited.len(), acquired }
}

impl Outcome {
    /// How many of the acquired machines were in this state.
    pub(crate) fn acquired_from(&self, pass: &Pass<'_>, state: MachineState) -> usize {
        self.acquired.iter().filter(|slot| pass.fleet.state(**slot) == state).count()
    }
}
