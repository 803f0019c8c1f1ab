//! One verdict per Need: what it got, what it lacks and why.

use std::sync::Arc;

use bigfleet_types::{MachineState, Need};

use crate::decision::{
    Candidate, Gangs, MatchingSupply, Preemption, SameVerdict, Shortfall, UnmetReason, Verdict,
};
use crate::demand::Row;
use crate::intern::{Map, Symbols};
use crate::lanes::{LaneSet, Lanes};
use crate::matching::ProfileIx;
use crate::pass::Pass;
use crate::phase1::{Choice, Outcome, Told};

/// Counts above this are cut.
const SUPPLY_CAP: u16 = 256;

/// Builds verdicts, and counts supply once for all Needs that see the same.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    supply: Map<(ProfileIx, Lanes, LaneSet), MatchingSupply>,
}

impl Judge {
    /// The verdict of one row.
    pub(crate) fn of(&mut self, pass: &mut Pass<'_>, row: &Row, outcome: &Outcome) -> Verdict {
        let satisfied = outcome.residual.is_zero();
        let supply = (!satisfied).then(|| self.supply(pass, row));
        let dimensions = &pass.symbols.dimensions;
        let preemption = (!outcome.victims().is_empty()).then(|| {
            let mut freed = Lanes::default();
            outcome.victims().iter().for_each(|slot| freed.add(pass.fleet.capacity(*slot)));
            Preemption { victims: count(outcome.victims().len()), freed: dimensions.resources(&freed) }
        });
        Verdict {
            need: row.need.clone(),
            key: row.key(pass.symbols),
            arrival: row.arrival,
            satisfied,
            residual: dimensions.resources(&outcome.residual),
            claimed: count(outcome.credited.len() + outcome.acquired.len()),
            bootstraps: count(outcome.acquired_from(pass, MachineState::Idle)),
            provisions: count(outcome.acquired_from(pass, MachineState::Speculative)),
            reason: reason(outcome, supply),
            supply,
            same: outcome.choice.as_ref().map(|choice| same(pass.symbols, choice)),
            preemption,
            gangs: gangs(pass, row, outcome),
        }
    }

    fn supply(&mut self, pass: &mut Pass<'_>, row: &Row) -> MatchingSupply {
        let demanded: LaneSet = row.aggregate.positive().collect();
        let key = (row.profile, row.min_unit.clone(), demanded);
        if let Some(supply) = self.supply.get(&key) {
            return *supply;
        }
        pass.matching.look(row.profile, &pass.fleet.classes);
        let (mut idle, mut configured, mut speculative) = (0u64, 0u64, 0u64);
        for class in pass.matching.classes(row.profile) {
            let class = pass.fleet.classes.get(*class);
            let capacity = &class.traits.capacity;
            if capacity.covers(&row.min_unit) && capacity.reduces(&row.aggregate) {
                idle += u64::from(class.supply.idle);
                configured += u64::from(class.supply.configured);
                speculative += u64::from(class.supply.speculative);
            }
        }
        let cap = |number: u64| u16::try_from(number).unwrap_or(SUPPLY_CAP).min(SUPPLY_CAP);
        let capped = [idle, configured, speculative].into_iter().any(|number| number > u64::from(SUPPLY_CAP));
        let supply = MatchingSupply {
            idle: cap(idle),
            configured: cap(configured),
            speculative: cap(speculative),
            capped,
        };
        self.supply.insert(key, supply);
        supply
    }
}

/// Brings the verdict of a row up to date that wants something else and is satisfied by what it had. One that is not had a
/// turn all the same, and a verdict since. Gives what is not needed any more.
pub(crate) fn renew(verdict: &mut Verdict, row: &Row) -> Option<Arc<Need>> {
    if !verdict.satisfied {
        return None;
    }
    let before = std::mem::replace(&mut verdict.need, row.need.clone());
    if let Some(needs) = &row.gangs {
        verdict.gangs.satisfied = needs.len();
        verdict.gangs.needs = Some(needs.clone());
    }
    Some(before)
}

/// The first reason that holds.
fn reason(outcome: &Outcome, supply: Option<MatchingSupply>) -> UnmetReason {
    let Some(supply) = supply else { return UnmetReason::Unspecified };
    if outcome.choice.as_ref().is_some_and(|choice| !choice.satisfiable) {
        UnmetReason::TopologyUnsatisfiable
    } else if outcome.claimed().next().is_none() && supply == MatchingSupply::default() {
        UnmetReason::NoMatchingSupply
    } else if outcome.unresolved().is_some() && !outcome.victims().is_empty() {
        UnmetReason::PreemptionExhausted
    } else {
        UnmetReason::PriorityStarved
    }
}

fn same(symbols: &Symbols, choice: &Choice) -> SameVerdict {
    let candidate = |told: &Told| {
        Some(Candidate {
            domain: symbols.value_text(told.value)?.clone(),
            per_mille: told.per_mille,
            satisfiable: told.satisfiable,
        })
    };
    SameVerdict {
        domain: choice.domain.and_then(|domain| symbols.value_text(domain.value).cloned()),
        satisfiable: choice.satisfiable,
        candidates: choice.candidates.iter().filter_map(candidate).collect(),
    }
}

/// Of a folded Need's gangs the first are satisfied, as many as its machines hold.
fn gangs(pass: &Pass<'_>, row: &Row, outcome: &Outcome) -> Gangs {
    let Some(needs) = &row.gangs else { return Gangs::default() };
    let whole = |slot| pass.fleet.capacity(slot).whole_units(&row.min_unit);
    let satisfied = if outcome.residual.is_zero() {
        needs.len()
    } else {
        let covered = outcome.claimed().map(whole).fold(0, i64::saturating_add);
        usize::try_from(covered).unwrap_or(0).min(needs.len())
    };
    let cluster = Some(pass.symbols.name(row.cluster).clone());
    Gangs { cluster, needs: Some(needs.clone()), satisfied }
}

/// What no phase could meet of Needs that lack something, in the order of the report.
pub(crate) fn shortfalls<'o>(
    symbols: &Symbols,
    unmet: impl Iterator<Item = (&'o Row, &'o Outcome)>,
) -> Vec<Shortfall> {
    let unresolved = unmet.filter_map(|(row, outcome)| {
        Some(Shortfall {
            key: row.key(symbols),
            need: row.need.clone(),
            deficit: symbols.dimensions.resources(outcome.unresolved()?),
            preempted: !outcome.victims().is_empty(),
        })
    });
    let mut shortfalls: Vec<_> = unresolved.collect();
    shortfalls.sort_by(|a, b| {
        let order = |s: &Shortfall| (std::cmp::Reverse(s.need.profile.priority()), s.key.fingerprint);
        let ties = |s: &Shortfall| (s.key.cluster.clone(), s.key.group.clone());
        order(a).cmp(&order(b)).then_with(|| ties(a).cmp(&ties(b)))
    });
    shortfalls
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
