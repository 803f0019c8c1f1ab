//! Properties that hold for every world.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::{ActionKind, Engine, Event, Policy, matches};
use bigfleet_types::{MachineState, Resources};
use proptest::prelude::*;

use crate::dsl::{M, N, NOW, cluster, count, decide, demand, machine, need, pass, secs};
use crate::random::{any_case, any_plain_case, any_single_need, by_id};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// P1 and P5: each machine is claimed and acted on at most once, from the state that the action starts in.
    #[test]
    fn i01_p01_p05_one_claim_and_one_legal_action_a_machine(case in any_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        prop_assert!(decisions.claimed.is_sorted_by(|a, b| a < b));
        let sum: u32 = decisions.verdicts.iter().map(|v| v.claimed).sum();
        prop_assert_eq!(usize::try_from(sum).unwrap(), decisions.claimed.len());
        let claimed: BTreeSet<_> = decisions.claimed.iter().map(|id| id.as_str()).collect();
        let mut seen = BTreeSet::new();
        for action in &decisions.actions {
            let id = action.machine.as_str();
            prop_assert!(seen.insert(id), "two actions on {}", id);
            let M { machine, facts } = machines[id];
            let (state, allowed, claims) = match action.kind {
                ActionKind::Bootstrap => (MachineState::Idle, facts.eligibility.acquirable, true),
                ActionKind::Provision => (MachineState::Speculative, facts.eligibility.acquirable, true),
                ActionKind::Reclaim => (MachineState::Configured, facts.eligibility.releasable, false),
                ActionKind::Delete => (MachineState::Idle, facts.eligibility.releasable, false),
                ActionKind::Preempt => (MachineState::Configured, facts.eligibility.preemptible, false),
            };
            prop_assert_eq!(machine.state, state);
            prop_assert!(allowed);
            if action.kind != ActionKind::Preempt {
                prop_assert_eq!(claimed.contains(id), claims);
            }
        }
    }

    /// P2: what is missing is the demand less what is claimed, after a raise to the floor.
    #[test]
    fn p02_residual_is_demand_less_claims(case in any_single_need()) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        let v = &decisions.verdicts[0];
        let acquired: BTreeSet<_> =
            decisions
            .actions
            .iter()
            .filter(|a| matches!(a.kind, ActionKind::Bootstrap | ActionKind::Provision))
            .map(|a| a.machine.as_str())
            .collect();
        let less = |from: Resources, bought: bool| {
            let ids = decisions.claimed.iter().map(|id| id.as_str()).filter(|id| acquired.contains(id) == bought);
            ids.fold(from, |rest, id| rest.saturating_sub(machines[id].machine.capacity()))
        };
        let plain = less(v.need.aggregate.clone(), false);
        let floor = &v.need.min_unit;
        let met = decisions.claimed.iter().any(|id| {
            !acquired.contains(id.as_str()) && machines[id.as_str()].machine.capacity().covers(floor)
        });
        let raised = if met || v.need.aggregate.is_empty() { plain } else { plain.max(floor) };
        prop_assert_eq!(&v.residual, &less(raised, true));
        prop_assert_eq!(v.satisfied, v.residual.is_empty());
    }

    /// P3: neither the order of events nor what the engine knew before changes an answer.
    #[test]
    fn i16_p03_order_and_history_do_not_matter(
        (case, events) in any_case(24).prop_flat_map(|case| {
            let events = Just(case.events()).prop_shuffle();
            (Just(case), events)
        }),
        history in any_case(12),
        looks in any::<bool>(),
    ) {
        let mut engine = Engine::new(Policy::default());
        // Another life: other numbers for the same texts, other classes, pools that emptied.
        history.machines.iter().for_each(|m| engine.apply(m.event()));
        history.demands.iter().for_each(|(name, needs)| engine.apply(demand(name, needs)));
        engine.apply(machine("0-first").label("x", "y").configured("zz").event());
        engine.apply(demand("zz", &[need(7, "example.com/bar=3 cpu=1")]));
        if looks {
            engine.decide(NOW);
        }
        for m in history.machines.iter().chain([&machine("0-first")]) {
            engine.apply(Event::Removed(m.machine.id.clone()));
        }
        for name in ["a", "b", "c", "zz"] {
            engine.apply(demand(name, &[]));
        }
        if looks {
            engine.decide(NOW);
        }
        events.into_iter().for_each(|event| engine.apply(event));
        prop_assert_eq!(engine.decide(NOW), case.engine().decide(NOW));
        prop_assert_eq!(engine.decide(NOW), case.engine().decide(NOW), "a second look changes nothing");
    }

    /// P4: no Need is unmet while one behind it acquired a machine that it could have used.
    #[test]
    fn p04_nobody_behind_takes_what_one_in_front_could_use(case in any_plain_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        let place: BTreeMap<_, _> = decisions.verdicts.iter().zip(0..).map(|(v, i)| (&v.key, i)).collect();
        for (front, v) in decisions.verdicts.iter().enumerate().filter(|(_, v)| !v.satisfied) {
            for action in decisions.actions.iter().filter(|action| action.kind != ActionKind::Preempt) {
                let behind = action.need_key.as_ref().is_some_and(|key| place[key] > front);
                let machine = &machines[action.machine.as_str()].machine;
                let helps = v.residual.iter().any(|(name, _)| machine.capacity().get(name.as_str()) > 0);
                let usable = helps && matches(&v.need.profile, machine)
                    && machine.capacity().covers(&v.need.min_unit);
                prop_assert!(!(behind && usable), "{} could use {}", v.key.group, machine.id);
            }
        }
    }
}

/// What a roll-up withdraws while the shard forgets nothing else is served again in the same way.
#[test]
fn demand_that_returns_is_served_by_the_machines_that_it_left() {
    let row = need(0, "cpu=4").floor("cpu=4");
    let rows: &[N] = &[row.clone()];
    let fleet = [machine("c").has("cpu=4").configured("a").of(&row.build()), machine("i").has("cpu=4")];
    assert_eq!(count(&decide(&fleet, &[("a", &[])]), "Reclaim"), 1);
    assert!(decide(&fleet, &[("a", rows)]).actions.is_empty());
}

/// Texts of demand that came and went do not stay for ever, and starting afresh is invisible.
#[test]
fn churn_of_groups_changes_nothing() {
    let mut engine = Engine::new(Policy::default());
    engine.apply(machine("c").has("cpu=4").configured("a").event());
    engine.apply(Event::Heard(cluster("a")));
    for i in 0..9000 {
        engine.apply(demand("a", &[need(0, "cpu=4").group(&format!("g{i}"))]));
        if i % 1000 == 0 {
            assert!(engine.decide(secs(i)).actions.is_empty());
        }
    }
    assert_eq!(pass(&mut engine, NOW).claimed.len(), 1);
}
