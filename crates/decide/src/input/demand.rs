//! A demand entry: one cluster's roll-up and when each of its rows was first seen.
//!
//! Looser than the boundary of a session: what follows the rules of the engine is accepted, whoever wrote it.

use std::sync::Arc;

use bigfleet_proto::v1alpha1 as wire;
use bigfleet_types::{
    ClusterId, Group, Need, Operator, PenaltyBucket, Profile, Requirement, Rounding, SpreadTerm, UnixNanos,
    WhenUnsatisfiable,
};

use super::machine::{amounts, unknown};
use crate::json::{Ids, Node, Refused};

/// Reads `{"rollup": ..., "arrivalUnixNanos": [...]}`. Rows with equal keys are kept apart.
pub(super) fn read(node: Node<'_>, clusters: &mut Ids) -> Result<(ClusterId, Vec<Need>), Refused> {
    let mut entry = node.object()?;
    let rollup = entry.take("rollup", |node| rollup(node, clusters));
    let arrivals = entry.take("arrivalUnixNanos", |node| node.each(|_, node| node.integer(0, i64::MAX)));
    entry.finish()?;
    let Some((cluster, mut needs)) = rollup else {
        return Err(Refused::at("rollup", "is missing"));
    };
    if let Some(arrivals) = arrivals {
        if arrivals.len() != needs.len() {
            let lengths = format!("has {} entries for {} needs", arrivals.len(), needs.len());
            return Err(Refused::at("arrivalUnixNanos", lengths));
        }
        for (need, arrival) in needs.iter_mut().zip(arrivals) {
            need.arrival = Some(UnixNanos(arrival));
        }
    }
    Ok((cluster, needs))
}

/// Reads a `ClusterCapacityNeeds`; `clusters` are the ids that may not come again. Rows with equal keys are kept apart,
/// and their arrival is 0.
///
/// # Errors
/// The first field that is unknown or breaks a rule.
pub fn rollup(node: Node<'_>, clusters: &mut Ids) -> Result<(ClusterId, Vec<Need>), Refused> {
    let mut object = node.object()?;
    let cluster = object.take("clusterId", |node| {
        let text = node.text()?;
        clusters.take(&text)?;
        Ok(text)
    });
    object.take("timestampUnixNanos", Node::int64);
    let needs = object.take("needs", |node| node.each(|_, node| need(node))).unwrap_or_default();
    object.finish()?;
    let Some(cluster) = cluster else {
        return Err(Refused::at("clusterId", "must not be empty"));
    };
    Ok((ClusterId::trusted(cluster), needs))
}

fn need(node: Node<'_>) -> Result<Need, Refused> {
    let mut object = node.object()?;
    let mut has_same = false;
    let requirements =
        object.take("requirements", |node| node.each(|_, node| requirement(node, &mut has_same)));
    let aggregate = object.take("aggregateResources", |node| amounts(node, Rounding::Up)).unwrap_or_default();
    let priority = object.take("priority", Node::int32).unwrap_or_default();
    let spread = object.take("spread", |node| node.each(|_, node| spread_term(node)));
    let interruption = object.take("interruptionPenaltyBucket", bucket).unwrap_or(PenaltyBucket::ZERO);
    let reclamation = object.take("reclamationPenaltyBucket", bucket).unwrap_or(PenaltyBucket::ZERO);
    let min_unit = object.take("minUnit", |node| amounts(node, Rounding::Up)).unwrap_or_default();
    let group = object.take("group", Node::text).unwrap_or_default();
    object.finish()?;
    let (requirements, spread) = (requirements.unwrap_or_default(), spread.unwrap_or_default());
    Ok(Need {
        profile: Arc::new(Profile::new(requirements, spread, priority, interruption, reclamation)),
        aggregate,
        min_unit,
        group: Group::new(&group),
        arrival: Some(UnixNanos(0)),
    })
}

fn requirement(node: Node<'_>, has_same: &mut bool) -> Result<Requirement, Refused> {
    let mut object = node.object()?;
    let key = object.take("key", Node::text).unwrap_or_default();
    let operator = object.take("operator", |node| {
        let operator = operator(node)?;
        if operator == Operator::Same && std::mem::replace(has_same, true) {
            return Err(Refused::here("is the second OPERATOR_SAME of its need, one is allowed"));
        }
        Ok(operator)
    });
    let values = object.take("values", |node| node.each(|_, node| node.text().map(Into::into)));
    object.finish()?;
    if key.is_empty() {
        return Err(Refused::at("key", "must not be empty"));
    }
    let Some(operator) = operator else {
        return Err(Refused::at("operator", "must be specified"));
    };
    Ok(Requirement { key: key.into(), operator, values: values.unwrap_or_default() })
}

fn operator(node: Node<'_>) -> Result<Operator, Refused> {
    match node.enumeration(wire::node_selector_requirement::Operator::from_str_name)? {
        0 => Err(Refused::here("must be specified")),
        number => Operator::from_number(number).ok_or_else(|| unknown(number)),
    }
}

fn spread_term(node: Node<'_>) -> Result<SpreadTerm, Refused> {
    let mut object = node.object()?;
    let topology_key = object.take("topologyKey", Node::text).unwrap_or_default();
    let max_skew = object.take("maxSkew", Node::int32).unwrap_or_default();
    let when = object.take("whenUnsatisfiable", |node| {
        let number = node.enumeration(wire::topology_spread::WhenUnsatisfiable::from_str_name)?;
        WhenUnsatisfiable::from_number(number).ok_or_else(|| unknown(number))
    });
    object.finish()?;
    if topology_key.is_empty() {
        return Err(Refused::at("topologyKey", "must not be empty"));
    }
    let when_unsatisfiable = when.unwrap_or(WhenUnsatisfiable::Unspecified);
    Ok(SpreadTerm { topology_key: topology_key.into(), max_skew, when_unsatisfiable })
}

fn bucket(node: Node<'_>) -> Result<PenaltyBucket, Refused> {
    let number = node.enumeration(wire::PenaltyBucket::from_str_name)?;
    PenaltyBucket::from_wire(number).map_err(|_| unknown(number))
}
