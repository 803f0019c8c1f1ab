//! Demand before the phases: equal keys merged, gangs that fit one machine folded (engine.md 3.3, 7).

use std::collections::BTreeMap;

use bigfleet_types::{Group, MachineState, NeedKey, Operator, Profile, Requirement};
use sha2::{Digest, Sha256};

use crate::amounts::Amounts;
use crate::row::{Row, Unit};
use crate::world::World;

/// All Needs in precedence order.
pub(crate) fn rows(world: &World, units: &[Unit<'_>]) -> Vec<Row> {
    let mut plain = Vec::new();
    let mut folds: BTreeMap<NeedKey, Row> = BTreeMap::new();
    for row in merged(world) {
        if !foldable(&row, units) {
            plain.push(row);
            continue;
        }
        let fold = folded(&row);
        match folds.get_mut(&fold.key()) {
            None => drop(folds.insert(fold.key(), fold)),
            Some(into) => {
                into.aggregate = into.aggregate.add(&fold.aggregate);
                into.arrival = earlier(into.arrival, fold.arrival);
                into.members.extend(fold.members);
                into.members.sort();
            }
        }
    }
    plain.extend(folds.into_values());
    // engine.md 3.4.
    plain.sort_by_key(|row| (row.precedence(), row.arrival, row.key()));
    plain
}

/// engine.md 3.3: rows of one key become one.
fn merged(world: &World) -> Vec<Row> {
    let mut rows: BTreeMap<NeedKey, Row> = BTreeMap::new();
    for (cluster, needs) in &world.demand {
        for need in needs {
            let row = Row {
                cluster: cluster.clone(),
                profile: Profile::clone(&need.profile),
                group: need.group.clone(),
                aggregate: Amounts::of(&need.aggregate),
                min_unit: Amounts::of(&need.min_unit),
                arrival: need.arrival.unwrap_or_default().0,
                members: Vec::new(),
            };
            match rows.get_mut(&row.key()) {
                None => drop(rows.insert(row.key(), row)),
                Some(into) => {
                    into.aggregate = into.aggregate.add(&row.aggregate);
                    into.min_unit = into.min_unit.max(&row.min_unit);
                    into.arrival = earlier(into.arrival, row.arrival);
                }
            }
        }
    }
    rows.into_values().collect()
}

/// The earlier of two arrivals; 0 says nothing.
fn earlier(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// engine.md 7: some machine within reach holds the whole gang, and no machine serves it already as one of several.
fn foldable(row: &Row, units: &[Unit<'_>]) -> bool {
    if row.same_key().is_none() {
        return false;
    }
    let holds_it_all = |unit: &Unit<'_>| unit.capacity.covers(&row.aggregate);
    let within_reach = |unit: &Unit<'_>| match unit.state() {
        MachineState::Idle | MachineState::Speculative => true,
        MachineState::Creating => {
            unit.facts.created_for.as_ref().is_some_and(|need| need.cluster == row.cluster)
        }
        _ => unit.is_bound_to(&row.cluster),
    };
    let fits_one = units.iter().any(|unit| within_reach(unit) && row.matches(unit) && holds_it_all(unit));
    let served_by_several = units.iter().any(|unit| row.owns(unit) && !holds_it_all(unit));
    fits_one && !served_by_several
}

/// engine.md 7: the plain Need of one gang.
fn folded(gang: &Row) -> Row {
    let plain = |requirement: &Requirement| match requirement.operator {
        Operator::Same if requirement.values.is_empty() => {
            Requirement { operator: Operator::Exists, ..requirement.clone() }
        }
        Operator::Same => Requirement { operator: Operator::In, ..requirement.clone() },
        _ => requirement.clone(),
    };
    let profile = &gang.profile;
    let (interruption, reclamation) = (profile.interruption(), profile.reclamation());
    let requirements = profile.requirements().iter().map(plain).collect();
    let spread = profile.spread().to_vec();
    Row {
        cluster: gang.cluster.clone(),
        profile: Profile::new(requirements, spread, profile.priority(), interruption, reclamation),
        group: Group::new(&fold_group(&gang.aggregate)),
        aggregate: gang.aggregate.clone(),
        min_unit: gang.aggregate.clone(),
        arrival: gang.arrival,
        members: vec![(gang.arrival, profile.fingerprint(), gang.group.clone())],
    }
}

/// decide-format.md 3.10.
fn fold_group(aggregate: &Amounts) -> String {
    let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    let mut hash = Sha256::new();
    hash.update([1u8]);
    hash.update(length(aggregate.iter().len()));
    for (name, amount) in aggregate.iter() {
        hash.update(length(name.len()));
        hash.update(name.as_bytes());
        hash.update(u64::try_from(amount).unwrap_or(u64::MAX).to_be_bytes());
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("fold/{hex}")
}
