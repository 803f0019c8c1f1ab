//! The engine on one file.

use std::sync::Arc;

use bigfleet_engine::{Decisions, Engine, Event};

use crate::input::Input;
use crate::interim::{self, NotYet};
use crate::report::{Answer, Decided, Report, Shortfall, Verdict};

/// Runs the engine on the content of a file, once.
///
/// # Errors
/// The Need that this version cannot decide rightly.
pub fn decide(input: &Input) -> Result<Report, NotYet> {
    let mut engine = Engine::new(input.policy.clone());
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
    interim::check(input, &decisions)?;
    Ok(Report::new(input, answer(decisions)))
}

fn answer(decisions: Decisions) -> Answer {
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
        members: Vec::new(),
        satisfied: verdict.satisfied,
        residual: verdict.residual,
        claimed: verdict.claimed.into(),
        bootstraps: verdict.bootstraps.into(),
        provisions: verdict.provisions.into(),
        same: None,
        reason: verdict.reason,
        supply: verdict.supply,
        preemption: None,
    });
    let shortfalls = decisions.shortfalls.into_iter().map(|shortfall| Shortfall {
        priority: shortfall.need.profile.priority(),
        key: shortfall.key,
        deficit: shortfall.deficit,
        preempted: false,
    });
    Answer {
        actions: actions.collect(),
        needs: needs.collect(),
        shortfalls: shortfalls.collect(),
        claimed: decisions.claimed,
    }
}
