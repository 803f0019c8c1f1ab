//! What this version cannot decide yet: gangs, enforced spread and preemption. An answer that might be wrong is not
//! given at all. All of this goes when the engine learns the three.

use bigfleet_engine::{Decisions, Purpose, Unsupported, Verdict, matches};
use bigfleet_types::{Machine, MachineState};

use crate::input::Input;

/// A Need that this version cannot decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: this version does not decide {what}")]
pub struct NotYet {
    /// The Need in the file.
    pub path: String,
    /// What it would take.
    pub what: String,
}

pub(crate) fn check(input: &Input, decisions: &Decisions) -> Result<(), NotYet> {
    for verdict in &decisions.verdicts {
        if let Some(what) = missing(input, verdict) {
            return Err(NotYet { path: path(input, verdict), what });
        }
    }
    Ok(())
}

fn missing(input: &Input, verdict: &Verdict) -> Option<String> {
    match verdict.unsupported {
        Some(Unsupported::Same) => return Some("needs with OPERATOR_SAME".to_owned()),
        Some(Unsupported::Spread) => {
            return Some(
                "needs with an enforced spread over a key other than kubernetes.io/hostname".to_owned(),
            );
        }
        None => {}
    }
    let matters = |(machine, purpose): (&Machine, &Purpose)| match machine.state {
        // A stamp says the least that a machine's priority can be; without one that is not known.
        MachineState::Configured => {
            let lower = machine.attribution.priority.is_none_or(|p| p < verdict.need.profile.priority());
            machine.cluster.as_ref() != Some(&verdict.key.cluster) && lower
        }
        MachineState::Draining => *purpose != Purpose::None,
        _ => false,
    };
    let helps = |machine: &Machine| {
        let capacity = machine.capacity();
        matches(&verdict.need.profile, machine)
            && capacity.covers(&verdict.need.min_unit)
            && verdict.residual.iter().any(|(name, _)| capacity.get(name.as_str()) > 0)
    };
    let mut fleet = input.fleet.iter().filter(|_| !verdict.satisfied);
    let victim = fleet
        .find(|(machine, facts)| matters((machine, &facts.preempted_for)) && helps(machine))
        .map(|(machine, _)| machine)?;
    Some(match victim.state {
        MachineState::Draining => {
            format!("preemptions, and machine {:?} is being drained", victim.id.as_str())
        }
        _ => format!("preemptions, and machine {:?} might have to make way", victim.id.as_str()),
    })
}

/// Where the first row of the Need is.
fn path(input: &Input, verdict: &Verdict) -> String {
    let rows = input.demand.iter().enumerate().flat_map(|(cluster, (id, rows))| {
        rows.iter().enumerate().map(move |(row, need)| (cluster, row, need.key(id)))
    });
    let mut rows = rows.filter(|(_, _, key)| *key == verdict.key);
    rows.next()
        .map_or("$.demand".to_owned(), |(cluster, row, _)| format!("$.demand[{cluster}].rollup.needs[{row}]"))
}
