//! What the last decision found, cluster by cluster, so that the next one looks only at what may have changed.
//!
//! What a cluster is credited with depends on that cluster alone. Only rows that credit does not cover compete for
//! what is free; such a row is *open* and has a turn in every decision. A gang chooses its domain by what is free
//! unless its credit covers it, and with the domain what its neighbours find, so an open gang *stirs* its cluster, as any
//! change of its machines does, and of its demand unless all rows *stand*: whatever they want now, they keep the
//! machines that they have. In a stirred cluster rows have a turn whose machines changed, or that want something else and
//! do not stand; all others that credit covers *rest* (see `rest.rs`). Everybody else keeps claims and verdict.

mod book;
mod record;
mod rest;
mod rows;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use bigfleet_types::{Need, Precedence, UnixNanos};

use self::book::{Book, Brief, Entry};
pub(crate) use self::rest::{Minds, News, Rest, Resting, Round, Woken, time};
use crate::ahead;
use crate::changes::Changes;
use crate::claims::Claims;
use crate::class::ClassIx;
use crate::decision::{Shared, Verdict};
use crate::demand::{Demand, Row, RowIx};
use crate::fleet::Fleet;
use crate::fold::{Reach, Shifted};
use crate::intern::{ClusterIx, Map, StampIx, Symbols};
use crate::matching::{Matching, ProfileIx};
use crate::members::{PoolIx, Slot};
use crate::phase1::{Known, Listener, Lookout, Outcome, Turn, Turns};
use crate::phase2::Taken;
use crate::phase3::{self, Excess, Holds};
use crate::place::{Binding, Drain, Place};
use crate::policy::Policy;

/// Where a row stands in the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) cluster: ClusterIx,
    /// Its number there, which it keeps.
    pub(crate) at: u32,
}

/// A place in the order of all rows.
#[derive(Debug, Clone, Copy)]
struct Spot {
    seat: Seat,
    /// Those of the row.
    precedence: Precedence,
    arrival: UnixNanos,
}

/// What the last decision replaced. To free it is no work for a decision.
#[derive(Debug, Default)]
struct Replaced {
    needs: Vec<Arc<Need>>,
    verdicts: Vec<Arc<Verdict>>,
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
    order: Vec<Spot>,
    pub(crate) verdicts: Shared<Arc<Verdict>>,
    /// Places of verdicts of rows that are no more.
    gone: Vec<u32>,
    /// Classes of which something free may be in other hands than before.
    touched: Vec<ClassIx>,
    /// What rows are stamped with that may not rest: they or their machines changed. In ascending order for the turns.
    moved: Vec<(ClusterIx, StampIx)>,
    /// In ascending order.
    shifted: Vec<Shifted>,
    /// What became of bound machines.
    news: Vec<(ClusterIx, News)>,
    /// Rows that want something else, and yet keep what they have.
    standing: Vec<(Seat, RowIx)>,
    replaced: Replaced,
    /// Clusters with rows of another kind than before. Perhaps repeatedly.
    rekinded: Vec<ClusterIx>,
}

/// The clusters that a decision looks at again.
pub(crate) struct Stirred {
    /// All of them, in ascending order.
    pub(crate) clusters: Vec<ClusterIx>,
    /// The ones whose demand has to be folded again, and how much of it.
    changed: Vec<(ClusterIx, Refold)>,
}

/// How much of a cluster's demand has to be folded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refold {
    /// What machines concern that came or went.
    Machines,
    /// Rows that changed, too.
    Rows,
    /// All of it.
    All,
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
    ) -> Stirred {
        let mut changes = std::mem::take(&mut fleet.changes);
        let settled = fleet.pools.take_settled();
        if !changes.everything && !fleet.pools.creating_for_anyone().is_empty() {
            changes.all();
        }
        if !changes.everything {
            // Some gangs fold now that did not, or the other way round.
            let sizes = self.reach.review(&changes.flipped, fleet, matching);
            if !sizes.is_empty() {
                changes.refold.extend(demand.with_gangs(&sizes));
                changes.stirred.extend(&changes.refold);
            }
        }
        self.gone.clear();
        self.touched.clear();
        self.moved.clear();
        self.shifted.clear();
        self.news.clear();
        self.standing.clear();
        self.rekinded.clear();
        let stirred = if changes.everything {
            self.start_over(fleet, symbols, policy);
            let all: Vec<ClusterIx> = (0..symbols.cluster_count()).map(ClusterIx::new).collect();
            let changed = all.iter().map(|cluster| (*cluster, Refold::All)).collect();
            Stirred { clusters: all, changed }
        } else {
            self.catch_up(fleet, demand, symbols, policy, &changes, &settled)
        };
        changes.clear();
        fleet.changes = changes;
        fleet.pools.reuse(settled);
        self.taken = Taken::default();
        stirred
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
        demand: &Demand,
        symbols: &Symbols,
        policy: &Policy,
        changes: &Changes,
        settled: &[PoolIx],
    ) -> Stirred {
        self.books.resize_with(symbols.cluster_count(), Book::default);
        // Who had a machine that left its pool has to look anew.
        let had = changes.moved.iter().filter_map(|slot| demand.row(self.claims.claimer(*slot)?));
        self.moved.extend(had.map(|row| (row.cluster, row.stamp)));
        self.claims.catch_up(fleet, &changes.moved, settled);
        self.holds.catch_up(fleet, policy, &changes.idle);
        settled.iter().for_each(|ix| self.lookout.note(&fleet.pools, *ix));
        let pools = settled.iter().map(|ix| fleet.pools.get(*ix));
        self.touched.extend(pools.filter(|pool| pool.is_for_the_taking()).map(|pool| pool.class));
        for ix in settled {
            let class = fleet.class_of(*ix);
            match fleet.place(*ix) {
                Place::Bound(Binding { cluster, stamp, .. }) => {
                    self.moved.push((cluster, stamp));
                    self.shifted.push((cluster, class, stamp));
                    let more = self.claims.free(*ix) > 0;
                    self.news.push((cluster, News { class, more }));
                }
                Place::CreatingFor { cluster, stamp, .. } => {
                    self.moved.push((cluster, stamp));
                    self.shifted.push((cluster, class, stamp));
                }
                Place::Draining(Drain::For { cluster, stamp, .. }) => self.moved.push((cluster, stamp)),
                _ => {}
            }
        }
        self.shifted.sort_unstable();
        let machines = changes.stirred.iter().map(|cluster| (*cluster, Refold::Machines));
        let rows = changes.demand.iter().map(|cluster| (*cluster, Refold::Rows));
        let all = changes.refold.iter().map(|cluster| (*cluster, Refold::All));
        let mut changed: Vec<(ClusterIx, Refold)> = machines.chain(rows).chain(all).collect();
        changed.sort_unstable_by_key(|(cluster, refold)| (*cluster, Reverse(*refold)));
        changed.dedup_by_key(|(cluster, _)| *cluster);
        let mut clusters: Vec<ClusterIx> = changes.stirred.iter().chain(&self.entangled).copied().collect();
        clusters.sort_unstable();
        clusters.dedup();
        self.claims.release_counted(fleet);
        changes.stirred.iter().for_each(|cluster| self.claims.forget_stock(*cluster));
        for cluster in &self.open {
            let Book { line, briefs, entries, .. } = &self.books[cluster.at()];
            for at in line.iter().filter(|at| briefs[**at as usize].kind.is_open) {
                let (ix, outcome) = (briefs[*at as usize].ix, &entries[*at as usize].outcome);
                let note = |pool| self.lookout.note(&fleet.pools, pool);
                self.claims.release(fleet, ix, &outcome.acquired, note);
            }
        }
        Stirred { clusters, changed }
    }

    /// All rows with a turn, and those that rest where others have one.
    pub(crate) fn turns<'a>(
        &mut self,
        stirred: &Stirred,
        fleet: &Fleet,
        demand: &'a Demand,
        symbols: &Symbols,
        matching: &mut Matching,
    ) -> (Turns<'a>, Rest) {
        let (mut turns, mut rest) = (Turns::new(demand), Rest::default());
        self.moved.sort_unstable();
        for (cluster, news) in &self.news {
            rest.add_news(*cluster, *news);
        }
        // So that the turns of each precedence come in order as far as arrivals allow.
        let mut clusters: Vec<_> =
            stirred.clusters.iter().map(|cluster| (symbols.rank(*cluster), *cluster)).collect();
        clusters.sort_unstable();
        for (rank, cluster) in clusters {
            let from = self.moved.partition_point(|(other, _)| *other < cluster);
            let to = self.moved.partition_point(|(other, _)| *other <= cluster);
            let (moved, has_news) = (&self.moved[from..to], rest.has_news(cluster));
            let Book { line, briefs, entries, .. } = &mut self.books[cluster.at()];
            let (mut resting, mut turning) = (Vec::with_capacity(line.len()), Vec::new());
            // The rows of a line are in order, so their places in it stand for all that tells equals apart.
            for (place, at) in (0..).zip(&*line) {
                let Brief { ix, stamp, profile, minds, .. } = briefs[*at as usize];
                let may_rest = |minds: &Minds| {
                    let has_moved = || moved.binary_search(&(cluster, stamp)).is_ok();
                    let mut concerns = || {
                        matching.look(profile, &fleet.classes);
                        rest.concerns(cluster, *minds, matching.bits(profile))
                    };
                    !(has_moved() || has_news && concerns())
                };
                if let Some(minds) = minds.filter(may_rest) {
                    resting.push(Resting { ix, profile, minds, at: *at, place });
                } else {
                    turning.push((place, *at, ix));
                }
            }
            for chunk in turning.chunks(ahead::MANY) {
                for (_, at, ix) in chunk {
                    entries[*at as usize].fetch();
                    demand.fetch(*ix);
                }
                for (_, at, _) in chunk {
                    self.claims.fetch(fleet, &entries[*at as usize].outcome.credited);
                }
                for (place, at, ix) in chunk.iter().copied() {
                    let Some(row) = demand.row(ix) else { continue };
                    let entry = &mut entries[at as usize];
                    let (order, seat) = (entry.order(rank, place), Seat { cluster, at });
                    let outcome = std::mem::take(&mut entry.outcome);
                    self.claims.release(fleet, ix, &outcome.credited, |_| ());
                    let acquired = outcome.once_acquired().collect();
                    let (had, first) = (outcome.credited, outcome.first);
                    turns.push(Turn { order, seat, ix, row, known: None, had, first, acquired });
                }
            }
            if !resting.is_empty() {
                rest.add(cluster, rank, resting);
            }
        }
        for cluster in self.open.iter().filter(|cluster| stirred.clusters.binary_search(cluster).is_err()) {
            let rank = symbols.rank(*cluster);
            let Book { line, briefs, entries, .. } = &mut self.books[cluster.at()];
            for (place, at) in (0..).zip(&*line).filter(|(_, at)| briefs[**at as usize].kind.is_open) {
                let (ix, entry) = (briefs[*at as usize].ix, &mut entries[*at as usize]);
                let (order, seat) = (entry.order(rank, place), Seat { cluster: *cluster, at: *at });
                let Some(row) = demand.row(ix) else { continue };
                let Outcome { credited: had, missing, acquired, first, .. } =
                    std::mem::take(&mut entry.outcome);
                let known = Some(Box::new(Known::Missing(missing)));
                turns.push(Turn { order, seat, ix, row, known, had, first, acquired });
            }
        }
        rest.keep(std::mem::take(&mut self.books));
        (turns, rest)
    }

    /// Takes the books back. `turns`: of the rows that had one.
    pub(crate) fn rested(&mut self, rest: Rest, turns: &[Turn<'_>]) {
        self.books = rest.into_books();
        // Some were woken.
        turns.iter().for_each(|turn| *self.outcome_mut(turn.seat) = Outcome::default());
    }

    fn outcome_mut(&mut self, seat: Seat) -> &mut Outcome {
        &mut self.books[seat.cluster.at()].entries[seat.at as usize].outcome
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
        for cluster in &self.telling {
            let Book { briefs, entries, told, .. } = &mut self.books[cluster.at()];
            for (at, profile) in told {
                let concerned = *concerned.entry(*profile).or_insert_with(|| {
                    matching.look(*profile, &fleet.classes);
                    self.touched.iter().any(|class| matching.matches(*profile, *class))
                });
                if !concerned {
                    continue;
                }
                // Those that had a turn, or are no more, have no choice now.
                let Entry { outcome, .. } = &mut entries[*at as usize];
                if let Some(row) = demand.row(briefs[*at as usize].ix)
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
            let outcome = self.outcome_mut(seat);
            outcome.choice = Some(choice);
            if heard_news {
                told.push((seat, row, std::mem::take(outcome)));
            }
        }
        told
    }

    /// Frees what the last decision replaced.
    pub(crate) fn discard(&mut self) {
        self.replaced.needs.clear();
        self.replaced.verdicts.clear();
    }

    /// Finds the excess of the clusters that were looked at. Says at how many machines it looked.
    pub(crate) fn find_excess(
        &mut self,
        stirred: &Stirred,
        fleet: &mut Fleet,
        heard: &[bool],
        now: UnixNanos,
    ) -> u64 {
        let mut looked_at = 0;
        for cluster in &stirred.clusters {
            let excess = &mut self.books[cluster.at()].excess;
            let wasted = !excess.is_empty();
            looked_at += phase3::find_excess(fleet, &self.claims, *cluster, heard[cluster.at()], now, excess);
            if excess.is_empty() == wasted {
                set(&mut self.wasting, *cluster, !wasted);
            }
        }
        looked_at
    }

    /// Configured machines that nobody claims, of clusters that have spoken.
    pub(crate) fn excess(&self) -> impl Iterator<Item = &Excess> {
        self.wasting.iter().map(|cluster| &self.books[cluster.at()].excess)
    }
}

fn set(of: &mut BTreeSet<ClusterIx>, cluster: ClusterIx, member: bool) {
    if member {
        of.insert(cluster);
    } else {
        of.remove(&cluster);
    }
}
