//! Explanations: complete, true, and without a trace in the decisions.

use std::collections::BTreeSet;

use bigfleet_engine::{
    ActionExplanation, ActionKind, Decisions, Explanation, Fate, NeedExplanation, PreemptedFor, Purpose,
    Question, Rule, Why, matches,
};
use bigfleet_types::{EffectiveCost, MachineState, NeedKey, Operator, WhenUnsatisfiable, keys};
use proptest::prelude::*;

use crate::dsl::{M, N, NOW, cluster, decide, engine, gpu, gpu_need, gpus, machine, need, pass, secs};
use crate::random::{Case, any_case, any_single_need, by_id};

fn all(case: &Case) -> (Decisions, Explanation) {
    case.engine().decide_explained(NOW, &Question::default())
}

/// How many machines shared a fate that `is` picks.
fn count(need: &NeedExplanation, is: impl Fn(&Fate) -> bool) -> u32 {
    let fates = need.classes.iter().flat_map(|class| &class.fates);
    fates.filter(|fate| is(fate)).map(|fate| fate.machines).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Asking changes no decision, neither that one nor the next.
    #[test]
    fn asking_changes_nothing(case in any_case(24)) {
        let (mut asked, mut silent) = (case.engine(), case.engine());
        let (decisions, explanation) = asked.decide_explained(NOW, &Question::default());
        prop_assert_eq!(&decisions, &silent.decide(NOW));
        prop_assert_eq!(asked.effort(), silent.effort());
        prop_assert_eq!(asked.decide(secs(5)), silent.decide(secs(5)));
        prop_assert_eq!(explanation.actions.len(), decisions.actions.len());
        prop_assert_eq!(explanation.needs.len(), decisions.verdicts.len());
        let nobody = Question { cluster: Some(cluster("nobody")), fingerprint: None };
        prop_assert_eq!(case.engine().decide_explained(NOW, &nobody), (decisions, Explanation::default()));
    }

    /// Every machine of the fleet is in one class of every Need and has one fate there, and the fates of those that
    /// serve are what the verdict counts.
    #[test]
    fn fates_add_up(case in any_case(24)) {
        let (decisions, explanation) = all(&case);
        for (position, need) in explanation.needs.iter().enumerate() {
            prop_assert_eq!(need.verdict, position);
            let verdict = &decisions.verdicts[position];
            let machines: u32 = need.classes.iter().map(|class| class.machines).sum();
            prop_assert_eq!(usize::try_from(machines).unwrap(), case.machines.len());
            for class in &need.classes {
                prop_assert_eq!(class.fates.iter().map(|fate| fate.machines).sum::<u32>(), class.machines);
                prop_assert!(class.fates.iter().all(|fate| fate.machines > 0));
            }
            prop_assert_eq!(count(need, |fate| fate.rule == Rule::Bootstrapped), verdict.bootstraps);
            prop_assert_eq!(count(need, |fate| fate.rule == Rule::Provisioned), verdict.provisions);
            let claims = |fate: &Fate| {
                matches!(fate.rule, Rule::Credited | Rule::Bootstrapped | Rule::Provisioned)
            };
            prop_assert_eq!(count(need, claims), verdict.claimed);
            let victims = verdict.preemption.as_ref().map_or(0, |preemption| preemption.victims);
            prop_assert_eq!(count(need, |fate| fate.rule == Rule::Preempted), victims);
            prop_assert!(need.rivals.is_sorted_by_key(|rival| std::cmp::Reverse(rival.machines)));
        }
    }

    /// Rules that say something about the machine itself are true of it, and no other is named where one of them
    /// comes first.
    #[test]
    fn rules_are_true_of_the_machines(case in any_case(24)) {
        let (decisions, explanation) = all(&case);
        let machines = by_id(&case);
        for need in &explanation.needs {
            let verdict = &decisions.verdicts[need.verdict];
            let profile = &verdict.need.profile;
            for class in &need.classes {
                for fate in &class.fates {
                    let M { machine, .. } = machines[fate.first.as_str()];
                    prop_assert_eq!(machine.state, fate.state);
                    prop_assert_eq!(machine.capacity(), &class.shape.capacity);
                    prop_assert_eq!((&*machine.instance_type, &*machine.zone),
                        (&*class.shape.instance_type, &*class.shape.zone));
                    let cost = EffectiveCost::new(
                        machine.price, machine.interruption_probability, profile.interruption());
                    prop_assert_eq!(class.cost, cost);
                    let floor = machine.capacity().covers(&verdict.need.min_unit);
                    match &fate.rule {
                        Rule::NotUsable | Rule::Withheld => {}
                        Rule::Requirement(key) => {
                            prop_assert!(!matches(profile, machine));
                            prop_assert!(profile.requirements().iter().any(|r| r.key == *key));
                        }
                        rule => {
                            prop_assert!(matches(profile, machine), "{:?} of {}", rule, machine.id);
                            prop_assert!(*rule != Rule::BelowMinUnit || !floor);
                            prop_assert!(floor || *rule == Rule::BelowMinUnit
                                || machine.cluster.as_ref() == Some(&verdict.key.cluster)
                                || machine.state == MachineState::Creating, "{:?} of {}", rule, machine.id);
                        }
                    }
                }
            }
        }
    }

    /// What a Need lacks is not in a free machine that it is said not to need; what is said to be claimed is.
    #[test]
    fn an_unmet_need_is_told_the_truth(case in any_case(24)) {
        let (decisions, explanation) = all(&case);
        let decided = pass(&mut case.engine(), NOW);
        let claimed: BTreeSet<_> = decided.claimed.iter().map(|id| id.as_str()).collect();
        let machines = by_id(&case);
        for need in &explanation.needs {
            let verdict = &decisions.verdicts[need.verdict];
            for fate in need.classes.iter().flat_map(|class| &class.fates) {
                let capacity = machines[fate.first.as_str()].machine.capacity();
                let helps = verdict.residual.iter().any(|(name, _)| capacity.get(name.as_str()) > 0);
                let free = matches!(fate.state, MachineState::Idle | MachineState::Speculative);
                match fate.rule {
                    Rule::NotNeeded => prop_assert!(!free || !helps || verdict.preemption.is_some()),
                    Rule::BoundElsewhere => prop_assert!(
                        verdict.satisfied || fate.state == MachineState::Configuring),
                    // Phase 2 may have withdrawn the claim since.
                    Rule::Claimed if decisions.verdicts.iter().all(|v| v.preemption.is_none()) => {
                        prop_assert!(claimed.contains(fate.first.as_str()));
                    }
                    Rule::Skew => prop_assert!(!profile_is_plain(verdict)),
                    Rule::GangIncomplete | Rule::OtherDomain | Rule::ReservedForMove | Rule::Withdrawn => {
                        prop_assert!(verdict.same.is_some());
                    }
                    _ => {}
                }
            }
        }
    }

    /// The first runner-up of an acquisition is what the engine takes when the machine is not there.
    #[test]
    fn a_runner_up_steps_in(case in any_single_need()) {
        let (decisions, explanation) = all(&case);
        for explained in &explanation.actions {
            let Why::Acquired { next } = &explained.why else { continue };
            let action = &decisions.actions[explained.action];
            let mut without = case.clone();
            without.machines.retain(|m| m.machine.id != action.machine);
            let then = without.engine().decide(NOW);
            let before: BTreeSet<_> = acquired(&decisions).into_iter().collect();
            let new: Vec<_> = acquired(&then).into_iter().filter(|id| !before.contains(id)).collect();
            let told: Vec<_> = next.iter().map(|next| next.machine.as_str()).collect();
            prop_assert!(told.starts_with(&new[..new.len().min(3)]), "{:?}, not {:?}", told, new);
            prop_assert_eq!(told.is_empty(), new.is_empty());
        }
    }

    /// Victims are of lower priority and in the order of their score, runners-up after the victim if its like.
    #[test]
    fn victims_are_weighed(case in any_case(24)) {
        let (decisions, explanation) = all(&case);
        for ActionExplanation { action, why, .. } in &explanation.actions {
            let action = &decisions.actions[*action];
            match why {
                Why::Acquired { next } => {
                    prop_assert!(matches!(action.kind, ActionKind::Bootstrap | ActionKind::Provision));
                    prop_assert!(next.len() <= 3);
                }
                Why::Preempted { victim, next } => {
                    prop_assert_eq!(action.kind, ActionKind::Preempt);
                    prop_assert_eq!(&victim.machine, &action.machine);
                    prop_assert!(next.len() <= 3);
                    for victim in next.iter().chain([victim]) {
                        prop_assert!(victim.priority < action.preemptor_priority);
                        prop_assert_ne!(victim.cluster.as_ref(), action.need_key.as_ref().map(|key| &key.cluster));
                    }
                }
                Why::Excess { .. } => prop_assert_eq!(action.kind, ActionKind::Reclaim),
                Why::HoldOver { .. } => prop_assert_eq!(action.kind, ActionKind::Delete),
            }
        }
    }
}

fn profile_is_plain(verdict: &bigfleet_engine::Verdict) -> bool {
    let spread = verdict.need.profile.spread().iter();
    spread.filter(|term| term.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule).count() == 0
}

fn acquired(decisions: &Decisions) -> Vec<&str> {
    let acquires = |kind| matches!(kind, ActionKind::Bootstrap | ActionKind::Provision);
    decisions.actions.iter().filter(|a| acquires(a.kind)).map(|a| a.machine.as_str()).collect()
}

/// `"m0 Idle: rule"` for every fate of the only Need explained, in order.
fn fates(machines: &[M], demands: &[(&str, &[N])], of: &str) -> Vec<String> {
    let question = Question { cluster: Some(cluster(of)), fingerprint: None };
    let mut engine = engine(Default::default(), machines, demands);
    let (_, explanation) = engine.decide_explained(secs(0), &question);
    let [need] = &explanation.needs[..] else { panic!("{explanation:?}") };
    let fates = need.classes.iter().flat_map(|class| &class.fates);
    fates.map(|fate| format!("{} {} {:?}", fate.first, fate.machines, fate.rule)).collect()
}

#[test]
fn each_rule_by_its_name() {
    let row = need(100, "cpu=8").floor("cpu=4").requires("pool", Operator::In, &["web"]);
    let web = |id: &str| machine(id).label("pool", "web");
    let batch = need(0, "cpu=4");
    let mut dead = web("dead").has("cpu=4").price(2.0);
    dead.machine.state = MachineState::Failed;
    let fleet = [
        web("kept").has("cpu=4").configured("a").of(&row.build()),
        web("cheap").has("cpu=4").price(1.0),
        dead,
        web("next").has("cpu=4").price(3.0),
        web("small").has("cpu=2"),
        web("elsewhere").has("cpu=4").price(4.0).configured("b").of(&batch.build()),
        machine("wrong").has("cpu=4").label("pool", "db"),
        web("held").has("cpu=4").price(5.0).facts(|f| f.eligibility.acquirable = false),
    ];
    let demands: &[(&str, &[N])] = &[("a", &[row]), ("b", &[batch])];
    assert_eq!(
        fates(&fleet, demands, "a"),
        [
            "kept 1 Credited",
            "cheap 1 Bootstrapped",
            "dead 1 NotUsable",
            "next 1 NotNeeded",
            "elsewhere 1 BoundElsewhere",
            "held 1 Withheld",
            "small 1 BelowMinUnit",
            "wrong 1 Requirement(\"pool\")",
        ]
    );
}

#[test]
fn gangs_spreads_and_priorities_say_why_not() {
    let zone = |id: &str, zone: &str| gpu(id).zone(zone);
    let gang = gpu_need(1000, 3).requires(keys::ZONE, Operator::Same, &[]);
    let two = [zone("a0", "a").speculative(), zone("a1", "a").speculative(), zone("b0", "b").speculative()];
    assert_eq!(fates(&two, &[("c", &[gang])], "c"), ["a0 2 GangIncomplete", "b0 1 OtherDomain"]);

    let spread = gpu_need(0, 4).spread(keys::ZONE, WhenUnsatisfiable::DoNotSchedule);
    let mut fleet = gpus(3, "a", |m| m.zone("a"));
    fleet.push(zone("b0", "b").configured("x").of(&gpu_need(0, 1).build()));
    fleet.push(zone("b1", "b"));
    assert_eq!(
        fates(&fleet, &[("c", &[spread])], "c"),
        ["a00 2 Bootstrapped", "a02 1 Skew", "b1 1 Bootstrapped", "b0 1 PriorityNotLower"]
    );

    let (high, low) = (gpu_need(9, 2), gpu_need(1, 2));
    let demands: &[(&str, &[N])] = &[("h", &[high]), ("l", &[low])];
    assert_eq!(fates(&gpus(3, "m", |m| m), demands, "l"), ["m02 1 Bootstrapped", "m00 2 Claimed"]);
    let mut engine = engine(Default::default(), &gpus(3, "m", |m| m), demands);
    let question = Question { cluster: Some(cluster("l")), fingerprint: None };
    let (_, explanation) = engine.decide_explained(secs(0), &question);
    let rivals: Vec<_> = explanation.needs[0]
        .rivals
        .iter()
        .map(|r| (r.key.cluster.as_str(), r.priority, r.machines))
        .collect();
    assert_eq!(rivals, [("h", 9, 2)]);
}

#[test]
fn runners_up_of_every_kind_of_action() {
    let old = need(0, "cpu=4");
    let fleet = [
        machine("i0").has("cpu=4").price(1.0),
        machine("i1").has("cpu=4").price(2.0),
        machine("s0").has("cpu=4").price(0.5).speculative(),
        machine("s1").has("cpu=4").price(0.6).speculative(),
        machine("excess").has("memory=1").configured("z").worth(3.0),
    ];
    let demands: &[(&str, &[N])] = &[("a", &[old]), ("z", &[])];
    let mut engine = engine(Default::default(), &fleet, demands);
    let (decisions, explanation) = engine.decide_explained(secs(7), &Question::default());
    let [first, excess] = &explanation.actions[..] else { panic!("{explanation:?}") };
    assert_eq!(decisions.actions[first.action].machine.as_str(), "i0");
    assert_eq!(first.cost.half_nano, 2_000_000_000);
    let Why::Acquired { next } = &first.why else { panic!("{first:?}") };
    let next: Vec<_> = next.iter().map(|next| format!("{} {}", next.kind, next.machine)).collect();
    assert_eq!(next, ["Bootstrap i1", "Provision s0", "Provision s1"]);
    assert!(matches!(excess.why, Why::Excess { since, .. } if since == secs(7)));
}

/// Example 45: the one victim that is large enough has no runner-up; among four equals the next by id has.
#[test]
fn ex42_the_next_victims_are_the_next_in_the_order_of_scores() {
    let batch = gpu_need(400_000, 5);
    let fleet = gpus(5, "v", |m| m.configured("batch").of(&batch.build()));
    let demands: &[(&str, &[N])] = &[("batch", &[batch]), ("train", &[gpu_need(1_000_000, 1)])];
    let mut engine = engine(Default::default(), &fleet, demands);
    let (decisions, explanation) = engine.decide_explained(secs(0), &Question::default());
    assert_eq!(decisions, *decide(&fleet, demands));
    let [ActionExplanation { why: Why::Preempted { victim, next }, .. }] = &explanation.actions[..] else {
        panic!("{explanation:?}")
    };
    assert_eq!((victim.machine.as_str(), victim.priority, victim.excess), ("v00", 400_000, false));
    assert_eq!(victim.claimed_by.as_ref().map(|key| key.cluster.as_str()), Some("batch"));
    let next: Vec<_> = next.iter().map(|next| next.machine.as_str()).collect();
    assert_eq!(next, ["v01", "v02", "v03"]);
}

/// Example 62: whose drains count, and why the others do not.
#[test]
fn drains_count_or_say_why_not() {
    let of = |key: NeedKey, priority| Purpose::Preemption(PreemptedFor { need: key, priority });
    let drains = |id: &str, purpose: Purpose| {
        gpu(id)
            .configured("batch")
            .state(MachineState::Draining)
            .zone("z")
            .facts(|f| f.preempted_for = purpose)
    };
    let row = gpu_need(100, 1).floor("nvidia.com/gpu=8").group("row");
    let fleet = |row: &N| {
        [
            drains("own", of(row.key("a"), 100)),
            drains("higher", of(gpu_need(500, 1).key("b"), 500)),
            drains("lower", of(gpu_need(50, 1).key("b"), 50)),
            drains("none", Purpose::None),
            drains("unknown", Purpose::Unknown),
        ]
        .map(|m| {
            let price = m.machine.id.as_str().len();
            m.price(f64::from(u8::try_from(price).unwrap()))
        })
    };
    assert_eq!(
        fates(&fleet(&row), &[("a", &[row.clone()])], "a"),
        [
            "own 1 DrainCounted",
            "none 1 NotUsable",
            "lower 1 ForAnotherNeed",
            "higher 1 NotNeeded",
            "unknown 1 NotNeeded"
        ]
    );
    let gang = gpu_need(100, 2).requires(keys::ZONE, Operator::Same, &[]).group("gang");
    // A gang counts on its own drains, not on those of one that mattered as much.
    assert_eq!(
        fates(&fleet(&gang), &[("a", &[gang.clone()])], "a"),
        [
            "own 1 DrainCounted",
            "none 1 NotUsable",
            "lower 1 ForAnotherNeed",
            "higher 1 ForAnotherNeed",
            "unknown 1 DrainCounted"
        ]
    );
}

#[test]
fn the_next_victim_stands_in_for_one_among_several() {
    let batch = gpu_need(0, 5);
    let fleet = gpus(5, "v", |m| m.configured("batch").of(&batch.build()));
    let demands: &[(&str, &[N])] = &[("batch", &[batch]), ("train", &[gpu_need(1_000_000, 2)])];
    let (_, explanation) =
        engine(Default::default(), &fleet, demands).decide_explained(secs(0), &Question::default());
    let why = explanation.actions.iter().map(|action| match &action.why {
        Why::Preempted { victim, next } => {
            let next: Vec<_> = next.iter().map(|next| next.machine.as_str()).collect();
            format!("{}: {}", victim.machine, next.join(" "))
        }
        why => format!("{why:?}"),
    });
    assert_eq!(why.collect::<Vec<_>>(), ["v00: v02 v03 v04", "v01: v02 v03 v04"]);
}
