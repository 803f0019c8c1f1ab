//! Gangs: one value of a key for all machines, chosen once a pass; credit, acquisition and preemption keep to it.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::terrain::{self, Moment, Terrain};
use super::{Outcome, Work, acquire, credit};
use crate::demand::Row;
use crate::intern::{KeyIx, Map, ValueIx};
use crate::lanes::Lanes;
use crate::members::PoolIx;
use crate::pass::{Domain, Pass, Tier};
use crate::place::{Drain, Place};

/// How many candidates are told.
pub(super) const TOLD: usize = 6;

/// Where a gang goes.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// `None`: no machine anywhere helps.
    pub(crate) domain: Option<Domain>,
    pub(crate) satisfiable: bool,
    /// The best covered values, at most [`TOLD`].
    pub(crate) candidates: Vec<Told>,
    /// What the gang had a claim on, by domain, before it looked at what is free.
    pub(crate) had: Vec<(ValueIx, Lanes)>,
    /// What the terrain was like when the candidates were found.
    pub(crate) told_at: Moment,
}

impl Choice {
    /// A gang that wants nothing needs no domain.
    pub(crate) const NOTHING_WANTED: Self = Self {
        domain: None,
        satisfiable: true,
        candidates: Vec::new(),
        had: Vec::new(),
        told_at: Moment::NEVER,
    };
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Offer {
    pub(super) count: u64,
    pub(super) total: Lanes,
    credit: Lanes,
    own: Lanes,
    /// Credit and Idle machines.
    near: Lanes,
    /// The credit that no other live Need is stamped on, and of how many machines.
    unspoken: Lanes,
    unspoken_count: u64,
}

/// The greater the better. The satisfiable compare by credit, own, near and least over-commitment; the others by
/// total, credit and own; then all by number of machines. What credit covers compares by what is unspoken of it, from
/// near on: neither slack may move the gang, nor what its siblings bind and release because of it.
pub(super) type Rank = (bool, [i128; 3], Reverse<i128>, u64);

impl Offer {
    pub(super) fn rank(&self, deficit: &Lanes) -> Rank {
        let share = |lanes: &Lanes| lanes.coverage(deficit, true);
        let served = self.credit.covers(deficit);
        let count = if served { self.unspoken_count } else { self.count };
        if self.total.covers(deficit) {
            let (near, commitment) =
                if served { (&self.unspoken, &self.unspoken) } else { (&self.near, &self.total) };
            let shares = [share(&self.credit), share(&self.own), share(near)];
            (true, shares, Reverse(commitment.coverage(deficit, false)), count)
        } else {
            (false, [share(&self.total), share(&self.credit), share(&self.own)], Reverse(0), count)
        }
    }

    fn add(&mut self, kind: Kind, capacity: &Lanes, machines: u32) {
        let worth = capacity.times(i64::from(machines));
        self.count += u64::from(machines);
        self.total.add(&worth);
        if matches!(kind, Kind::Own | Kind::Nobodys | Kind::Siblings) {
            self.credit.add(&worth);
        }
        if kind == Kind::Own {
            self.own.add(&worth);
        }
        if matches!(kind, Kind::Own | Kind::Nobodys) {
            self.unspoken.add(&worth);
            self.unspoken_count += u64::from(machines);
        }
        if matches!(kind, Kind::Own | Kind::Nobodys | Kind::Siblings | Kind::Idle) {
            self.near.add(&worth);
        }
    }

    /// Adds machines that are for the taking.
    pub(super) fn add_free(&mut self, capacity: &Lanes, machines: u32, tier: Tier) {
        if machines > 0 {
            let kind = if tier == Tier::Idle { Kind::Idle } else { Kind::Speculative };
            self.add(kind, capacity, machines);
        }
    }

    /// Adds what is free.
    fn join(&mut self, free: &Self) {
        self.count += free.count;
        self.total.add(&free.total);
        self.near.add(&free.near);
    }
}

/// What kind of offer a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Own,
    /// Credit that is stamped for no Need of today, or for whom is not known.
    Nobodys,
    /// Credit that is stamped for another Need.
    Siblings,
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
    let (sight, mut terrain) = terrain::borrow(pass, row, key);
    let mut offers = claims_on(pass, row, key);
    let had = offers.iter().map(|(value, offer)| (*value, offer.total.clone())).collect();
    for (value, offer) in &mut offers {
        terrain.free(*value).into_iter().for_each(|free| offer.join(free));
    }
    terrain.prepare(&row.aggregate);
    let (chosen, candidates) = choose(pass, &mut terrain, &offers, &row.aggregate);
    let told_at = terrain.moment();
    terrain::give_back(pass, sight, terrain);
    let Some((value, satisfiable)) = chosen else {
        let choice = Choice { domain: None, satisfiable: false, candidates, had, told_at };
        return Outcome { residual: work.remaining, choice: Some(Box::new(choice)), ..Outcome::default() };
    };
    let domain = Some(Domain { key, value });
    credit::inside(pass, row, &mut work, Domain { key, value });
    // No money for a gang that cannot start.
    let acquired = acquire::acquire(pass, row, &mut work, acquire::Within { domain, buys: satisfiable });
    let choice = Some(Box::new(Choice { domain, satisfiable, candidates, had, told_at }));
    let (residual, credited) = (work.remaining, work.credited);
    Outcome { residual, credited, acquired, choice, ..Outcome::default() }
}

/// The best value, whether it can hold the gang, and what is told of the choice. `offers` has the values where the gang
/// has a claim on something; in all others there is but what is free.
fn choose(
    pass: &Pass<'_>,
    terrain: &mut Terrain,
    offers: &Map<ValueIx, Offer>,
    deficit: &Lanes,
) -> (Option<(ValueIx, bool)>, Vec<Told>) {
    let text = |value: ValueIx| Reverse(pass.symbols.value_text(value));
    let ours = offers.iter().map(|(value, offer)| (offer.rank(deficit), text(*value), *value, offer));
    let ours = ours.max_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let free = terrain.best(deficit, offers);
    let free = free.map(|(rank, value, offer)| (*rank, text(value), value, offer));
    let best = ours.into_iter().chain(free).max_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let chosen = best.map(|(_, _, value, offer)| (value, offer.total.covers(deficit)));

    let ours: SmallVec<[(ValueIx, &Lanes); 8]> =
        offers.iter().map(|(value, offer)| (*value, &offer.total)).collect();
    (chosen, tell(pass, terrain, &ours, deficit))
}

/// The best covered values. `ours` has those where the gang has a claim on something, with all that is there.
pub(super) fn tell(
    pass: &Pass<'_>,
    terrain: &mut Terrain,
    ours: &[(ValueIx, &Lanes)],
    deficit: &Lanes,
) -> Vec<Told> {
    let known: SmallVec<[ValueIx; 8]> = ours.iter().map(|(value, _)| *value).collect();
    let free = terrain.best_covered(deficit, &known, TOLD);
    let free = free.map(|(value, per_mille, offer)| (value, per_mille, &offer.total));
    let ours = ours.iter().map(|(value, total)| (*value, total.per_mille(deficit), *total));
    let mut best: Vec<(ValueIx, u16, &Lanes)> = Vec::with_capacity(TOLD + 1);
    for (value, per_mille, total) in free.chain(ours) {
        let text = || pass.symbols.value_text(value);
        let is_behind = |other: &(ValueIx, u16, &Lanes)| {
            other.1.cmp(&per_mille).then_with(|| text().cmp(&pass.symbols.value_text(other.0))).is_lt()
        };
        let place = best.iter().rposition(|other| !is_behind(other)).map_or(0, |last| last + 1);
        if place < TOLD {
            best.insert(place, (value, per_mille, total));
            best.truncate(TOLD);
        }
    }
    let told = |(value, per_mille, total): (_, _, &Lanes)| Told {
        value,
        per_mille,
        satisfiable: total.covers(deficit),
    };
    best.into_iter().map(told).collect()
}

/// What the cluster has or gets in each value: unclaimed machines that match and help, and the gang's own drains.
fn claims_on(pass: &mut Pass<'_>, row: &Row, key: KeyIx) -> Map<ValueIx, Offer> {
    let mut pools: Vec<(Kind, PoolIx)> = Vec::new();
    for part in credit::Part::ALL {
        let kind = match part {
            credit::Part::OwnBound | credit::Part::OwnCreating => Kind::Own,
            credit::Part::Orphans | credit::Part::CreatingForAnyone => Kind::Nobodys,
            credit::Part::Siblings => Kind::Siblings,
        };
        pools.extend(credit::unordered(pass, row, part).into_iter().map(|ix| (kind, ix)));
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
        if kind == Kind::OwnDrain && (free == 0 || !pass.matching.matches(row.profile, class)) {
            continue;
        }
        let capacity = pass.fleet.classes.capacity(class);
        let fits = kind == Kind::Own || capacity.covers(&row.min_unit);
        if !fits || !capacity.reduces(&row.aggregate) {
            continue;
        }
        if let Some(value) = pass.fleet.classes.domain(class, key) {
            offers.entry(value).or_default().add(kind, capacity, free);
        }
    }
    offers
}
