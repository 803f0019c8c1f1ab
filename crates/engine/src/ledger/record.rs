//! What became of rows: their outcomes in the books, their verdicts in precedence order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Book, Ledger, Seat, Stirred, set};
use crate::decision::Verdict;
use crate::demand::{Demand, Row};
use crate::intern::{ClusterIx, Symbols};
use crate::phase1::Outcome;

impl Ledger {
    /// Takes in what became of rows, those with a turn in precedence order.
    pub(crate) fn record(
        &mut self,
        found: impl Iterator<Item = (Seat, Outcome, Verdict)>,
        stirred: &Stirred,
        demand: &Demand,
        symbols: &Symbols,
    ) {
        let mut fresh: Vec<(Seat, Arc<Verdict>)> = Vec::new();
        for (seat, outcome, verdict) in found {
            let book = &mut self.books[seat.cluster.at()];
            book.entries[seat.at as usize].outcome = outcome;
            match book.positions[seat.at as usize] {
                Some(position) => {
                    let known = &self.verdicts[position as usize];
                    // Rows that are as they were share their Need.
                    if !Arc::ptr_eq(&known.need, &verdict.need) || **known != verdict {
                        Arc::make_mut(&mut self.verdicts.0)[position as usize] = Arc::new(verdict);
                    }
                }
                None => fresh.push((seat, Arc::new(verdict))),
            }
        }
        if !fresh.is_empty() || !self.gone.is_empty() {
            self.rearrange(fresh, demand, symbols);
        }
        let looked_at: BTreeSet<ClusterIx> = self.open.iter().chain(&stirred.clusters).copied().collect();
        for cluster in looked_at {
            let book = &mut self.books[cluster.at()];
            book.find_told(demand);
            let outcomes =
                || book.entries.iter().map(|entry| &entry.outcome).filter(|outcome| outcome.is_open());
            let open = outcomes().next().is_some();
            let entangled = outcomes().any(|outcome| outcome.choice.is_some());
            let telling = !book.told.is_empty();
            set(&mut self.open, cluster, open);
            set(&mut self.entangled, cluster, entangled);
            set(&mut self.telling, cluster, telling);
        }
    }

    /// Says of rows that want something else, and yet keep what they have, what they want now. Call it when all others
    /// are recorded.
    pub(crate) fn refresh(&mut self, demand: &Demand, mut judge: impl FnMut(&Row, &Outcome) -> Verdict) {
        for Seat { cluster, at } in self.standing.drain(..) {
            let Book { entries, positions, .. } = &self.books[cluster.at()];
            let entry = &entries[at as usize];
            if let (Some(row), Some(position)) = (demand.row(entry.ix), positions[at as usize]) {
                let verdict = Arc::new(judge(row, &entry.outcome));
                Arc::make_mut(&mut self.verdicts.0)[position as usize] = verdict;
            }
        }
    }

    /// Takes out the verdicts that are gone and puts in those of new rows.
    fn rearrange(&mut self, fresh: Vec<(Seat, Arc<Verdict>)>, demand: &Demand, symbols: &Symbols) {
        self.gone.sort_unstable();
        let number = self.order.len() + fresh.len() - self.gone.len();
        let (mut verdicts, mut order) = (Vec::with_capacity(number), Vec::with_capacity(number));
        let mut from = 0;
        let before: Vec<usize> = fresh
            .iter()
            .map(|(seat, _)| {
                let row = demand.row(self.books[seat.cluster.at()].entries[seat.at as usize].ix);
                let later = &self.verdicts[from..];
                let passed = |row| later.partition_point(|known| place_of(known, row, symbols).is_lt());
                from += row.map_or(0, passed);
                from
            })
            .collect();
        let known = Arc::unwrap_or_clone(std::mem::take(&mut self.verdicts.0));
        let mut known = (0..).zip(known).zip(std::mem::take(&mut self.order)).peekable();
        let mut gone = self.gone.iter().map(|position| *position as usize).peekable();
        for (before, new) in before.into_iter().zip(fresh.into_iter().map(Some)).chain([(usize::MAX, None)]) {
            while let Some(((at, verdict), seat)) = known.next_if(|((at, _), _)| *at < before) {
                if gone.next_if_eq(&at).is_none() {
                    verdicts.push(verdict);
                    order.push(seat);
                }
            }
            if let Some((seat, verdict)) = new {
                verdicts.push(verdict);
                order.push(seat);
            }
        }
        for (position, seat) in (0..).zip(&order) {
            self.books[seat.cluster.at()].positions[seat.at as usize] = Some(position);
        }
        (self.verdicts, self.order) = (verdicts.into(), order);
    }
}

/// Where a verdict is in the order of Needs, seen from a row.
pub(super) fn place_of(verdict: &Verdict, row: &Row, symbols: &Symbols) -> Ordering {
    let key = &verdict.key;
    (verdict.need.precedence(), verdict.arrival, &key.cluster)
        .cmp(&(row.precedence, row.arrival, symbols.name(row.cluster)))
        .then_with(|| key.fingerprint.cmp(&row.need.profile.fingerprint()))
        .then_with(|| key.group.cmp(&row.need.group))
        .then_with(|| (!verdict.gangs.is_empty()).cmp(&row.gangs.is_some()))
}
