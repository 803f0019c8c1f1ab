//! The second engine of the workspace, which knows all the rules, behind the same formats.

use bigfleet_decide::{
    Answer, Candidate, Decided, Input, MemberVerdict, Preemption, Report, SameVerdict, Shortfall, Verdict,
};
use bigfleet_engine::MatchingSupply;
use bigfleet_oracle as oracle;

/// What the oracle decides on a file.
pub(crate) fn decide(input: &Input) -> Report {
    let victims = oracle::VictimRules {
        priority: input.victims.priority,
        drain: input.victims.drain,
        interruption: input.victims.interruption,
        reclamation: input.victims.reclamation,
        drain_estimate: input.victims.drain_estimate,
    };
    let world = oracle::World {
        machines: input.fleet.clone(),
        demand: input.demand.iter().cloned().collect(),
        heard: input.ready.clone(),
        policy: input.policy.clone(),
        victims,
        now: input.now,
    };
    Report::new(input, answer(oracle::decide(&world)))
}

fn answer(outcome: oracle::Outcome) -> Answer {
    let actions = outcome.actions.into_iter().map(|action| {
        assert_eq!(action.reason, action.kind.reason());
        Decided {
            kind: action.kind,
            machine: action.machine,
            cluster: action.cluster,
            need: action.need,
            grace_seconds: action.grace.as_secs(),
            preemptor_priority: action.preemptor_priority,
        }
    });
    let shortfalls = outcome.shortfalls.into_iter().map(|shortfall| Shortfall {
        key: shortfall.key,
        priority: shortfall.priority,
        deficit: shortfall.deficit,
        preempted: shortfall.preempted,
    });
    Answer {
        actions: actions.collect(),
        needs: outcome.verdicts.into_iter().map(verdict).collect(),
        shortfalls: shortfalls.collect(),
        claimed: outcome.claimed.into_iter().collect(),
    }
}

fn verdict(verdict: oracle::Verdict) -> Verdict {
    let count = |number: usize| u64::try_from(number).unwrap();
    let members = verdict.members.into_iter().map(|member| MemberVerdict {
        fingerprint: member.fingerprint,
        group: member.group,
        satisfied: member.satisfied,
    });
    Verdict {
        key: verdict.key,
        priority: verdict.priority,
        members: members.collect(),
        satisfied: verdict.satisfied,
        residual: verdict.residual,
        claimed: count(verdict.machines.len()),
        bootstraps: count(verdict.bootstraps),
        provisions: count(verdict.provisions),
        same: verdict.same.map(|same| SameVerdict {
            domain: same.domain.unwrap_or_default(),
            satisfiable: same.satisfiable,
            candidates: same.candidates.into_iter().map(candidate).collect(),
        }),
        reason: verdict.reason,
        supply: verdict.supply.map(|supply| MatchingSupply {
            idle: supply.idle,
            configured: supply.configured,
            speculative: supply.speculative,
            capped: supply.capped,
        }),
        preemption: verdict.preemption.map(|preemption| Preemption {
            victims_found: count(preemption.victims),
            capacity_freed: preemption.freed,
        }),
    }
}

fn candidate(candidate: oracle::Candidate) -> Candidate {
    Candidate {
        domain: candidate.domain,
        coverage_per_mille: candidate.per_mille,
        satisfiable: candidate.satisfiable,
    }
}
