//! What gangs that are served are told of what is free: the only thing about them that others change.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::gang::{self, Choice};
use super::{Outcome, terrain};
use crate::demand::{Row, RowIx, compare};
use crate::intern::ValueIx;
use crate::lanes::Lanes;
use crate::ledger::Seat;
use crate::members::Slot;
use crate::pass::Pass;

/// What a row acquired.
pub(crate) type Acquisition<'a> = (RowIx, &'a Row, Vec<Slot>);

/// Looks again, for served gangs that had no turn, at what was free when it would have been theirs. `acquisitions` are
/// those of the rows that had a turn, in precedence order. Call it when all have acquired what they acquire.
pub(crate) fn retell<'a>(
    pass: &mut Pass<'a>,
    acquisitions: &[Acquisition<'a>],
    mut gangs: Vec<(Seat, &'a Row, &mut Outcome)>,
) {
    let symbols = pass.symbols;
    if !acquisitions.is_empty() {
        gangs.sort_by_cached_key(|(seat, row, outcome)| {
            (row.precedence, !outcome.early, row.arrival(), symbols.rank(seat.cluster), seat.at)
        });
    }
    for slot in acquisitions.iter().flat_map(|(.., slots)| slots) {
        pass.unclaim(*slot);
    }
    let mut acquisitions = acquisitions.iter().peekable();
    let claim = |pass: &mut Pass<'a>, (ix, _, slots): &Acquisition<'a>| {
        pass.serve(*ix);
        slots.iter().for_each(|slot| pass.claim(*slot));
    };
    for (_, row, outcome) in gangs {
        let is_before = |acquirer: &Row| match acquirer.precedence.cmp(&row.precedence) {
            // Nobody acquires in the first round.
            Ordering::Equal => !outcome.early && compare(symbols, acquirer, row).is_lt(),
            order => order.is_lt(),
        };
        while let Some(acquisition) = acquisitions.next_if(|(_, acquirer, _)| is_before(acquirer)) {
            claim(pass, acquisition);
        }
        if let Some(choice) = &mut outcome.choice {
            tell(pass, row, choice);
        }
    }
    acquisitions.for_each(|acquisition| claim(pass, acquisition));
}

fn tell(pass: &mut Pass<'_>, row: &Row, choice: &mut Choice) {
    pass.matching.look(row.profile, &pass.fleet.classes);
    let Some(key) = pass.matching.same(row.profile) else { return };
    let (sight, mut terrain) = terrain::borrow(pass, row, key);
    terrain.prepare(&row.aggregate);
    let values = choice.had.iter().map(|(value, _)| *value);
    if !terrain.is_as_of(choice.told_at, &row.aggregate, values, gang::TOLD) {
        let mut ours: SmallVec<[(ValueIx, Lanes); 4]> = choice.had.iter().cloned().collect();
        for (value, total) in &mut ours {
            terrain.free(*value).into_iter().for_each(|free| total.add(&free.total));
        }
        let ours: SmallVec<[(ValueIx, &Lanes); 4]> =
            ours.iter().map(|(value, total)| (*value, total)).collect();
        choice.candidates = gang::tell(pass, &mut terrain, &ours, &row.aggregate);
        choice.told_at = terrain.moment();
    }
    terrain::give_back(pass, sight, terrain);
}
