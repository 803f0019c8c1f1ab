//! What gangs that are served are told of what is free: the only thing about them that others change.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::gang::{self, Choice};
use super::terrain;
use crate::demand::{Row, RowIx, compare};
use crate::intern::ValueIx;
use crate::lanes::Lanes;
use crate::ledger::Seat;
use crate::members::Slot;
use crate::pass::Pass;

/// What a row acquired.
pub(crate) type Acquisition<'a> = (RowIx, &'a Row, Vec<Slot>);

/// A served gang without a turn, which is told what is free.
pub(crate) struct Listener<'a> {
    pub(crate) seat: Seat,
    pub(crate) row: &'a Row,
    /// Settled in the first round.
    pub(crate) early: bool,
    pub(crate) choice: Box<Choice>,
    /// The candidates may be others than before.
    pub(crate) heard_news: bool,
}

/// Looks again, for served gangs that had no turn, at what was free when it would have been theirs. `acquisitions` are
/// those of the rows that had a turn, in precedence order. Call it when all have acquired what they acquire.
pub(crate) fn retell<'a>(
    pass: &mut Pass<'a>,
    acquisitions: &[Acquisition<'a>],
    listeners: &mut [Listener<'a>],
) {
    let symbols = pass.symbols;
    if !acquisitions.is_empty() {
        // Those of a cluster come in order.
        listeners.sort_by_cached_key(|Listener { row, early, .. }| {
            (row.precedence, !early, row.arrival, symbols.rank(row.cluster))
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
    for Listener { row, early, choice, heard_news, .. } in listeners {
        let is_before = |acquirer: &Row| match acquirer.precedence.cmp(&row.precedence) {
            // Nobody acquires in the first round.
            Ordering::Equal => !*early && compare(symbols, acquirer, row).is_lt(),
            order => order.is_lt(),
        };
        while let Some(acquisition) = acquisitions.next_if(|(_, acquirer, _)| is_before(acquirer)) {
            claim(pass, acquisition);
        }
        *heard_news = tell(pass, row, choice);
    }
    acquisitions.for_each(|acquisition| claim(pass, acquisition));
}

/// Says whether there is anything new.
fn tell(pass: &mut Pass<'_>, row: &Row, choice: &mut Choice) -> bool {
    pass.matching.look(row.profile, &pass.fleet.classes);
    let Some(key) = pass.matching.same(row.profile) else { return false };
    let (sight, mut terrain) = terrain::borrow(pass, row, key);
    terrain.prepare(&row.aggregate);
    let values = choice.had.iter().map(|(value, _)| *value);
    let is_new = !terrain.is_as_of(choice.told_at, &row.aggregate, values, gang::TOLD);
    if is_new {
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
    is_new
}
