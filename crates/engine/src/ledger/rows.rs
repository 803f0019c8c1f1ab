//! Which rows a cluster has after folding, and which of them stand though they want something else.

use super::book::{Book, Planned};
use super::record::seen_from;
use super::{Ledger, News, Refold, Seat, Stirred};
use crate::demand::{Demand, Row, RowIx, compare};
use crate::fleet::Fleet;
use crate::fold::{Forms, Plan};
use crate::intern::{ClusterIx, Map, Set, StampIx, Symbols};
use crate::matching::Matching;
use crate::members::PoolIx;

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
                let shifted = &self.shifted[from..to];
                if *refold == Refold::Machines && Plan::stands(wants, shifted, fleet, demand, matching) {
                    continue;
                }
                let shifted = (*refold != Refold::All).then_some(shifted);
                let tables = (&mut *forms, &mut *symbols, &mut *matching);
                let plan = Plan::of(wants, shifted, fleet, demand, &mut self.reach, tables);
                if plan.needs_hosts {
                    plan.made.iter().for_each(|row| matching.release(row.profile));
                    return false;
                }
                rows.extend(&plan.rows);
                rows.extend(demand.take_plan(&name, plan.ways, plan.made, matching));
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
        let book = &self.books[cluster.at()];
        let are_same = rows.iter().eq(book.planned.iter().map(|planned| &planned.ix));
        for planned in book.planned.iter().filter(|planned| planned.version != demand.version(planned.ix)) {
            book.entries[planned.at as usize].fetch();
            demand.fetch(planned.ix);
        }
        let mut all_stands = true;
        if !are_same || !book.planned.iter().all(|planned| book.stays(planned, demand)) {
            all_stands = self.enter(cluster, rows, fleet, demand, symbols);
        }
        let Book { planned, entries, .. } = &mut self.books[cluster.at()];
        for Planned { ix, at, version, .. } in planned {
            let now = demand.version(*ix);
            let Some(row) = demand.row(*ix).filter(|_| now != *version) else { continue };
            *version = now;
            if entries[*at as usize].stands(row, fleet) {
                self.standing.push((Seat { cluster, at: *at }, *ix));
            } else {
                self.moved.push((cluster, row.stamp));
                all_stands = false;
            }
        }
        all_stands
    }

    /// Replaces the rows of a cluster. Those that were there keep their seats and all that is known of them. Says whether
    /// all were, and no other.
    fn enter(
        &mut self,
        cluster: ClusterIx,
        rows: &[RowIx],
        fleet: &Fleet,
        demand: &Demand,
        symbols: &Symbols,
    ) -> bool {
        let book = &mut self.books[cluster.at()];
        let begins = book.planned.is_empty();
        let mut known: Map<RowIx, Planned> =
            std::mem::take(&mut book.planned).into_iter().map(|planned| (planned.ix, planned)).collect();
        let mut gone: Vec<Planned> = Vec::new();
        let mut fresh: Vec<(usize, RowIx, &Row)> = Vec::new();
        for ix in rows {
            let Some(row) = demand.row(*ix) else { continue };
            let before = known.remove(ix);
            let stays = before.filter(|planned| book.stays(planned, demand));
            if stays.is_none() {
                gone.extend(before);
                fresh.push((book.planned.len(), *ix, row));
            }
            let new = || Planned { ix: *ix, at: u32::MAX, version: demand.version(*ix), stamp: row.stamp };
            book.planned.push(stays.unwrap_or_else(new));
        }
        gone.extend(known.into_values());
        if gone.is_empty() && fresh.is_empty() {
            return true;
        }
        let mut left = self.take_out(cluster, &gone, fleet).into_iter().peekable();
        let book = &mut self.books[cluster.at()];
        fresh.sort_unstable_by(|(.., a), (.., b)| compare(symbols, a, b));
        let mut seated = Vec::with_capacity(fresh.len());
        for (place, ix, row) in &fresh {
            // Where the verdict of another row was, of the same place in the order.
            let seen =
                |at: u32| seen_from(row, (&self.order[at as usize], &self.verdicts[at as usize]), symbols);
            while let Some(before) = left.next_if(|position| seen(*position).is_lt()) {
                self.gone.push(before);
            }
            let position = left.next_if(|position| seen(*position).is_eq());
            let at = book.seat(*ix, row, position);
            book.planned[*place].at = at;
            if let Some(position) = position {
                self.order[position as usize].seat = Seat { cluster, at };
            }
            seated.push((at, *row));
            // A fold may be stamped as a row that came is: it stands in front of the same machines.
            self.moved.push((cluster, row.stamp));
        }
        self.gone.extend(left);
        book.line_up(&seated, demand, symbols);
        self.claims.forget_stock(cluster);
        if begins {
            self.claims.live.extend(book.planned.iter().map(|planned| (cluster, planned.stamp)));
            return false;
        }
        let restamped: Set<StampIx> =
            gone.iter().map(|planned| planned.stamp).chain(fresh.iter().map(|(.., row)| row.stamp)).collect();
        // Whose machines are named by a stamp of today may be others than before, and so may be who finds them first. Of
        // two rows with one stamp, one may have gone.
        let today =
            book.planned.iter().map(|planned| planned.stamp).filter(|stamp| restamped.contains(stamp));
        self.claims.live.extend(today.map(|stamp| (cluster, stamp)));
        let pools = restamped.iter().flat_map(|stamp| fleet.pools.own_bound(cluster, *stamp));
        let news = |pool: &PoolIx| (cluster, News { class: fleet.class_of(*pool), more: true });
        self.news.extend(pools.map(news));
        false
    }

    /// Takes rows out of the book of a cluster. Gives the places of their verdicts in ascending order.
    fn take_out(&mut self, cluster: ClusterIx, gone: &[Planned], fleet: &Fleet) -> Vec<u32> {
        if gone.is_empty() {
            return Vec::new();
        }
        let book = &mut self.books[cluster.at()];
        let mut positions = Vec::with_capacity(gone.len());
        for planned in gone {
            let (outcome, position) = book.vacate(planned.at);
            positions.extend(position);
            self.claims.live.remove(&(cluster, planned.stamp));
            self.claims.release(fleet, planned.ix, &outcome.credited, |_| ());
            let left = outcome.credited.iter().map(|slot| fleet.class(*slot));
            self.news.extend(left.map(|class| (cluster, News { class, more: true })));
            self.touched.extend(outcome.once_acquired().map(|slot| fleet.class(slot)));
        }
        book.leave_line(gone.iter().map(|planned| planned.at).collect());
        self.rekinded.push(cluster);
        positions.sort_unstable();
        positions
    }
}
