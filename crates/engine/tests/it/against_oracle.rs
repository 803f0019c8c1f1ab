//! The engine against the oracle, which reads the same rules plainly and without any index.

use std::collections::BTreeSet;
use std::sync::Arc;

use bigfleet_engine::{Engine, Event};
use bigfleet_oracle::{Action, MemberVerdict, Outcome, Shortfall, Verdict, World};
use proptest::prelude::*;

use crate::dsl::{Decided, pass};
use crate::random::{Case, any_case};

/// The answer that both give; panics if they differ.
pub(crate) fn decide(world: &World) -> Outcome {
    let expected = bigfleet_oracle::decide(world);
    assert_eq!(
        answer(&pass(&mut engine(world), world.now)),
        comparable(&expected),
        "engine (left) and oracle"
    );
    expected
}

fn engine(world: &World) -> Engine {
    let mut engine = Engine::new(world.policy.clone());
    for (machine, facts) in &world.machines {
        engine.apply(Event::Machine { machine: Arc::new(machine.clone()), facts: facts.clone() });
    }
    for (cluster, rows) in &world.demand {
        let (cluster, rows) = (cluster.clone(), rows.clone());
        engine.apply(Event::Demand { cluster, rows, at: Default::default() });
    }
    world.heard.iter().for_each(|cluster| engine.apply(Event::Heard(cluster.clone())));
    engine
}

/// An outcome in which Needs tell how many machines they have, not which.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    outcome: Outcome,
    machines: Vec<usize>,
}

fn comparable(outcome: &Outcome) -> Answer {
    let machines = outcome.verdicts.iter().map(|verdict| verdict.machines.len()).collect();
    let mut outcome = outcome.clone();
    outcome.verdicts.iter_mut().for_each(|verdict| verdict.machines.clear());
    Answer { outcome, machines }
}

/// What the engine said, in the words of the oracle.
pub(crate) fn answer(decisions: &Decided) -> Answer {
    let number = |count: u32| usize::try_from(count).unwrap();
    let verdicts = decisions.verdicts.iter().map(|v| Verdict {
        key: v.key.clone(),
        priority: v.need.profile.priority(),
        members: v
            .gangs
            .iter()
            .map(|gang| MemberVerdict {
                fingerprint: gang.key.fingerprint,
                group: gang.key.group,
                satisfied: gang.satisfied,
            })
            .collect(),
        satisfied: v.satisfied,
        residual: v.residual.clone(),
        machines: Vec::new(),
        bootstraps: number(v.bootstraps),
        provisions: number(v.provisions),
        same: v.same.clone(),
        reason: v.reason,
        supply: v.supply,
        preemption: v.preemption.clone(),
    });
    let actions = decisions.actions.iter().map(|action| Action {
        kind: action.kind,
        machine: action.machine.clone(),
        cluster: action.cluster.clone(),
        need: action.need_key.clone(),
        grace: action.grace,
        preemptor_priority: action.preemptor_priority,
        reason: action.kind.reason(),
    });
    let shortfalls = decisions.shortfalls.iter().map(|shortfall| Shortfall {
        key: shortfall.key.clone(),
        priority: shortfall.need.profile.priority(),
        deficit: shortfall.deficit.clone(),
        preempted: shortfall.preempted,
    });
    Answer {
        outcome: Outcome {
            actions: actions.collect(),
            claimed: decisions.claimed.iter().cloned().collect::<BTreeSet<_>>(),
            verdicts: verdicts.collect(),
            shortfalls: shortfalls.collect(),
        },
        machines: decisions.verdicts.iter().map(|v| number(v.claimed)).collect(),
    }
}

fn world(case: &Case) -> World {
    let mut world = World::default();
    for m in &case.machines {
        world.machines.push((m.machine.clone(), m.facts.clone()));
    }
    for (name, need) in case.needs() {
        world.demand.entry(crate::dsl::cluster(name)).or_default().push(need);
    }
    world.heard = case.heard.iter().map(|name| crate::dsl::cluster(name)).collect();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Actions in order, claims, residuals, verdicts and shortfalls are equal. Nothing panics on the way (P9).
    #[test]
    fn agrees_with_the_oracle(case in any_case(24)) {
        let world = world(&case);
        let answered = answer(&pass(&mut engine(&world), world.now));
        prop_assert_eq!(answered, comparable(&bigfleet_oracle::decide(&world)));
    }
}
