//! One verdict per Need: what it got, what it lacks and why.

use bigfleet_types::MachineState;

use crate::decision::{MatchingSupply, Shortfall, UnmetReason, Verdict};
use crate::demand::Row;
use crate::intern::Map;
use crate::lanes::{LaneSet, Lanes};
use crate::matching::ProfileIx;
use crate::pass::Pass;
use crate::phase1::Outcome;

/// Counts above this are cut.
const SUPPLY_CAP: u16 = 256;

/// Builds verdicts, and counts supply once for all Needs that see the same.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    supply: Map<(ProfileIx, Lanes, LaneSet), MatchingSupply>,
}

impl Verdicts {
    /// The verdict of one row.
    pub(crate) fn of(&mut self, pass: &mut Pass<'_>, row: &Row, outcome: &Outcome) -> Verdict {
        let satisfied = outcome.residual.is_zero();
        let claimed = outcome.credited + outcome.acquired.len();
        let supply = (!satisfied).then(|| self.supply(pass, row));
        let none = |supply: MatchingSupply| supply.idle + supply.configured + supply.speculative == 0;
        let reason = match supply {
            None => UnmetReason::Unspecified,
            Some(_) if row.unsupported.is_some() => UnmetReason::Unspecified,
            Some(supply) if claimed == 0 && none(supply) => UnmetReason::NoMatchingSupply,
            Some(_) => UnmetReason::PriorityStarved,
        };
        Verdict {
            need: row.need.clone(),
            key: row.key.clone(),
            arrival: row.arrival,
            satisfied,
            residual: pass.symbols.dimensions.resources(&outcome.residual),
            claimed: count(claimed),
            bootstraps: count(outcome.acquired_from(pass, MachineState::Idle)),
            provisions: count(outcome.acquired_from(pass, MachineState::Speculative)),
            reason,
            supply,
            unsupported: row.unsupported,
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

/// What the unsatisfied Needs lack, in the order of the report. Until there is a Phase 2, that is all of it.
pub(crate) fn shortfalls(verdicts: &[Verdict]) -> Vec<Shortfall> {
    let unmet = verdicts.iter().filter(|verdict| !verdict.satisfied);
    let mut shortfalls: Vec<_> = unmet
        .map(|verdict| Shortfall {
            key: verdict.key.clone(),
            need: verdict.need.clone(),
            deficit: verdict.residual.clone(),
        })
        .collect();
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
