//! The second engine of the workspace, which knows all the rules, behind the same formats.

use std::sync::Arc;

use bigfleet_decide::{Input, Report};
use bigfleet_engine::{Action, Decisions, Gangs, Shortfall, Verdict};
use bigfleet_oracle as oracle;
use bigfleet_types::{Need, NeedKey, PenaltyBucket, Profile, Resources};

/// What the oracle decides on a file.
pub(crate) fn decide(input: &Input) -> Report {
    let world = oracle::World {
        machines: input.fleet.clone(),
        demand: input.demand.iter().cloned().collect(),
        heard: input.ready.clone(),
        policy: input.policy.clone(),
        now: input.now,
    };
    let outcome = oracle::decide(&world);
    let claimed = outcome.claimed.iter().cloned().collect();
    Report::new(input, decisions(input, outcome), claimed)
}

/// A Need of which no more is printed than the oracle tells.
pub(crate) fn need(key: &NeedKey, priority: i32) -> Arc<Need> {
    let zero = PenaltyBucket::ZERO;
    Arc::new(Need {
        profile: Arc::new(Profile::new(vec![], vec![], priority, zero, zero)),
        aggregate: Resources::EMPTY,
        min_unit: Resources::EMPTY,
        group: key.group.clone(),
        arrival: None,
    })
}

fn decisions(input: &Input, outcome: oracle::Outcome) -> Decisions {
    let actions = outcome.actions.into_iter().map(|action| {
        assert_eq!(action.reason, action.kind.reason());
        Action {
            kind: action.kind,
            machine: action.machine,
            cluster: action.cluster,
            need: None,
            need_key: action.need,
            grace: action.grace,
            preemptor_priority: action.preemptor_priority,
        }
    });
    let shortfalls = outcome.shortfalls.into_iter().map(|shortfall| Shortfall {
        need: need(&shortfall.key, shortfall.priority),
        key: shortfall.key,
        deficit: shortfall.deficit,
        preempted: shortfall.preempted,
    });
    Decisions {
        actions: actions.collect(),
        verdicts: outcome.verdicts.into_iter().map(|of| Arc::new(verdict(input, of))).collect(),
        shortfalls: shortfalls.collect(),
    }
}

fn verdict(input: &Input, verdict: oracle::Verdict) -> Verdict {
    let count = |number: usize| u32::try_from(number).unwrap();
    let satisfied = verdict.members.iter().filter(|member| member.satisfied).count();
    assert!(verdict.members[..satisfied].iter().all(|member| member.satisfied));
    let gang = |member: &oracle::MemberVerdict| {
        let key = NeedKey {
            cluster: verdict.key.cluster.clone(),
            fingerprint: member.fingerprint,
            group: member.group.clone(),
        };
        let (_, rows) = input.demand.iter().find(|(cluster, _)| *cluster == key.cluster).unwrap();
        Arc::new(rows.iter().find(|need| need.key(&key.cluster) == key).unwrap().clone())
    };
    let gangs: Arc<[Arc<Need>]> = verdict.members.iter().map(gang).collect();
    let gangs = if gangs.is_empty() {
        Gangs::default()
    } else {
        Gangs::new(verdict.key.cluster.clone(), gangs, satisfied)
    };
    Verdict {
        need: need(&verdict.key, verdict.priority),
        gangs,
        key: verdict.key,
        arrival: Default::default(),
        satisfied: verdict.satisfied,
        residual: verdict.residual,
        claimed: count(verdict.machines.len()),
        bootstraps: count(verdict.bootstraps),
        provisions: count(verdict.provisions),
        same: verdict.same,
        reason: verdict.reason,
        supply: verdict.supply,
        preemption: verdict.preemption,
    }
}
