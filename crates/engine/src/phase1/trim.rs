//! Trim: cheapest first takes small machines before the one that would have sufficed; those go again.

use crate::lanes::{Lanes, Sum};
use crate::members::Slot;
use crate::pass::Pass;

/// Gives back each newly acquired machine, last taken first, without which the rest still covers what was missing.
pub(super) fn drop_surplus(pass: &mut Pass<'_>, missing: &Lanes, taken: &mut Vec<Slot>) {
    let mut sum = Sum::default();
    taken.iter().for_each(|slot| sum.add(pass.fleet.capacity(*slot)));
    let mut kept = Vec::with_capacity(taken.len());
    for slot in taken.drain(..).rev() {
        if sum.spare(pass.fleet.capacity(slot), missing) {
            pass.unclaim(slot);
        } else {
            kept.push(slot);
        }
    }
    kept.reverse();
    *taken = kept;
}
