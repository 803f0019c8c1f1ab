//! Gangs: one value of the Same key for all machines (engine.md 9).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bigfleet_engine::Candidate;
use bigfleet_types::MachineState;

use crate::amounts::Amounts;
use crate::pass::{Part, Pass};

/// What one value of the key offers a gang.
#[derive(Debug, Clone, Default)]
struct Domain {
    count: usize,
    total: Amounts,
    credit: Amounts,
    own: Amounts,
    near: Amounts,
    /// The part of `credit` that no other live Need is stamped on, and of how many machines.
    unspoken: Amounts,
    unspoken_count: usize,
}

/// Greater is better; compares only as intended between domains that are both satisfiable or both not, which the
/// first member sees to.
type Rank = (bool, [i128; 3], Reverse<i128>, usize);

impl Domain {
    /// Rules 1 to 9. Where the creditable part covers, 4, 5 and 9 look at `unspoken` only: slack must not move the gang,
    /// nor what its siblings bind and release because of it (ADR 7).
    fn rank(&self, deficit: &Amounts) -> Rank {
        let share = |amounts: &Amounts| amounts.coverage(deficit, true);
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
}

impl Pass<'_> {
    /// Chooses the domain, claims what it has and acquires what it lacks, all at once.
    pub(crate) fn settle_gang(&mut self, row: usize) {
        self.progress[row].settled = true;
        let deficit = self.rows[row].aggregate.clone();
        let domains = self.domains(row, &deficit);
        self.progress[row].candidates = candidates(&domains, &deficit);
        // Rule 10: of equals the smallest value, which is the last in reverse order.
        let best = domains.iter().rev().max_by_key(|(_, domain)| domain.rank(&deficit));
        let Some((value, domain)) = best else { return };
        let satisfiable = domain.total.covers(&deficit);
        self.progress[row].domain = Some(value.clone());
        self.progress[row].same_satisfiable = satisfiable;
        for unit in self.walk(row) {
            if self.is_in(row, unit, Some(value)) {
                self.credit(row, unit);
            }
        }
        self.acquire(row, Some(value), satisfiable);
    }

    /// Every value that an unclaimed machine carries that the gang could use, with what it offers.
    fn domains(&self, row: usize, deficit: &Amounts) -> BTreeMap<String, Domain> {
        let Some(key) = self.rows[row].same_key() else { return BTreeMap::new() };
        let gang = self.rows[row].key();
        let mut domains: BTreeMap<String, Domain> = BTreeMap::new();
        for unit in self.all_units().filter(|unit| !self.is_claimed(*unit)) {
            let of = &self.units[unit];
            let worth = self.contribution(row, unit);
            let (Some(value), true) = (of.domain(key), worth.lessens(deficit)) else { continue };
            let part = self.creditable(row, unit);
            let fits = self.is_suitable(row, unit);
            let acquirable = of.is_acquirable() && fits;
            let own_drain = fits && of.drains_for().is_some_and(|(need, _)| *need == gang);
            if part.is_none() && !acquirable && !own_drain {
                continue;
            }
            let domain = domains.entry(value.to_owned()).or_default();
            domain.count += 1;
            domain.total = domain.total.add(&worth);
            if let Some(part) = part {
                domain.credit = domain.credit.add(&worth);
                if part != Part::Sibling {
                    domain.unspoken_count += 1;
                    domain.unspoken = domain.unspoken.add(&worth);
                }
                if matches!(part, Part::OwnBound | Part::OwnCreating) {
                    domain.own = domain.own.add(&worth);
                }
            }
            if part.is_some() || (acquirable && of.state() == MachineState::Idle) {
                domain.near = domain.near.add(&worth);
            }
        }
        domains
    }
}

/// At most 6, the best covered first, for inspection only.
fn candidates(domains: &BTreeMap<String, Domain>, deficit: &Amounts) -> Vec<Candidate> {
    let candidate = |(value, domain): (&String, &Domain)| Candidate {
        domain: value.as_str().into(),
        per_mille: domain.total.per_mille(deficit),
        satisfiable: domain.total.covers(deficit),
    };
    let mut all: Vec<Candidate> = domains.iter().map(candidate).collect();
    all.sort_by_key(|candidate| (Reverse(candidate.per_mille), candidate.domain.clone()));
    all.truncate(6);
    all
}
