//! The floor guarantee: some machine of a Need is as large as its largest pod, or one such is acquired.

use bigfleet_types::MachineState;

use super::{First, Work, credit};
use crate::demand::Row;
use crate::lanes::Sum;
use crate::members::Slot;
use crate::pass::{Pass, Step};

/// Runs after the credit walk, whether that covered the Need or not. `own`: how many machines the walk claimed in the
/// first round. Gives these.
pub(super) fn guarantee(pass: &mut Pass<'_>, row: &Row, own: usize, work: &mut Work) -> First {
    if work.floor_met || row.min_unit.is_zero() {
        return First::Of(own);
    }
    let first = First::Others(work.credited[..own].into());
    match claim_first_that_covers(pass, row, work) {
        // Smaller machines make room, but never for one that does not run yet.
        Some(slot) if pass.fleet.state(slot) == MachineState::Configured => release_surplus(pass, row, work),
        Some(_) => {}
        None => {
            work.remaining.raise(&row.min_unit);
            return First::Of(own);
        }
    }
    first
}

/// Credits the first unclaimed machine of the walk that covers the floor, whether it is otherwise needed or not.
fn claim_first_that_covers(pass: &mut Pass<'_>, row: &Row, work: &mut Work) -> Option<Slot> {
    for part in credit::Part::ALL {
        if part == credit::Part::OwnBound {
            if let Some((slot, pool)) = credit::first_large(pass, row) {
                work.credit(pass, row, slot, pool);
                return Some(slot);
            }
            continue;
        }
        let pools = credit::pools(pass, row, part, None);
        let mut found = None;
        pass.walk(&pools, |pass, slot, pool| {
            if !pass.fleet.classes.capacity(pass.fleet.class_of(pool)).covers(&row.min_unit) {
                return Step::SkipPool;
            }
            found = Some((slot, pool));
            Step::Stop
        });
        if let Some((slot, pool)) = found {
            work.credit(pass, row, slot, pool);
            return Some(slot);
        }
    }
    None
}

/// Gives back each machine credited before the last one, last first, without which the rest still covers the Need.
fn release_surplus(pass: &mut Pass<'_>, row: &Row, work: &mut Work) {
    let Some(floor) = work.credited.pop() else { return };
    let mut sum = Sum::default();
    sum.add(&row.worth(pass.fleet.capacity(floor)));
    work.credited.iter().for_each(|slot| sum.add(&row.worth(pass.fleet.capacity(*slot))));
    let mut kept = Vec::with_capacity(work.credited.len() + 1);
    for slot in work.credited.drain(..).rev() {
        if sum.spare(&row.worth(pass.fleet.capacity(slot)), &row.aggregate) {
            pass.unclaim(slot);
        } else {
            kept.push(slot);
        }
    }
    kept.reverse();
    kept.push(floor);
    work.credited = kept;
}
