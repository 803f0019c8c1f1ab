//! What became of rows: their outcomes in the books, their verdicts in precedence order.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::{Ledger, Seat, Spot, set};
use crate::ahead;
use crate::decision::Verdict;
use crate::demand::{Demand, Row};
use crate::intern::Symbols;
use crate::phase1::Outcome;
use crate::verdict;

impl Ledger {
    /// Takes in what became of rows, those with a turn in precedence order.
    pub(crate) fn record<'a>(
        &mut self,
        found: impl Iterator<Item = (Seat, &'a Row, Outcome, Verdict)>,
        symbols: &Symbols,
    ) {
        let mut fresh: Vec<(Seat, &Row, Arc<Verdict>)> = Vec::new();
        for (seat, row, outcome, verdict) in found {
            let book = &mut self.books[seat.cluster.at()];
            if book.take(seat.at, row, outcome) {
                self.rekinded.push(seat.cluster);
            }
            match book.positions[seat.at as usize] {
                Some(position) => {
                    let known = &self.verdicts[position as usize];
                    // Rows that are as they were share their Need.
                    if !Arc::ptr_eq(&known.need, &verdict.need) || **known != verdict {
                        let known = &mut Arc::make_mut(&mut self.verdicts.0)[position as usize];
                        self.replaced.verdicts.push(std::mem::replace(known, Arc::new(verdict)));
                    }
                }
                None => fresh.push((seat, row, Arc::new(verdict))),
            }
        }
        if !fresh.is_empty() || !self.gone.is_empty() {
            self.rearrange(fresh, symbols);
        }
        self.rekinded.sort_unstable();
        self.rekinded.dedup();
        for cluster in self.rekinded.drain(..) {
            let book = &mut self.books[cluster.at()];
            book.find_told();
            let open = book.kinds().any(|kind| kind.is_open);
            let entangled = book.kinds().any(|kind| kind.is_open && kind.has_choice);
            let telling = !book.told.is_empty();
            set(&mut self.open, cluster, open);
            set(&mut self.entangled, cluster, entangled);
            set(&mut self.telling, cluster, telling);
        }
    }

    /// Says of rows that want something else, and yet keep what they have, what they want now. Call it when all others
    /// are recorded.
    pub(crate) fn refresh(&mut self, demand: &Demand) {
        if self.standing.is_empty() {
            return;
        }
        let verdicts = Arc::make_mut(&mut self.verdicts.0);
        for chunk in self.standing.chunks(ahead::MANY) {
            let position = |seat: Seat| self.books[seat.cluster.at()].positions[seat.at as usize];
            let rows = || chunk.iter().filter_map(|(seat, ix)| Some((position(*seat)?, demand.row(*ix)?)));
            for (position, row) in rows() {
                ahead::fetch_count(&row.need);
                ahead::fetch_count(&verdicts[position as usize]);
                ahead::fetch(verdicts[position as usize].satisfied);
            }
            for (position, row) in rows() {
                let verdict = Arc::make_mut(&mut verdicts[position as usize]);
                self.replaced.needs.extend(verdict::renew(verdict, row));
            }
        }
        self.standing.clear();
    }

    /// Takes out the verdicts that are gone and puts in those of new rows, which are in order.
    fn rearrange(&mut self, fresh: Vec<(Seat, &Row, Arc<Verdict>)>, symbols: &Symbols) {
        self.gone.sort_unstable();
        let (mut from, end) = (0, u32::try_from(self.order.len()).unwrap_or(u32::MAX));
        let before: Vec<u32> = fresh
            .iter()
            .map(|(_, row, _)| {
                let known = |at: u32| (&self.order[at as usize], &*self.verdicts[at as usize]);
                from = first_that(from..end, |at| seen_from(row, known(at), symbols).is_gt());
                from
            })
            .collect();
        let number = self.order.len() + fresh.len() - self.gone.len();
        let (mut verdicts, mut order) = (Vec::with_capacity(number), Vec::with_capacity(number));
        let known = Arc::unwrap_or_clone(std::mem::take(&mut self.verdicts.0));
        let mut known = (0..).zip(known.into_iter().zip(std::mem::take(&mut self.order))).peekable();
        let mut gone = self.gone.iter().copied().peekable();
        let mut position = 0;
        for (before, new) in before.into_iter().zip(fresh.into_iter().map(Some)).chain([(end, None)]) {
            while let Some((was, (verdict, spot))) = known.next_if(|(was, _)| *was < before) {
                if gone.next_if_eq(&was).is_some() {
                    continue;
                }
                if was != position {
                    self.books[spot.seat.cluster.at()].positions[spot.seat.at as usize] = Some(position);
                }
                verdicts.push(verdict);
                order.push(spot);
                position += 1;
            }
            if let Some((seat, row, verdict)) = new {
                self.books[seat.cluster.at()].positions[seat.at as usize] = Some(position);
                verdicts.push(verdict);
                order.push(Spot { seat, precedence: row.precedence, arrival: row.arrival });
                position += 1;
            }
        }
        (self.verdicts, self.order) = (verdicts.into(), order);
    }
}

/// The first number of a range that is behind; the end if none is. Those that are stand last.
fn first_that(range: Range<u32>, is_behind: impl Fn(u32) -> bool) -> u32 {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if is_behind(middle) {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    start
}

/// Where another row is in the order of Needs, seen from this one.
pub(super) fn seen_from(row: &Row, (spot, verdict): (&Spot, &Verdict), symbols: &Symbols) -> Ordering {
    let Verdict { key, gangs, .. } = verdict;
    let ranks = || symbols.rank(spot.seat.cluster).cmp(&symbols.rank(row.cluster));
    let own = || (row.need.profile.fingerprint(), &row.need.group, row.gangs.is_some());
    (spot.precedence, spot.arrival)
        .cmp(&(row.precedence, row.arrival))
        .then_with(ranks)
        .then_with(|| (key.fingerprint, &key.group, !gangs.is_empty()).cmp(&own()))
}
