//! Gangs: one value of a key for all machines, chosen once a pass; credit, acquisition and preemption keep to it.

use std::cmp::Reverse;

use super::{Outcome, Work, acquire, credit};
use crate::demand::Row;
use crate::intern::{KeyIx, Map, ValueIx};
use crate::lanes::Lanes;
use crate::members::PoolIx;
use crate::pass::{Domain, Pass, Tier};
use crate::place::{Drain, Place};

/// How many candidates are told.
const TOLD: usize = 6;

/// Where a gang goes.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// `None`: no machine anywhere helps.
    pub(crate) domain: Option<Domain>,
    pub(crate) satisfiable: bool,
    /// The best covered values, at most [`TOLD`].
    pub(crate) candidates: Vec<Told>,
}

impl Choice {
    /// A gang that wants nothing needs no domain.
    pub(crate) const NOTHING_WANTED: Self = Self { domain: None, satisfiable: true, candidates: Vec::new() };
}

/// A value that was considered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) value: ValueIx,
    /// The share of the scarcest lane, in thousandths.
    pub(crate) per_mille: u16,
    pub(crate) satisfiable: bool,
}

/// What one value offers.
#[derive(Debug, Default)]
struct Offer {
    count: u64,
    creditable_count: u64,
    total: Lanes,
    credit: Lanes,
    own: Lanes,
    /// Credit and Idle machines.
    near: Lanes,
}

/// The greater the better. The satisfiable compare by credit, own, near and least over-commitment; the others by
/// total, credit and own; then all by number of machines.
type Rank = (bool, [i128; 3], Reverse<i128>, u64);

impl Offer {
    fn rank(&self, deficit: &Lanes) -> Rank {
        let share = |lanes: &Lanes| lanes.coverage(deficit, true);
        // Slack must not move a gang that its credit covers.
        let served = self.credit.covers(deficit);
        let count = if served { self.creditable_count } else { self.count };
        if self.total.covers(deficit) {
            let commitment = if served { &self.credit } else { &self.total };
            let shares = [share(&self.credit), share(&self.own), share(&self.near)];
            (true, shares, Reverse(commitment.coverage(deficit, false)), count)
        } else {
            (false, [share(&self.total), share(&self.credit), share(&self.own)], Reverse(0), count)
        }
    }
}

/// What kind of offer a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Own,
    OtherCredit,
    Idle,
    Speculative,
    /// Ordered by an earlier pass and on its way.
    OwnDrain,
}

/// Whether the gang's own bound machines in one domain cover it.
pub(super) fn own_suffice(pass: &Pass<'_>, row: &Row, key: KeyIx) -> bool {
    let mut sums: Map<ValueIx, Lanes> = Map::default();
    for ix in pass.fleet.pools.own_bound(row.cluster, row.stamp) {
        let pool = pass.fleet.pools.get(*ix);
        let matches = pass.fleet.place(*ix).is_creditable() && pass.matching.matches(row.profile, pool.class);
        if let (true, Some(value)) = (matches, pass.fleet.classes.domain(pool.class, key)) {
            let worth = pass.fleet.classes.capacity(pool.class);
            sums.entry(value).or_default().add(&worth.times(i64::from(pass.free(*ix))));
        }
    }
    sums.values().any(|sum| sum.covers(&row.aggregate))
}

/// Chooses the domain, claims what it has and acquires what it lacks, all at once.
pub(super) fn settle(pass: &mut Pass<'_>, row: &Row, key: KeyIx) -> Outcome {
    let mut work = Work::new(row);
    let offers = offers(pass, row, key);
    let text = |value: &ValueIx| pass.symbols.value_text(*value);
    let best = offers.iter().max_by(|(a, x), (b, y)| {
        x.rank(&row.aggregate).cmp(&y.rank(&row.aggregate)).then_with(|| text(b).cmp(&text(a)))
    });
    let chosen = best.map(|(value, offer)| (*value, offer.total.covers(&row.aggregate)));
    let candidates = told(pass, &offers, &row.aggregate);
    let Some((value, satisfiable)) = chosen else {
        let choice = Some(Choice { domain: None, satisfiable: false, candidates });
        return Outcome { residual: work.remaining, choice, ..Outcome::default() };
    };
    let domain = Some(Domain { key, value });
    credit::inside(pass, row, &mut work, Domain { key, value });
    // No money for a gang that cannot start.
    let acquired = acquire::acquire(pass, row, &mut work, acquire::Within { domain, buys: satisfiable });
    let choice = Some(Choice { domain, satisfiable, candidates });
    Outcome { residual: work.remaining, credited: work.credited, acquired, choice, ..Outcome::default() }
}

/// What each value offers the gang, over unclaimed machines that match and help.
fn offers(pass: &mut Pass<'_>, row: &Row, key: KeyIx) -> Map<ValueIx, Offer> {
    let mut pools: Vec<(Kind, PoolIx)> = Vec::new();
    for part in credit::Part::ALL {
        let kind = if part.is_own() { Kind::Own } else { Kind::OtherCredit };
        pools.extend(credit::unordered(pass, row, part).into_iter().map(|ix| (kind, ix)));
    }
    for (tier, kind) in [(Tier::Idle, Kind::Idle), (Tier::Speculative, Kind::Speculative)] {
        let all = acquire::candidates(pass, row, tier);
        pools.extend(all.list.iter().map(|(_, ix)| (kind, *ix)));
        all.give_back(pass);
    }
    for ix in pass.fleet.pools.draining() {
        let place = pass.fleet.place(*ix);
        if let Place::Draining(Drain::For { cluster, stamp, .. }) = place
            && (cluster, stamp) == (row.cluster, row.stamp)
        {
            pools.push((Kind::OwnDrain, *ix));
        }
    }
    let mut offers: Map<ValueIx, Offer> = Map::default();
    for (kind, ix) in pools {
        let (class, free) = (pass.fleet.pools.get(ix).class, pass.free(ix));
        let capacity = pass.fleet.classes.capacity(class);
        let fits = kind == Kind::Own || capacity.covers(&row.min_unit);
        let useful = free > 0 && fits && capacity.reduces(&row.aggregate);
        if !useful || !pass.matching.matches(row.profile, class) {
            continue;
        }
        let Some(value) = pass.fleet.classes.domain(class, key) else { continue };
        let worth = capacity.times(i64::from(free));
        let offer = offers.entry(value).or_default();
        offer.count += u64::from(free);
        offer.total.add(&worth);
        if matches!(kind, Kind::Own | Kind::OtherCredit) {
            offer.creditable_count += u64::from(free);
            offer.credit.add(&worth);
        }
        if kind == Kind::Own {
            offer.own.add(&worth);
        }
        if matches!(kind, Kind::Own | Kind::OtherCredit | Kind::Idle) {
            offer.near.add(&worth);
        }
    }
    offers
}

/// The best covered values, for inspection.
fn told(pass: &Pass<'_>, offers: &Map<ValueIx, Offer>, deficit: &Lanes) -> Vec<Told> {
    let mut all: Vec<Told> = offers
        .iter()
        .map(|(value, offer)| Told {
            value: *value,
            per_mille: offer.total.per_mille(deficit),
            satisfiable: offer.total.covers(deficit),
        })
        .collect();
    all.sort_by_key(|told| (Reverse(told.per_mille), pass.symbols.value_text(told.value)));
    all.truncate(TOLD);
    all
}
