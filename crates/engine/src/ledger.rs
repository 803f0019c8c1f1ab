//! What the last decision found, cluster by cluster, so that the next one looks only at what may have changed.
//!
//! What a cluster is credited with depends on that cluster alone. Only rows that credit does not cover compete for
//! what is free; such a row is *open* and has a turn in every decision. A gang chooses its domain by what is free
//! unless its credit covers it, and with the domain what its neighbours find, so an open gang opens its cluster, as any
//! change of its machines does, and of its demand unless all rows *stand*: whatever they want now, they keep the
//! machines that they have. In an open cluster all rows have a turn but those that *rest*: rows that stand, or are as they
//! were, and that the first of their own machines serve. Everybody else keeps claims and verdict.

mod record;
mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use bigfleet_types::UnixNanos;

use crate::changes::Changes;
use crate::claims::Claims;
use crate::class::ClassIx;
use crate::decision::{Shared, Verdict};
use crate::demand::{Demand, Row, RowIx};
use crate::fleet::Fleet;
use crate::fold::Reach;
use crate::intern::{ClusterIx, Map, StampIx, Symbols};
use crate::lanes::Lanes;
use crate::matching::{Matching, ProfileIx};
use crate::members::{PoolIx, Slot};
use crate::phase1::{Kept, Known, Listener, Lookout, Outcome, Rest, Resting, Turn, Turns};
use crate::phase2::Taken;
use crate::phase3::{self, Holds};
use crate::place::Place;
use crate::policy::Policy;

/// Where a row stands in the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) cluster: ClusterIx,
    /// Its place among the rows of the cluster, which are in order.
    pub(crate) at: u32,
}

/// What is known of a row.
#[derive(Debug)]
struct Entry {
    ix: RowIx,
    version: u64,
    arrival: UnixNanos,
    stamp: StampIx,
    /// The row is a fold.
    folded: bool,
    /// What it wanted then, and the least that a machine of it had to have.
    aggregate: Lanes,
    min_unit: Lanes,
    outcome: Outcome,
    /// The place of its verdict; `None` before the first one.
    position: Option<u32>,
}

/// One cluster. Its rows are in precedence order.
#[derive(Debug, Default)]
struct Book {
    entries: Vec<Entry>,
    /// The rows of these, in the order of the plan.
    planned: Vec<RowIx>,
    /// The versions of those.
    versions: Vec<u64>,
    /// Where the gangs are that are told what is free, and what they match.
    told: Vec<(u32, ProfileIx)>,
    /// Configured machines that nobody claims.
    excess: Vec<Slot>,
}

/// Sets of clusters, and all that outlives a pass.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    books: Vec<Book>,
    /// Clusters with open rows.
    open: BTreeSet<ClusterIx>,
    /// Clusters with open gangs.
    entangled: BTreeSet<ClusterIx>,
    /// Clusters with gangs that are told what is free.
    telling: BTreeSet<ClusterIx>,
    /// Clusters with excess.
    wasting: BTreeSet<ClusterIx>,
    pub(crate) claims: Claims,
    pub(crate) lookout: Lookout,
    pub(crate) holds: Holds,
    pub(crate) taken: Taken,
    reach: Reach,
    /// By place of the verdict.
    order: Vec<Seat>,
    pub(crate) verdicts: Shared<Arc<Verdict>>,
    /// Places of verdicts of rows that are no more.
    gone: Vec<u32>,
    /// Classes of which something free may be in other hands than before.
    touched: Vec<ClassIx>,
    /// What rows are stamped with that may not rest: they or their machines changed. In ascending order for the turns.
    moved: Vec<(ClusterIx, StampIx)>,
    /// Rows that want something else, and yet keep what they have.
    standing: Vec<Seat>,
}

/// The clusters that a decision looks at again.
pub(crate) struct Opened {
    /// All their rows have a turn but those that rest, in ascending order.
    pub(crate) whole: Vec<ClusterIx>,
    /// The ones whose demand has to be folded again.
    changed: Vec<ClusterIx>,
}

impl Ledger {
    /// Takes in what changed, and gives back the claims of all rows that have a turn now.
    pub(crate) fn open(
        &mut self,
        fleet: &mut Fleet,
        demand: &Demand,
        symbols: &Symbols,
        matching: &mut Matching,
        policy: &Policy,
    ) -> Opened {
        let mut changes = std::mem::take(&mut fleet.changes);
        let settled = fleet.pools.take_settled();
        if !changes.everything && !fleet.pools.creating_for_anyone().is_empty() {
            changes.all();
        }
        if !changes.everything {
            // Some gangs fold now that did not, or the other way round.
            let sizes = self.reach.review(&changes.flipped, fleet, matching);
            if !sizes.is_empty() {
                demand.with_gangs(&sizes).for_each(|cluster| changes.cluster(cluster));
            }
        }
        self.gone.clear();
        self.touched.clear();
        self.moved.clear();
        self.standing.clear();
        let opened = if changes.everything {
            self.start_over(fleet, symbols, policy);
            let all: Vec<ClusterIx> = (0..symbols.cluster_count()).map(ClusterIx::new).collect();
            Opened { whole: all.clone(), changed: all }
        } else {
            self.catch_up(fleet, symbols, policy, &changes, &settled)
        };
        changes.clear();
        fleet.changes = changes;
        fleet.pools.reuse(settled);
        self.taken = Taken::default();
        opened
    }

    fn start_over(&mut self, fleet: &Fleet, symbols: &Symbols, policy: &Policy) {
        self.books.clear();
        self.books.resize_with(symbols.cluster_count(), Book::default);
        for set in [&mut self.open, &mut self.entangled, &mut self.telling, &mut self.wasting] {
            set.clear();
        }
        self.claims.start_over(fleet);
        self.lookout.forget();
        self.holds.start_over(fleet, policy);
        self.reach = Reach::default();
        self.order.clear();
        self.verdicts = Shared::default();
    }

    fn catch_up(
        &mut self,
        fleet: &Fleet,
        symbols: &Symbols,
        policy: &Policy,
        changes: &Changes,
        settled: &[PoolIx],
    ) -> Opened {
        self.books.resize_with(symbols.cluster_count(), Book::default);
        self.claims.catch_up(fleet, &changes.moved, settled);
        self.holds.catch_up(fleet, policy, &changes.idle);
        settled.iter().for_each(|ix| self.lookout.note(&fleet.pools, *ix));
        let pools = settled.iter().map(|ix| fleet.pools.get(*ix));
        self.touched.extend(pools.filter(|pool| pool.is_for_the_taking()).map(|pool| pool.class));
        let pools = settled.iter().filter_map(|ix| match fleet.place(*ix) {
            Place::Bound(binding) => Some((binding.cluster, binding.stamp)),
            _ => None,
        });
        self.moved.extend(pools);
        let mut changed: Vec<ClusterIx> = changes.clusters.iter().copied().collect();
        changed.sort_unstable();
        let whole: BTreeSet<ClusterIx> = changes.opened.iter().chain(&self.entangled).copied().collect();
        let whole: Vec<ClusterIx> = whole.into_iter().collect();
        self.claims.release_counted(fleet);
        changes.opened.iter().for_each(|cluster| self.claims.forget_stock(*cluster));
        for cluster in &self.open {
            for entry in self.books[cluster.at()].entries.iter().filter(|entry| entry.outcome.is_open()) {
                let note = |pool| self.lookout.note(&fleet.pools, pool);
                self.claims.release(fleet, entry.ix, &entry.outcome.acquired, note);
            }
        }
        Opened { whole, changed }
    }

    /// All rows with a turn, and those that rest where others have one.
    pub(crate) fn turns<'a>(
        &mut self,
        opened: &Opened,
        fleet: &Fleet,
        demand: &'a Demand,
        symbols: &Symbols,
    ) -> (Turns<'a>, Rest<'a>) {
        // The rows of a book are in order, so their places in it stand for all that tells equals apart.
        let order = |row: &Row, at: u32| (row.precedence, row.arrival, symbols.rank(row.cluster), at);
        let (mut turns, mut rest): (Turns<'a>, Rest<'a>) = Default::default();
        self.moved.sort_unstable();
        // So that the turns of each precedence come in order as far as arrivals allow.
        let mut whole = opened.whole.clone();
        whole.sort_unstable_by_key(|cluster| symbols.rank(*cluster));
        for cluster in &whole {
            for (at, entry) in (0..).zip(&mut self.books[cluster.at()].entries) {
                let Some(row) = demand.row(entry.ix) else { continue };
                let (order, seat, ix) = (order(row, at), Seat { cluster: *cluster, at }, entry.ix);
                let moved = || self.moved.binary_search(&(*cluster, entry.stamp)).is_ok();
                if entry.outcome.rests && !moved() {
                    rest.add(Resting { order, seat, ix, row, line: None });
                } else {
                    self.claims.release(fleet, ix, &entry.outcome.credited, |_| ());
                    let acquired = entry.outcome.once_acquired().collect();
                    turns.push(Turn { order, seat, ix, row, known: None, acquired });
                }
            }
        }
        for cluster in self.open.iter().filter(|cluster| opened.whole.binary_search(cluster).is_err()) {
            for (at, entry) in (0..).zip(&mut self.books[cluster.at()].entries) {
                let Some(row) = demand.row(entry.ix).filter(|_| entry.outcome.is_open()) else { continue };
                let (order, seat) = (order(row, at), Seat { cluster: *cluster, at });
                let Outcome { credited, missing, acquired, .. } = std::mem::take(&mut entry.outcome);
                let known = Some(Box::new(Known::Credit(Kept { credited, missing })));
                turns.push(Turn { order, seat, ix: entry.ix, row, known, acquired });
            }
        }
        (turns, rest)
    }

    /// Notes that a row with a turn acquired other machines than before.
    pub(crate) fn acquired(&mut self, fleet: &Fleet, before: &[Slot], now: &[Slot]) {
        if before != now {
            self.touched.extend(before.iter().chain(now).map(|slot| fleet.class(*slot)));
        }
    }

    /// The served gangs without a turn to which something that was touched matters. They are to come back.
    pub(crate) fn listeners<'a>(
        &mut self,
        whole: &[ClusterIx],
        fleet: &Fleet,
        demand: &'a Demand,
        matching: &mut Matching,
    ) -> Vec<Listener<'a>> {
        let mut listeners = Vec::new();
        if self.touched.is_empty() {
            return listeners;
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut concerned: Map<ProfileIx, bool> = Map::default();
        for cluster in self.telling.iter().filter(|cluster| whole.binary_search(cluster).is_err()) {
            let Book { entries, told, .. } = &mut self.books[cluster.at()];
            for (at, profile) in told {
                let concerned = *concerned.entry(*profile).or_insert_with(|| {
                    matching.look(*profile, &fleet.classes);
                    self.touched.iter().any(|class| matching.matches(*profile, *class))
                });
                let Entry { ix, outcome, .. } = &mut entries[*at as usize];
                if let Some(row) = demand.row(*ix).filter(|_| concerned)
                    && let Some(choice) = outcome.choice.take()
                {
                    let (seat, early) = (Seat { cluster: *cluster, at: *at }, outcome.early);
                    listeners.push(Listener { seat, row, early, choice, heard_news: false });
                }
            }
        }
        listeners
    }

    /// Takes listeners back. Gives those that heard something new, with their outcomes.
    pub(crate) fn told<'a>(&mut self, listeners: Vec<Listener<'a>>) -> Vec<(Seat, &'a Row, Outcome)> {
        let mut told = Vec::new();
        for Listener { seat, row, choice, heard_news, .. } in listeners {
            let outcome = &mut self.books[seat.cluster.at()].entries[seat.at as usize].outcome;
            outcome.choice = Some(choice);
            if heard_news {
                told.push((seat, row, std::mem::take(outcome)));
            }
        }
        told
    }

    /// Finds the excess of the clusters that were looked at. Says at how many machines it looked.
    pub(crate) fn find_excess(
        &mut self,
        opened: &Opened,
        fleet: &mut Fleet,
        heard: &[bool],
        now: UnixNanos,
    ) -> u64 {
        let mut looked_at = 0;
        for cluster in &opened.whole {
            let excess = &mut self.books[cluster.at()].excess;
            looked_at += phase3::find_excess(fleet, &self.claims, *cluster, heard[cluster.at()], now, excess);
            let wastes = !excess.is_empty();
            set(&mut self.wasting, *cluster, wastes);
        }
        looked_at
    }

    /// Configured machines that nobody claims, of clusters that have spoken.
    pub(crate) fn excess(&self) -> impl Iterator<Item = Slot> {
        self.wasting.iter().flat_map(|cluster| self.books[cluster.at()].excess.iter().copied())
    }
}

fn set(of: &mut BTreeSet<ClusterIx>, cluster: ClusterIx, member: bool) {
    if member {
        of.insert(cluster);
    } else {
        of.remove(&cluster);
    }
}
