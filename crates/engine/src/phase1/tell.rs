//! What gangs that are served are told of what is free: the only thing about them that others change.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::gang::{self, Choice};
use super::terrain::{self, Sight, Terrain};
use crate::demand::{Row, RowIx, compare};
use crate::intern::{Symbols, ValueIx};
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

impl Listener<'_> {
    /// How many of the acquisitions, which are in precedence order, come before it.
    fn number_before(&self, acquisitions: &[Acquisition<'_>], symbols: &Symbols) -> usize {
        let Self { row, early, .. } = self;
        acquisitions.partition_point(|(_, acquirer, _)| match acquirer.precedence.cmp(&row.precedence) {
            // Nobody acquires in the first round.
            Ordering::Equal => !*early && compare(symbols, acquirer, row).is_lt(),
            order => order.is_lt(),
        })
    }
}

/// Looks again, for served gangs that had no turn, at what was free when it would have been theirs. `acquisitions` are
/// those of the rows that had a turn, in precedence order. Call it when all have acquired what they acquire.
pub(crate) fn retell<'a>(
    pass: &mut Pass<'a>,
    acquisitions: &[Acquisition<'a>],
    listeners: &mut [Listener<'a>],
) {
    for slot in acquisitions.iter().flat_map(|(.., slots)| slots) {
        pass.unclaim(*slot);
    }
    // Those to which the same is free, and of these those that match the same.
    let key = |of: &Listener<'_>| (of.number_before(acquisitions, pass.symbols), of.row.profile);
    let mut order: Vec<_> = (0..).zip(&*listeners).map(|(at, listener)| (key(listener), at)).collect();
    order.sort_unstable();
    let mut claimed = 0;
    let mut claim_up_to = |pass: &mut Pass<'a>, number: usize| {
        for (ix, _, slots) in &acquisitions[claimed..number] {
            pass.serve(*ix);
            slots.iter().for_each(|slot| pass.claim(*slot));
        }
        claimed = number;
    };
    for equals in order.chunk_by(|(a, _), (b, _)| a == b) {
        let [((number, profile), _), ..] = equals else { continue };
        claim_up_to(pass, *number);
        pass.matching.look(*profile, &pass.fleet.classes);
        let Some(key) = pass.matching.same(*profile) else { continue };
        let mut known: Option<(Sight, Box<Terrain>)> = None;
        for (_, at) in equals {
            let Listener { row, choice, heard_news, .. } = &mut listeners[*at];
            if let Some((sight, terrain)) = known.take_if(|(sight, _)| !terrain::is_that_of(sight, row)) {
                terrain::give_back(pass, sight, terrain);
            }
            let (_, terrain) = known.get_or_insert_with(|| terrain::borrow(pass, row, key));
            terrain.prepare(&row.aggregate);
            *heard_news = tell(pass, terrain, row, choice);
        }
        if let Some((sight, terrain)) = known {
            terrain::give_back(pass, sight, terrain);
        }
    }
    claim_up_to(pass, acquisitions.len());
}

/// Says whether there is anything new. The terrain is ready for what the row wants.
fn tell(pass: &Pass<'_>, terrain: &mut Terrain, row: &Row, choice: &mut Choice) -> bool {
    let values = choice.had.iter().map(|(value, _)| *value);
    if terrain.is_as_of(choice.told_at, &row.aggregate, values, gang::TOLD) {
        return false;
    }
    let mut ours: SmallVec<[(ValueIx, Lanes); 4]> = choice.had.iter().cloned().collect();
    for (value, total) in &mut ours {
        terrain.free(*value).into_iter().for_each(|free| total.add(&free.total));
    }
    let ours: SmallVec<[(ValueIx, &Lanes); 4]> = ours.iter().map(|(value, total)| (*value, total)).collect();
    choice.candidates = gang::tell(pass, terrain, &ours, &row.aggregate);
    choice.told_at = terrain.moment();
    true
}
