//! Trim: cheapest first takes small machines before the one that would have sufficed; those go again.

use crate::demand::Row;
use crate::lanes::{Lanes, Sum};
use crate::members::Slot;
use crate::pass::Pass;

/// Removes from `taken` each machine, last taken first, without which the rest still covers what was missing. Gives
/// the removed ones.
pub(crate) fn surplus(pass: &Pass<'_>, row: &Row, missing: &Lanes, taken: &mut Vec<Slot>) -> Vec<Slot> {
    let mut sum = Sum::default();
    taken.iter().for_each(|slot| sum.add(&row.worth(pass.fleet.capacity(*slot))));
    let (mut kept, mut removed) = (Vec::with_capacity(taken.len()), Vec::new());
    for slot in taken.drain(..).rev() {
        let superfluous = sum.spare(&row.worth(pass.fleet.capacity(slot)), missing);
        if superfluous { removed.push(slot) } else { kept.push(slot) }
    }
    kept.reverse();
    *taken = kept;
    removed
}
