//! The invariants of a decision, by their numbers, on random worlds. I1 and I16 stand with P1 and P3 in
//! `properties.rs`; I3 and I25 are the shard's, I22 is that of the types.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::{ActionKind, Decisions, Event, matches};
use bigfleet_types::{
    Machine, MachineId, MachineState, NeedKey, Operator, PenaltyBucket, Resources, UnixNanos,
    WhenUnsatisfiable, keys,
};
use proptest::prelude::*;

use crate::dsl::{
    M, N, NOW, claimed, cluster, count, decide, demand, lines, machine, need, pass, secs, vector,
};
use crate::random::{Case, any_case, any_case_that_settles, any_need, any_plain_case, by_id};
use crate::world::World;

/// The ids that actions of these kinds name.
fn of_kinds<'a>(decisions: &'a Decisions, kinds: &[ActionKind]) -> BTreeSet<&'a str> {
    let actions = decisions.actions.iter().filter(|action| kinds.contains(&action.kind));
    actions.map(|action| action.machine.as_str()).collect()
}

fn acquired(decisions: &Decisions) -> BTreeSet<&str> {
    of_kinds(decisions, &[ActionKind::Bootstrap, ActionKind::Provision])
}

fn stamped_priority(machine: &Machine) -> i32 {
    machine.attribution.priority.unwrap_or(0)
}

/// The value of a key as a domain.
fn domain<'a>(machine: &'a Machine, key: &str) -> Option<&'a str> {
    machine.attribute(key).filter(|value| !value.is_empty())
}

fn progresses(machine: &Machine, deficit: &Resources) -> bool {
    deficit.iter().any(|(name, _)| machine.capacity().get(name.as_str()) > 0)
}

/// A world with one Need only: the first that `wanted` accepts.
fn only(mut case: Case, wanted: impl Fn(&N) -> bool) -> Option<Case> {
    let (name, row) = case
        .demands
        .iter()
        .find_map(|(name, rows)| Some((*name, rows.iter().find(|row| wanted(row))?.clone())))?;
    case.demands = vec![(name, vec![row])];
    Some(case)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i02_a_decision_neither_makes_nor_loses_machines(case in any_case(24)) {
        let mut engine = case.engine();
        let decisions = pass(&mut engine, NOW);
        prop_assert_eq!(engine.machines(), case.machines.len());
        let machines = by_id(&case);
        prop_assert!(decisions.claimed.iter().all(|id| machines.contains_key(id.as_str())));
        prop_assert!(decisions.actions.iter().all(|action| machines.contains_key(action.machine.as_str())));
    }

    /// Credit comes from the cluster's own bound machines and from purchases, never from what drains, goes or failed; a
    /// machine that is free is claimed by acquiring it and in no other way.
    #[test]
    fn i04_who_counts_as_supply(case in any_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        let keys: BTreeSet<&NeedKey> = decisions.verdicts.iter().map(|verdict| &verdict.key).collect();
        let clusters: BTreeSet<_> = keys.iter().map(|key| &key.cluster).collect();
        let acquired = acquired(&decisions);
        for id in claimed(&decisions) {
            let M { machine, facts } = machines[id];
            match machine.state {
                MachineState::Configured | MachineState::Configuring => {
                    prop_assert!(clusters.contains(machine.cluster.as_ref().unwrap()));
                    prop_assert!(facts.eligibility.creditable && !acquired.contains(id));
                }
                MachineState::Creating => {
                    prop_assert!(facts.created_for.as_ref().is_none_or(|key| keys.contains(key)));
                    prop_assert!(facts.eligibility.creditable && !acquired.contains(id));
                }
                MachineState::Idle | MachineState::Speculative => prop_assert!(acquired.contains(id)),
                state => prop_assert!(false, "{} is {} and claimed", id, state),
            }
        }
        for (name, verdicts) in decisions.verdicts.iter().fold(BTreeMap::<_, u32>::new(), |mut sums, verdict| {
            *sums.entry(&verdict.key.cluster).or_default() += verdict.claimed - verdict.bootstraps - verdict.provisions;
            sums
        }) {
            let own = machines.values().filter(|m| {
                m.machine.state.is_bound() && m.machine.cluster.as_ref() == Some(name)
                    || m.machine.state == MachineState::Creating
            });
            prop_assert!(verdicts as usize <= own.count(), "{} is credited with machines of others", name);
        }
    }

    /// Without gangs nothing is reserved, so what goes is exactly what nobody claims.
    #[test]
    fn i05_excess_is_what_no_need_claims(case in any_plain_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let (kept, victims) =
            (claimed(&decisions).into_iter().collect::<BTreeSet<_>>(), of_kinds(&decisions, &[ActionKind::Preempt]));
        let excess = case.machines.iter().filter(|m| {
            let (id, home) = (m.machine.id.as_str(), m.machine.cluster.as_ref());
            m.machine.state == MachineState::Configured
                && home.is_some_and(|home| case.heard.contains(&home.as_str()))
                && m.facts.eligibility.releasable
                && !kept.contains(id)
                && !victims.contains(id)
        });
        let excess: BTreeSet<_> = excess.map(|m| m.machine.id.as_str()).collect();
        prop_assert_eq!(of_kinds(&decisions, &[ActionKind::Reclaim]), excess);
    }

    #[test]
    fn i06_a_silent_cluster_loses_nothing_to_reclaim(case in any_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        for action in decisions.actions.iter().filter(|action| action.kind == ActionKind::Reclaim) {
            prop_assert!(case.heard.contains(&action.cluster.as_ref().unwrap().as_str()));
        }
    }

    #[test]
    fn i07_a_roll_up_is_a_set(case in any_case(24), backwards in any::<bool>(), gap in any::<bool>()) {
        let mut engine = case.engine();
        for (name, rows) in &case.demands {
            let mut rows = rows.clone();
            if backwards {
                rows.reverse();
            } else {
                let by = usize::from(rows.len() > 1);
                rows.rotate_left(by);
            }
            if gap {
                engine.apply(demand(name, &[]));
            }
            engine.apply(demand(name, &rows));
            engine.apply(demand(name, &rows));
        }
        prop_assert_eq!(pass(&mut engine, NOW), pass(&mut case.engine(), NOW));
    }

    /// More supply is never worse for whoever comes first, if that is a plain Need.
    #[test]
    fn i08_supply_never_hurts_the_first(
        case in any_case(24),
        row in any_need(),
        (shape, zone) in (0..5usize, 0..3u8),
    ) {
        let first = row.plain().priority(i32::MAX).buckets(27, 27).group("first");
        let mut engine = case.engine();
        engine.apply(demand("first", &[first]));
        let before = engine.decide(NOW);
        let shapes = ["cpu=2 memory=4Gi", "cpu=4 memory=8Gi nvidia.com/gpu=1", "cpu=16", "memory=64Gi", "example.com/foo=2"];
        engine.apply(machine("new").has(shapes[shape]).kind("t0").zone(&format!("z{zone}")).event());
        let after = engine.decide(NOW);
        prop_assert_eq!(&after.verdicts[0].key, &before.verdicts[0].key);
        prop_assert!(before.verdicts[0].residual.covers(&after.verdicts[0].residual));
    }

    /// What is wanted behind a Need takes nothing from it.
    #[test]
    fn i08_lower_demand_takes_nothing(case in any_case(24), home in 0..3usize, aggregate in 0..3usize) {
        let before = pass(&mut case.engine(), NOW);
        let mut case = case;
        let aggregate = ["cpu=10 memory=12Gi", "cpu=30", "nvidia.com/gpu=2"][aggregate];
        case.demands[home].1.push(need(i32::MIN, aggregate).group("behind"));
        let after = pass(&mut case.engine(), NOW);
        let after: BTreeMap<_, _> = after.verdicts.iter().map(|verdict| (&verdict.key, verdict)).collect();
        // Which machines a preempting gang gives back depends on its victims, and these may change.
        for verdict in before.verdicts.iter().filter(|v| v.need.profile.priority() > i32::MIN && v.same.is_none()) {
            let now = after[&verdict.key];
            prop_assert_eq!((&now.residual, now.claimed), (&verdict.residual, verdict.claimed));
        }
    }

    #[test]
    fn i09_a_gang_is_in_one_domain(case in any_case(24).prop_filter_map("a gang", |case| {
        only(case, |row| row.build().profile.same().is_some())
    })) {
        let decisions = pass(&mut case.engine(), NOW);
        let verdict = &decisions.verdicts[0];
        if let Some(same) = &verdict.same {
            let key = &verdict.need.profile.same().unwrap().key;
            let machines = by_id(&case);
            for id in claimed(&decisions) {
                prop_assert_eq!(domain(&machines[id].machine, key), same.domain.as_deref());
            }
            let victims = of_kinds(&decisions, &[ActionKind::Preempt]);
            let values: BTreeSet<_> = victims.iter().map(|id| domain(&machines[id].machine, key)).collect();
            prop_assert!(values.len() <= 1 && !values.contains(&None));
        }
    }

    /// A gang stays where it is served, whatever comes and goes elsewhere; and where it is not, until there is more.
    #[test]
    fn i10_a_gang_stays_in_its_domain(
        racks in proptest::collection::vec(1..6usize, 2..6),
        size in 2..6i64,
        churn in proptest::collection::vec((0..6usize, any::<bool>()), 0..12),
    ) {
        let gpu = |rack: usize, n: usize| machine(&format!("r{rack}-{n:03}"))
            .has("nvidia.com/gpu=8").label("rack", &format!("r{rack}"));
        let fleet = racks.iter().enumerate().flat_map(|(rack, count)| (0..*count).map(move |n| gpu(rack, n)));
        let mut world = World::new(fleet.collect(), 0);
        let row = need(10, "").floor("nvidia.com/gpu=8").requires("rack", Operator::Same, &[]).aggregate(
            vector("nvidia.com/gpu=8").scale(size),
        );
        world.wants("a", &[row]);
        let first = world.step();
        let home = first.verdicts[0].same.clone().unwrap();
        let home = home.domain.unwrap();
        let served = first.verdicts[0].satisfied;
        prop_assert!(world.step().actions.is_empty());
        for (step, (rack, more)) in churn.into_iter().enumerate() {
            let rack = rack % racks.len();
            if *format!("r{rack}") == *home {
                continue;
            }
            let idle = world.machines.values().find(|m| {
                m.machine.state == MachineState::Idle && domain(&m.machine, "rack") == Some(&format!("r{rack}"))
            });
            match (more, idle.map(|m| m.machine.id.clone())) {
                (true, _) if served => world.put(gpu(rack, 100 + step)),
                (false, Some(id)) => {
                    world.machines.remove(id.as_str());
                    world.engine.apply(Event::Removed(id));
                }
                _ => {}
            }
            let decisions = world.step();
            prop_assert!(decisions.actions.is_empty(), "{:?}", lines(&decisions));
            prop_assert_eq!(decisions.verdicts[0].same.as_ref().unwrap().domain.as_ref(), Some(&home));
        }
    }

    /// Victims are below their preemptor, elsewhere, and of use to it; a gang's are in one domain and suffice.
    #[test]
    fn i11_who_may_be_preempted(case in any_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        let mut domains: BTreeMap<&NeedKey, BTreeSet<Option<&str>>> = BTreeMap::new();
        let verdicts: BTreeMap<_, _> = decisions.verdicts.iter().map(|verdict| (&verdict.key, verdict)).collect();
        for action in decisions.actions.iter().filter(|action| action.kind == ActionKind::Preempt) {
            let victim = &machines[action.machine.as_str()].machine;
            let (preemptor, key) = (action.need.as_ref().unwrap(), action.need_key.as_ref().unwrap());
            prop_assert!(stamped_priority(victim) < preemptor.profile.priority());
            prop_assert_ne!(victim.cluster.as_ref(), Some(&key.cluster));
            prop_assert!(matches(&preemptor.profile, victim) && victim.capacity().covers(&preemptor.min_unit));
            if verdicts[key].same.is_some() {
                let label = &preemptor.profile.same().unwrap().key;
                domains.entry(key).or_default().insert(domain(victim, label));
            }
        }
        for (key, values) in domains {
            prop_assert!(values.len() == 1 && !values.contains(&None));
            prop_assert!(decisions.shortfalls.iter().all(|shortfall| shortfall.key != *key), "a part of a gang");
        }
    }

    /// If a plain Need's victims do not suffice, no other machine that nobody claims would have helped.
    #[test]
    fn i11_a_plain_need_takes_all_victims_there_are(case in any_plain_case(24)) {
        let decisions = pass(&mut case.engine(), NOW);
        let taken: BTreeSet<_> = claimed(&decisions).into_iter()
            .chain(of_kinds(&decisions, &[ActionKind::Preempt])).collect();
        for shortfall in &decisions.shortfalls {
            let usable = case.machines.iter().find(|M { machine, facts }| {
                machine.state == MachineState::Configured
                    && facts.eligibility.preemptible
                    && machine.cluster.as_ref() != Some(&shortfall.key.cluster)
                    && machine.cluster.as_ref().is_some_and(|home| case.heard.contains(&home.as_str()))
                    && stamped_priority(machine) < shortfall.need.profile.priority()
                    && matches(&shortfall.need.profile, machine)
                    && machine.capacity().covers(&shortfall.need.min_unit)
                    && progresses(machine, &shortfall.deficit)
                    && !taken.contains(machine.id.as_str())
            });
            prop_assert!(usable.is_none(), "{:?} could help", usable.map(|m| &m.machine.id));
        }
    }

    /// Of two machines that differ in price and risk alone, the formula chooses; ids break ties.
    #[test]
    fn i12_the_formula_orders(
        offers in proptest::array::uniform2((0..3_000_000u32, 0..=20u32)),
        bucket in 1..=27i32,
        state in prop_oneof![Just(MachineState::Idle), Just(MachineState::Speculative)],
    ) {
        let offer = |id: &str, (cents, percent): (u32, u32)| machine(id)
            .has("cpu=4").price(f64::from(cents) / 100.0).interrupted(f64::from(percent) / 20.0).state(state);
        let fleet = [offer("x", offers[0]), offer("y", offers[1])];
        let penalty = PenaltyBucket::from_wire(bucket).unwrap().half_dollars();
        let cost = |(cents, percent): (u32, u32)| {
            let (price, chance) = (u128::from(cents) * 20_000_000, u128::from(percent) * 50_000_000);
            let risk = penalty.map(|halves| chance * u128::try_from(halves).unwrap());
            match risk {
                Some(risk) => (false, price + risk),
                None => (percent > 0, price),
            }
        };
        let expected = if cost(offers[1]) < cost(offers[0]) { "y" } else { "x" };
        let decisions = decide(&fleet, &[("a", &[need(0, "cpu=4").buckets(bucket, 1)])]);
        prop_assert_eq!(claimed(&decisions), [expected]);
    }

    /// Demand that stands still comes to rest (P10): within 4 x (2 + dwell) cycles nothing but expired holds is left to
    /// do.
    #[test]
    fn i13_p10_static_demand_comes_to_rest(case in any_case_that_settles(24), create in 0..4u64) {
        let settled = case.machines.iter().filter(|m| !m.machine.state.is_transitional());
        // A machine that may be given away but not counted would go round for ever.
        let free = settled.map(|m| m.clone().facts(|f| f.eligibility = Default::default()));
        let mut world = World::new(free.collect(), create);
        for (name, needs) in &case.demands {
            world.wants(name, needs);
        }
        let limit = usize::try_from(4 * (2 + create)).unwrap();
        // Long enough for every hold to end.
        for cycle in 1..=150 {
            let decisions = world.step();
            let deletes = count(&decisions, "Delete");
            let rest = cycle <= limit || decisions.actions.len() == deletes && (cycle < 120 || deletes == 0);
            prop_assert!(rest, "still busy in cycle {}: {:?}", cycle, lines(&decisions));
        }
    }

    /// However long a Create takes, a machine that is lost is replaced by one machine.
    #[test]
    fn i14_one_machine_for_each_one_lost(
        held in 1..8usize,
        lost in 1..8usize,
        create in 0..7u64,
        pause in 1..4usize,
        gang in any::<bool>(),
    ) {
        let lost = lost.min(held);
        let gpu = |id: String| machine(&id).has("nvidia.com/gpu=8").label("rack", "r");
        let spare = |n| gpu(format!("spare-{n:02}")).price(1.0).speculative();
        let mut row = need(10, "").floor("nvidia.com/gpu=8").aggregate(
            vector("nvidia.com/gpu=8").scale(i64::try_from(held).unwrap()),
        );
        if gang {
            row = row.requires("rack", Operator::Same, &[]);
        }
        let own = (0..held).map(|n| gpu(format!("own-{n}")).price(1.0).configured("a").of(&row.build()));
        let mut world = World::new(own.chain((0..20).map(spare)).collect(), create);
        world.wants("a", &[row]);
        let mut bought = BTreeSet::new();
        for n in 0..lost {
            let id = format!("own-{n}");
            world.machines.remove(&id);
            world.engine.apply(Event::Removed(MachineId::trusted(&*id)));
            for _ in 0..pause {
                bought.extend(acquired(&world.step()).into_iter().map(str::to_owned));
            }
        }
        for _ in 0..40 {
            let decisions = world.step();
            prop_assert_eq!(count(&decisions, "Reclaim"), 0);
            bought.extend(acquired(&decisions).into_iter().map(str::to_owned));
        }
        prop_assert_eq!(bought.len(), lost);
        prop_assert!(world.step().verdicts[0].satisfied);
    }

    /// P6: where a machine was acquired, its domain is at most `max_skew` ahead of the emptiest.
    #[test]
    fn p06_what_is_acquired_keeps_the_skew(case in any_case(24).prop_filter_map("a spread", |case| {
        only(case, |row| {
            let profile = row.build().profile;
            profile.same().is_none() && !profile.spread().is_empty()
        })
    })) {
        let decisions = pass(&mut case.engine(), NOW);
        let machines = by_id(&case);
        let verdict = &decisions.verdicts[0];
        let (need, key) = (&verdict.need, &verdict.key);
        let acquired = acquired(&decisions);
        for term in need.profile.spread() {
            let label: &str = &term.topology_key;
            if term.when_unsatisfiable != WhenUnsatisfiable::DoNotSchedule || label == keys::HOSTNAME {
                continue;
            }
            let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
            for M { machine, facts } in &case.machines {
                let here = match machine.state {
                    MachineState::Idle | MachineState::Speculative => facts.eligibility.acquirable,
                    MachineState::Configured | MachineState::Configuring => {
                        machine.cluster.as_ref() == Some(&key.cluster) && facts.eligibility.creditable
                    }
                    MachineState::Creating => facts.created_for.as_ref() == Some(key) && facts.eligibility.creditable,
                    _ => false,
                };
                if here && matches(&need.profile, machine) && machine.capacity().covers(&need.min_unit)
                    && let Some(value) = domain(machine, label)
                {
                    counts.entry(value).or_default();
                }
            }
            // What is claimed without having the key is in no domain.
            for value in claimed(&decisions).into_iter().filter_map(|id| domain(&machines[id].machine, label)) {
                if let Some(count) = counts.get_mut(value) {
                    *count += 1;
                }
            }
            let emptiest = counts.values().min().copied().unwrap_or(0);
            for id in &acquired {
                let value = domain(&machines[id].machine, label);
                prop_assert!(value.is_some(), "{} has no {}", id, label);
                prop_assert!(counts[value.unwrap()] <= emptiest + term.max_skew.max(1), "{:?}", counts);
            }
        }
    }

    /// P9: no world and no time makes the engine panic, and looking again is safe too.
    #[test]
    fn p09_every_world_has_an_answer(case in any_case(40), now in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()]) {
        let mut engine = case.engine();
        engine.decide(UnixNanos(now));
        engine.decide(secs(0));
        for m in &case.machines {
            engine.apply(Event::Removed(m.machine.id.clone()));
        }
        engine.apply(Event::Heard(cluster("never-seen")));
        prop_assert!(engine.decide(UnixNanos(now)).actions.is_empty());
    }
}
