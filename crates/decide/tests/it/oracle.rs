//! The second engine of the workspace, which knows all the rules, behind the same formats.

use std::sync::Arc;

use bigfleet_decide::{Input, Report};
use bigfleet_engine::{Action, Decisions, GangVerdict, Shortfall, Verdict};
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
    Report::new(input, decisions(oracle::decide(&world)))
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

fn decisions(outcome: oracle::Outcome) -> Decisions {
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
        verdicts: outcome.verdicts.into_iter().map(verdict).collect(),
        shortfalls: shortfalls.collect(),
        claimed: outcome.claimed.into_iter().collect(),
    }
}

fn verdict(verdict: oracle::Verdict) -> Verdict {
    let count = |number: usize| u32::try_from(number).unwrap();
    let gangs = verdict.members.into_iter().map(|member| {
        let cluster = verdict.key.cluster.clone();
        let key = NeedKey { cluster, fingerprint: member.fingerprint, group: member.group };
        let need = need(&key, verdict.priority);
        GangVerdict { need, key, arrival: Default::default(), satisfied: member.satisfied }
    });
    Verdict {
        need: need(&verdict.key, verdict.priority),
        gangs: gangs.collect(),
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
