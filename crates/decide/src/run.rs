//! The engine on one file.

use std::sync::Arc;

use bigfleet_engine::{Decisions, Engine, Event, Policy};
use bigfleet_types::MachineId;

use crate::input::Input;
use crate::report::{
    Answer, Candidate, Decided, MemberVerdict, Preemption, Report, SameVerdict, Shortfall, Verdict,
};

/// Runs the engine on the content of a file, once.
#[must_use]
pub fn decide(input: &Input) -> Report {
    let mut engine = Engine::new(Policy { victims: input.victims.into(), ..input.policy.clone() });
    for (machine, facts) in &input.fleet {
        engine.apply(Event::Machine { machine: Arc::new(machine.clone()), facts: facts.clone() });
    }
    for (cluster, rows) in &input.demand {
        engine.apply(Event::Demand { cluster: cluster.clone(), rows: rows.clone(), at: input.now });
    }
    for cluster in &input.ready {
        engine.apply(Event::Heard(cluster.clone()));
    }
    let decisions = engine.decide(input.now);
    Report::new(input, answer(decisions, engine.claimed().collect()))
}

fn answer(decisions: Decisions, claimed: Vec<MachineId>) -> Answer {
    let actions = decisions.actions.into_iter().map(|action| Decided {
        kind: action.kind,
        machine: action.machine,
        cluster: action.cluster,
        need: action.need_key,
        grace_seconds: action.grace.as_secs(),
        preemptor_priority: action.preemptor_priority,
    });
    let needs = decisions.verdicts.into_iter().map(|verdict| Verdict {
        priority: verdict.need.profile.priority(),
        key: verdict.key,
        members: members(&verdict.gangs),
        satisfied: verdict.satisfied,
        residual: verdict.residual,
        claimed: verdict.claimed.into(),
        bootstraps: verdict.bootstraps.into(),
        provisions: verdict.provisions.into(),
        same: verdict.same.map(same),
        reason: verdict.reason,
        supply: verdict.supply,
        preemption: verdict.preemption.map(|preemption| Preemption {
            victims_found: preemption.victims.into(),
            capacity_freed: preemption.freed,
        }),
    });
    let shortfalls = decisions.shortfalls.into_iter().map(|shortfall| Shortfall {
        priority: shortfall.need.profile.priority(),
        key: shortfall.key,
        deficit: shortfall.deficit,
        preempted: shortfall.preempted,
    });
    Answer { actions: actions.collect(), needs: needs.collect(), shortfalls: shortfalls.collect(), claimed }
}

fn members(gangs: &bigfleet_engine::Gangs) -> Vec<MemberVerdict> {
    let member = |gang: bigfleet_engine::GangVerdict| MemberVerdict {
        fingerprint: gang.key.fingerprint,
        group: gang.key.group,
        satisfied: gang.satisfied,
    };
    gangs.iter().map(member).collect()
}

fn same(same: bigfleet_engine::SameVerdict) -> SameVerdict {
    let candidate = |candidate: bigfleet_engine::Candidate| Candidate {
        domain: candidate.domain.to_string(),
        coverage_per_mille: candidate.per_mille,
        satisfiable: candidate.satisfiable,
    };
    SameVerdict {
        domain: same.domain.as_deref().unwrap_or_default().to_owned(),
        satisfiable: same.satisfiable,
        candidates: same.candidates.into_iter().map(candidate).collect(),
    }
}
