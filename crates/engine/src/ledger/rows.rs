//! Which rows a cluster has after folding, and which of them stand though they want something else.

use super::record::place_of;
use super::{Book, Entry, Ledger, Refold, Seat, Stirred};
use crate::demand::{Demand, Row, RowIx, compare};
use crate::fleet::Fleet;
use crate::fold::{Before, Forms, Plan};
use crate::intern::{ClusterIx, Map, StampIx, Symbols};
use crate::matching::Matching;
use crate::members::PoolIx;
use crate::phase1::{News, Outcome};

impl Ledger {
    /// Folds the demand of clusters that changed, and stirs those where not all stands. `false`: the classes have to tell
    /// hosts apart first.
    pub(crate) fn fold(
        &mut self,
        stirred: &mut Stirred,
        fleet: &Fleet,
        demand: &mut Demand,
        forms: &mut Forms,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> bool {
        let (mut rows, mut more): (Vec<RowIx>, Vec<ClusterIx>) = Default::default();
        let Stirred { clusters, changed } = stirred;
        for (cluster, refold) in &*changed {
            let name = symbols.name(*cluster).clone();
            rows.clear();
            if let Some(wants) = demand.wants(&name) {
                let from = self.shifted.partition_point(|(other, ..)| other < cluster);
                let to = self.shifted.partition_point(|(other, ..)| other <= cluster);
                let versions = &self.books[cluster.at()].versions;
                let versions = if *refold == Refold::All { &[][..] } else { versions };
                let before = Before { versions, shifted: &self.shifted[from..to] };
                if *refold == Refold::Machines && before.holds_for(wants, fleet, demand, matching) {
                    continue;
                }
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
                more.push(*cluster);
            }
        }
        clusters.append(&mut more);
        clusters.sort_unstable();
        clusters.dedup();
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
        versions.clear();
        versions.extend(rows.iter().filter_map(|ix| Some(demand.row(*ix)?.version)));
        let mut all_stands = true;
        if rows != planned || !entries.iter().all(|entry| entry.is_of(demand)) {
            rows.clone_into(planned);
            all_stands = self.enter(cluster, rows, fleet, demand, symbols);
        }
        for (at, entry) in (0..).zip(&mut self.books[cluster.at()].entries) {
            let Some(row) = demand.row(entry.ix).filter(|row| row.version != entry.version) else { continue };
            if row.min_unit == entry.min_unit && entry.outcome.stands(fleet, row, &entry.aggregate) {
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

    /// Replaces the rows of a cluster. Those that were there keep all that is known of them. Says whether all were, and no
    /// other.
    fn enter(
        &mut self,
        cluster: ClusterIx,
        rows: &[RowIx],
        fleet: &Fleet,
        demand: &Demand,
        symbols: &Symbols,
    ) -> bool {
        let book = &mut self.books[cluster.at()];
        let places: Map<RowIx, usize> = book.entries.iter().map(|entry| entry.ix).zip(0..).collect();
        let mut stays = vec![false; book.entries.len()];
        let mut fresh: Vec<(RowIx, &Row)> = Vec::new();
        for ix in rows {
            let Some(row) = demand.row(*ix) else { continue };
            match places.get(ix).filter(|at| book.entries[**at].is_of(demand)) {
                Some(at) => stays[*at] = true,
                None => fresh.push((*ix, row)),
            }
        }
        fresh.sort_unstable_by(|(_, a), (_, b)| compare(symbols, a, b));
        let begins = book.entries.is_empty();
        let mut known: Vec<(Entry, Option<u32>)> = Vec::with_capacity(rows.len());
        let mut gone: Vec<(Entry, Option<u32>)> = Vec::new();
        for (pair, stays) in book.entries.drain(..).zip(book.positions.drain(..)).zip(stays) {
            if stays { known.push(pair) } else { gone.push(pair) }
        }
        // Whose machines are named by a stamp of today may be others than before, and so may be who finds them first.
        let mut restamped: Vec<StampIx> = Vec::new();
        for (entry, _) in &gone {
            restamped.push(entry.stamp);
            self.claims.live.remove(&(cluster, entry.stamp));
            self.claims.release(fleet, entry.ix, &entry.outcome.credited, |_| ());
            let left = entry.outcome.credited.iter().map(|slot| fleet.class(*slot));
            self.news.extend(left.map(|class| (cluster, News { class, more: true })));
            self.touched.extend(entry.outcome.once_acquired().map(|slot| fleet.class(slot)));
        }
        let mut positions = gone.iter().filter_map(|(_, position)| *position).peekable();
        for (ix, row) in &fresh {
            let seen_from_row = |position: u32| place_of(&self.verdicts[position as usize], row, symbols);
            while let Some(before) = positions.next_if(|position| seen_from_row(*position).is_lt()) {
                self.gone.push(before);
            }
            let position = positions.next_if(|position| seen_from_row(*position).is_eq());
            let entry = Entry {
                ix: *ix,
                version: row.version,
                arrival: row.arrival,
                stamp: row.stamp,
                folded: row.gangs.is_some(),
                aggregate: row.aggregate.clone(),
                min_unit: row.min_unit.clone(),
                outcome: Outcome::default(),
            };
            known.push((entry, position));
            restamped.push(row.stamp);
            // A fold may be stamped as a row that came is: it stands in front of the same machines.
            self.moved.push((cluster, row.stamp));
        }
        self.gone.extend(positions);
        if known.len() > fresh.len() && !fresh.is_empty() {
            // Two runs, each in order.
            known.sort_by(|(a, _), (b, _)| match (demand.row(a.ix), demand.row(b.ix)) {
                (Some(a), Some(b)) => compare(symbols, a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            });
        }
        let book = &mut self.books[cluster.at()];
        (book.entries, book.positions) = known.into_iter().unzip();
        book.find_told(demand);
        for (at, position) in (0..).zip(&book.positions) {
            if let Some(position) = position {
                self.order[*position as usize] = Seat { cluster, at };
            }
        }
        if !restamped.is_empty() {
            // Of two rows with one stamp, one may have gone.
            self.claims.live.extend(book.entries.iter().map(|entry| (cluster, entry.stamp)));
            self.claims.forget_stock(cluster);
        }
        if !begins {
            let pools = restamped.iter().flat_map(|stamp| fleet.pools.own_bound(cluster, *stamp));
            let news = |pool: &PoolIx| (cluster, News { class: fleet.class_of(*pool), more: true });
            self.news.extend(pools.map(news));
        }
        restamped.is_empty()
    }
}
