//! What holds of every outcome, on random small worlds: the oracle must not be wrong in the same way as the engine.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::{ActionKind, Purpose};
use bigfleet_oracle::{Outcome, World};
use bigfleet_types::Operator::Same;
use bigfleet_types::WhenUnsatisfiable::DoNotSchedule;
use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{CapacityType, Machine, MachineId, MachineState, Resources, keys};

use crate::fleet::*;

/// One of the choices.
fn pick<T: Copy>(dice: &mut Seeded, choices: &[T]) -> T {
    let n = u64::try_from(choices.len()).unwrap();
    choices[usize::try_from(dice.below(n)).unwrap()]
}

const CLUSTERS: [&str; 3] = ["a", "b", "c"];

fn random_need(dice: &mut Seeded, group: &str) -> N {
    let k = i64::try_from(dice.below(6)).unwrap();
    let (per_pod, of) = (pick(dice, &["0", "4", "8"]), pick(dice, &CLUSTERS));
    let priority = pick(dice, &[0, 0, 100, 1_000_000, i32::MAX, i32::MIN]);
    let mut want = need(of, priority, k).arrival(i64::try_from(dice.below(4)).unwrap());
    want = match dice.below(4) {
        0 => want.requires(pick(dice, &[RACK, keys::ZONE]), Same, &[]).group(group),
        1 => want.spread(keys::ZONE, DoNotSchedule),
        _ => want.group(pick(dice, &["", "k"])),
    };
    let total = (4 * k).to_string();
    match dice.below(4) {
        0 => want.wants(&[("gpu", &total), ("cpu", "3")], &[("gpu", per_pod)]).pinned(),
        1 => want.wants(&[("cpu", &total)], &[]).interruption("8"),
        _ => want,
    }
}

fn random_machine(dice: &mut Seeded, id: &str, needs: &[N]) -> M {
    let of = pick(dice, &CLUSTERS);
    let whose = |dice: &mut Seeded| (!needs.is_empty()).then(|| dice.below(needs.len().try_into().unwrap()));
    let need = whose(dice).map(|i| &needs[usize::try_from(i).unwrap()]);
    let mut machine = match dice.below(8) {
        0 | 1 => idle(id).idle_for(i64::try_from(dice.below(1000)).unwrap()),
        2 => speculative(id),
        3 => match need {
            Some(need) if dice.below(3) > 0 => creating(id).created_for(need.key()),
            _ => creating(id),
        },
        4 => match need {
            Some(need) if dice.below(3) > 0 => draining(id, of).preempted_for(need.key(), 1_000_000),
            _ => draining(id, of),
        },
        5 => configuring(id, of),
        _ => configured(id, of).excess_for(10),
    };
    if machine.0.state == MachineState::Draining && dice.below(3) == 0 {
        machine.1.preempted_for = Purpose::Unknown;
    }
    if machine.0.cluster.is_some() && dice.below(3) > 0 {
        match need.filter(|need| need.cluster.as_str() == of) {
            Some(need) => machine = machine.stamped(need),
            None => machine = machine.priority(pick(dice, &[0, 100, 500_000])).penalties(1.0, f64::INFINITY),
        }
    }
    let kinds = [CapacityType::Spot, CapacityType::OnDemand, CapacityType::BareMetal];
    let shape: &[(&str, &str)] = pick(
        dice,
        &[&[("gpu", "8")], &[("gpu", "4"), ("cpu", "4")], &[("cpu", "6")], &[("gpu", "40"), ("cpu", "8")]],
    );
    let machine =
        machine.cap(shape).zone(pick(dice, &["z1", "z2", ""])).rack(pick(dice, &["r1", "r2", "r3"]));
    machine
        .payment(pick(dice, &kinds))
        .price(pick(dice, &[0.0, 1.0, 6.0]))
        .probability(pick(dice, &[0.0, 0.1]))
}

fn random_world(seed: u64) -> World {
    let mut dice = Seeded::new(seed);
    let needs: Vec<N> = (0..dice.below(7)).map(|i| random_need(&mut dice, &format!("g{i}"))).collect();
    let n = dice.below(16);
    let machines: Vec<M> = (0..n).map(|i| random_machine(&mut dice, &format!("m{i:02}"), &needs)).collect();
    let mut out = world(machines, &needs);
    if dice.below(2) == 0 {
        out.heard.extend(CLUSTERS.map(cluster));
    }
    out.policy.reclaim_after = seconds(pick(&mut dice, &[0, 5, 60]));
    out
}

fn by_id(world: &World) -> BTreeMap<&MachineId, &Machine> {
    world.machines.iter().map(|(machine, _)| (&machine.id, machine)).collect()
}

/// Every machine has one claim and one action at most, each from the state that the action starts in.
fn machines_are_used_once(world: &World, out: &Outcome) {
    let fleet = by_id(world);
    let claims: Vec<&MachineId> = out.verdicts.iter().flat_map(|verdict| &verdict.machines).collect();
    let distinct: BTreeSet<&MachineId> = claims.iter().copied().collect();
    assert_eq!((claims.len(), distinct), (out.claimed.len(), out.claimed.iter().collect()));
    let acted: BTreeSet<&MachineId> = out.actions.iter().map(|action| &action.machine).collect();
    assert_eq!(acted.len(), out.actions.len());
    for action in &out.actions {
        let machine = fleet[&action.machine];
        let (state, claimed) = match action.kind {
            ActionKind::Bootstrap => (MachineState::Idle, Some(true)),
            ActionKind::Provision => (MachineState::Speculative, Some(true)),
            ActionKind::Preempt => (MachineState::Configured, None),
            ActionKind::Reclaim => (MachineState::Configured, Some(false)),
            ActionKind::Delete => (MachineState::Idle, Some(false)),
        };
        assert_eq!(machine.state, state);
        assert!(claimed.is_none_or(|claimed| claimed == out.claimed.contains(&action.machine)));
        if action.kind == ActionKind::Reclaim {
            assert!(machine.cluster.as_ref().is_some_and(|cluster| world.heard.contains(cluster)));
        }
        if action.kind == ActionKind::Preempt {
            let victim = out.verdicts.iter().find(|verdict| verdict.machines.contains(&action.machine));
            let worth = victim.map_or(i32::MIN, |verdict| verdict.priority);
            assert!(worth.max(machine.attribution.priority.unwrap_or(0)) < action.preemptor_priority);
            assert_ne!(action.need.as_ref().map(|need| &need.cluster), machine.cluster.as_ref());
        }
    }
}

/// The residual is what the claims lack; a gang's claims share a domain; only what is unsatisfied has a reason.
fn verdicts_add_up(world: &World, out: &Outcome) {
    let fleet = by_id(world);
    let keys: BTreeSet<_> = out.verdicts.iter().map(|verdict| &verdict.key).collect();
    assert_eq!(keys.len(), out.verdicts.len());
    for verdict in &out.verdicts {
        assert_eq!(verdict.satisfied, verdict.residual.is_empty());
        assert_eq!(verdict.satisfied, verdict.supply.is_none());
        assert_eq!(verdict.satisfied, verdict.reason == bigfleet_engine::UnmetReason::Unspecified);
        let rows = world.demand.get(&verdict.key.cluster).into_iter().flatten();
        let rows: Vec<_> = rows.filter(|row| row.key(&verdict.key.cluster) == verdict.key).collect();
        if !verdict.members.is_empty() {
            assert!(rows.is_empty(), "a fold has a key of its own");
            let held = verdict.members.iter().filter(|member| member.satisfied).count();
            assert!(verdict.satisfied == (held == verdict.members.len()));
            continue;
        }
        let wanted = rows.iter().fold(Resources::EMPTY, |sum, row| sum.add(&row.aggregate));
        let floor = rows.iter().fold(Resources::EMPTY, |sum, row| sum.max(&row.min_unit));
        let capacity = |id: &MachineId| fleet[id].capacity();
        let have = verdict.machines.iter().fold(Resources::EMPTY, |sum, id| sum.add(capacity(id)));
        let lacking = wanted.saturating_sub(&have);
        let large = verdict.machines.iter().any(|id| capacity(id).covers(&floor));
        if verdict.same.is_some() || large || wanted.is_empty() {
            assert_eq!(verdict.residual, lacking);
        } else {
            assert_eq!(verdict.residual, lacking.max(&floor));
        }
        if let (Some(same), Some(key)) = (&verdict.same, rows[0].profile.same()) {
            let value = |id: &MachineId| fleet[id].attribute(&key.key);
            assert!(verdict.machines.iter().all(|id| value(id) == same.domain.as_deref()));
        }
    }
}

/// A Need of its own that is unsatisfied found no free machine that any Need of lower precedence acquired.
fn no_lower_need_took_what_a_higher_one_lacks(world: &World, out: &Outcome) {
    let fleet = by_id(world);
    for (at, verdict) in out.verdicts.iter().enumerate() {
        let rows = world.demand.get(&verdict.key.cluster).into_iter().flatten();
        let row = rows.clone().find(|row| row.key(&verdict.key.cluster) == verdict.key);
        let Some(row) = row.filter(|row| row.profile.same().is_none() && row.profile.spread().is_empty())
        else {
            continue;
        };
        for lower in &out.verdicts[at + 1..] {
            for action in out.actions.iter().filter(|action| action.need.as_ref() == Some(&lower.key)) {
                let machine = fleet[&action.machine];
                let type_fits = row.profile.requirements().iter().all(|r| {
                    machine.attribute(&r.key).is_some_and(|v| r.values.iter().any(|listed| &**listed == v))
                });
                let helps =
                    verdict.residual.iter().any(|(name, _)| machine.capacity().get(name.as_str()) > 0);
                let acquired = matches!(action.kind, ActionKind::Bootstrap | ActionKind::Provision);
                let floor = machine.capacity().covers(&row.min_unit);
                let rank = |priority: i32| std::cmp::Reverse(priority);
                let below = rank(verdict.priority) < rank(lower.priority);
                assert!(
                    !(acquired && below && type_fits && helps && floor),
                    "{} took {}",
                    lower.priority,
                    machine.id
                );
            }
        }
    }
}

#[test]
fn every_outcome_adds_up() {
    let mut seen: BTreeMap<ActionKind, usize> = BTreeMap::new();
    let (mut folds, mut moved, mut domains) = (0, 0, 0);
    // Fewer would not reach every part.
    let cases = std::env::var("PROPTEST_CASES").map_or(0, |text| text.parse().unwrap());
    for seed in 0..cases.max(3000) {
        let world = random_world(seed);
        let out = run(&world);
        machines_are_used_once(&world, &out);
        verdicts_add_up(&world, &out);
        no_lower_need_took_what_a_higher_one_lacks(&world, &out);
        out.actions.iter().for_each(|action| *seen.entry(action.kind).or_default() += 1);
        folds += out.verdicts.iter().filter(|verdict| !verdict.members.is_empty()).count();
        domains += out.verdicts.iter().filter_map(|verdict| verdict.same.as_ref()?.domain.as_ref()).count();
        let gang_preempts = |v: &&bigfleet_oracle::Verdict| v.same.is_some() && v.preemption.is_some();
        moved += out.verdicts.iter().filter(gang_preempts).count();
    }
    // The worlds reach every part of the rules.
    assert!(ActionKind::ALL.iter().all(|kind| seen.get(kind).is_some_and(|n| *n > 100)), "{seen:?}");
    assert!(folds > 100 && domains > 100 && moved > 10, "{folds} {domains} {moved}");
}
