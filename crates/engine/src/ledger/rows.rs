//! Which rows a cluster has after folding, and which of them stand though they want something else.

use super::record::place_of;
use super::{Book, Entry, Ledger, Opened, Seat};
use crate::demand::{Demand, Row, RowIx, compare};
use crate::fleet::Fleet;
use crate::fold::{Forms, Plan};
use crate::intern::{ClusterIx, Map, Symbols};
use crate::matching::Matching;
use crate::phase1::Outcome;

impl Ledger {
    /// Folds the demand of clusters that changed, and opens those where not all stands. `false`: the classes have to tell
    /// hosts apart first.
    pub(crate) fn fold(
        &mut self,
        opened: &mut Opened,
        fleet: &Fleet,
        demand: &mut Demand,
        forms: &mut Forms,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> bool {
        let (mut rows, mut stirred): (Vec<RowIx>, Vec<ClusterIx>) = Default::default();
        for cluster in &opened.changed {
            let name = symbols.name(*cluster).clone();
            rows.clear();
            if let Some(wants) = demand.wants(&name) {
                let is_open = opened.whole.binary_search(cluster).is_ok();
                let before = if is_open { &[][..] } else { &self.books[cluster.at()].versions };
                let tables = (&mut *forms, &mut *symbols, &mut *matching);
                let plan = Plan::of(wants, before, fleet, demand, &mut self.reach, tables);
                if plan.needs_hosts {
                    plan.made.iter().for_each(|row| matching.release(row.profile));
                    return false;
                }
                rows.extend(&plan.rows);
                rows.extend(demand.make(&name, plan.made, matching));
            }
            if !self.renew(*cluster, &rows, fleet, demand, symbols) {
                stirred.push(*cluster);
            }
        }
        opened.whole.append(&mut stirred);
        opened.whole.sort_unstable();
        opened.whole.dedup();
        true
    }

    /// Takes in the rows of a cluster. Says whether all that is known of it stands, though rows may want something else.
    fn renew(
        &mut self,
        cluster: ClusterIx,
        rows: &[RowIx],
        fleet: &Fleet,
        demand: &Demand,
        symbols: &Symbols,
    ) -> bool {
        let Book { entries, planned, versions, .. } = &mut self.books[cluster.at()];
        let keeps_seat = |entry: &Entry| {
            let key = (entry.stamp, entry.folded, entry.arrival);
            demand.row(entry.ix).is_some_and(|row| (row.stamp, row.gangs.is_some(), row.arrival) == key)
        };
        versions.clear();
        versions.extend(rows.iter().filter_map(|ix| Some(demand.row(*ix)?.version)));
        if rows != planned || !entries.iter().all(keeps_seat) {
            rows.clone_into(planned);
            self.enter(cluster, rows, fleet, demand, symbols);
            return false;
        }
        let mut all_stands = true;
        for (at, entry) in (0..).zip(entries) {
            let Some(row) = demand.row(entry.ix).filter(|row| row.version != entry.version) else { continue };
            // Where some row does not, only those that rest are spared a turn.
            let matters = all_stands || entry.outcome.rests;
            let is_like = matters && row.min_unit == entry.min_unit;
            if is_like && entry.outcome.stands(fleet, row, &entry.aggregate) {
                self.standing.push(Seat { cluster, at });
            } else {
                self.moved.push((cluster, entry.stamp));
                all_stands = false;
            }
            entry.version = row.version;
            entry.aggregate.clone_from(&row.aggregate);
            entry.min_unit.clone_from(&row.min_unit);
        }
        all_stands
    }

    /// Replaces the rows of a cluster. Those that are what they were keep all that is known of them, those that are told
    /// apart by nothing from one before keep its place.
    fn enter(
        &mut self,
        cluster: ClusterIx,
        rows: &[RowIx],
        fleet: &Fleet,
        demand: &Demand,
        symbols: &Symbols,
    ) {
        let book = &mut self.books[cluster.at()];
        let before = std::mem::take(&mut book.entries);
        let places: Map<RowIx, usize> = before.iter().map(|entry| entry.ix).zip(0..).collect();
        let mut stays = vec![false; before.len()];
        let mut fresh: Vec<(RowIx, &Row)> = Vec::new();
        for ix in rows {
            let Some(row) = demand.row(*ix) else { continue };
            match places.get(ix).filter(|at| before[**at].version == row.version) {
                Some(at) => stays[*at] = true,
                None => fresh.push((*ix, row)),
            }
        }
        fresh.sort_unstable_by(|(_, a), (_, b)| compare(symbols, a, b));
        book.entries.reserve(rows.len());
        let mut gone: Vec<Entry> = Vec::with_capacity(before.len());
        for (entry, stays) in before.into_iter().zip(stays) {
            if stays {
                book.entries.push(entry);
            } else {
                self.claims.live.remove(&(cluster, entry.stamp));
                self.claims.release(fleet, entry.ix, &entry.outcome.credited, |_| ());
                self.touched.extend(entry.outcome.once_acquired().map(|slot| fleet.class(slot)));
                gone.push(entry);
            }
        }
        if fresh.is_empty() && gone.is_empty() {
            return;
        }
        // What stamps name is not what it was. Of two rows with one stamp, one may have gone.
        self.claims.live.extend(book.entries.iter().map(|entry| (cluster, entry.stamp)));
        self.claims.forget_stock(cluster);
        let mut positions = gone.iter().filter_map(|entry| entry.position).peekable();
        for (ix, row) in &fresh {
            let seen_from_row = |position: u32| place_of(&self.verdicts[position as usize], row, symbols);
            while let Some(before) = positions.next_if(|position| seen_from_row(*position).is_lt()) {
                self.gone.push(before);
            }
            let position = positions.next_if(|position| seen_from_row(*position).is_eq());
            book.entries.push(Entry {
                ix: *ix,
                version: row.version,
                arrival: row.arrival,
                stamp: row.stamp,
                folded: row.gangs.is_some(),
                aggregate: row.aggregate.clone(),
                min_unit: row.min_unit.clone(),
                outcome: Outcome::default(),
                position,
            });
            self.claims.live.insert((cluster, row.stamp));
            // A fold may be stamped as a row that came is: it stands in front of the same machines.
            self.moved.push((cluster, row.stamp));
        }
        self.gone.extend(positions);
        if book.entries.len() > fresh.len() {
            // Two runs, each in order.
            book.entries.sort_by(|a, b| match (demand.row(a.ix), demand.row(b.ix)) {
                (Some(a), Some(b)) => compare(symbols, a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            });
        }
        for (at, entry) in (0..).zip(&book.entries) {
            if let Some(position) = entry.position {
                self.order[position as usize] = Seat { cluster, at };
            }
        }
    }
}
