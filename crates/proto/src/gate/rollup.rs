//! A cluster's demand: accepted whole or refused whole.
//!
//! Limits: 250,000 rows; a row has at most 64 requirements, a requirement at most 256 values, a resource map at most 32
//! names, a group at most 253 bytes, every other text at most 317. Amounts are at most 2^62 units.

use std::sync::Arc;

use bigfleet_types::{
    ClusterId, Fingerprint, Group, Need, Operator, PenaltyBucket, Profile, Requirement, Resources,
    SpreadTerm, WhenUnsatisfiable,
};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

mod ingest;

pub use ingest::{Change, Heading, Ingest, Refused, RowKey, row_key};

use super::{Error, MAX_TEXT_BYTES, Problem, Texts, amounts, shown};
use crate::v1alpha1::{CapacityNeed, ClusterCapacityNeeds, NodeSelectorRequirement, TopologySpread};

/// Rows in one roll-up.
pub const MAX_NEEDS: usize = 250_000;
/// Requirements in one row.
pub const MAX_REQUIREMENTS: usize = 64;
/// Values in one requirement.
pub const MAX_VALUES: usize = 256;
/// Bytes of a group.
pub const MAX_GROUP_BYTES: usize = 253;

/// A roll-up that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollup {
    /// What the operator's clock said, Unix nanoseconds. To be echoed; order never depends on it.
    pub timestamp_unix_nanos: i64,
    /// One Need per (profile, group), in the order of first appearance. Arrivals are unknown: the keeper of the demand
    /// knows when it first saw a key.
    pub needs: Vec<Need>,
}

/// Checks a roll-up that came in on `session`'s stream, and adds up rows of equal profile and group: aggregates are
/// summed (saturating), the larger `min_unit` counts.
///
/// # Errors
/// The first field that breaks a rule. Nothing of the message is to be used then.
pub fn accept(session: &ClusterId, message: &ClusterCapacityNeeds) -> Result<Rollup, Error> {
    of_session(session, &message.cluster_id)?;
    limit("needs", message.needs.len(), MAX_NEEDS)?;

    let mut texts = Texts::default();
    let mut profiles = ingest::Profiles::default();
    let mut index: HashMap<(Fingerprint, Group), usize> = HashMap::with_capacity(message.needs.len());
    let mut needs: Vec<Need> = Vec::with_capacity(message.needs.len());
    for (i, row) in message.needs.iter().enumerate() {
        let accepted = profiles.of(row, &mut texts).and_then(|profile| accept_row(row, profile, &mut texts));
        let need = accepted.map_err(|error| error.within(format_args!("needs[{i}]")))?;
        match index.entry(row_key(&need)) {
            Entry::Occupied(known) => {
                if let Some(known) = needs.get_mut(*known.get()) {
                    known.aggregate = known.aggregate.add(&need.aggregate);
                    known.min_unit = known.min_unit.max(&need.min_unit);
                }
            }
            Entry::Vacant(new) => {
                new.insert(needs.len());
                needs.push(need);
            }
        }
    }
    Ok(Rollup { timestamp_unix_nanos: message.timestamp_unix_nanos, needs })
}

impl TryFrom<&CapacityNeed> for Need {
    type Error = Error;

    /// Checks one row by itself.
    fn try_from(row: &CapacityNeed) -> Result<Self, Error> {
        let texts = &mut Texts::default();
        accept_row(row, Arc::new(accept_profile(row, texts)?), texts)
    }
}

impl TryFrom<&NodeSelectorRequirement> for Requirement {
    type Error = Error;

    /// Checks one requirement by itself.
    fn try_from(requirement: &NodeSelectorRequirement) -> Result<Self, Error> {
        accept_requirement(requirement, &mut Texts::default())
    }
}

/// The session speaks for one cluster only.
fn of_session(session: &ClusterId, named: &str) -> Result<(), Error> {
    if named == session.as_str() {
        return Ok(());
    }
    let problem = if named.is_empty() {
        Problem::Empty
    } else {
        Problem::ForeignCluster { session: session.to_string(), found: shown(named) }
    };
    Err(Error::at("cluster_id", problem))
}

/// Where the pods of a row may run and how much they matter.
fn accept_profile(row: &CapacityNeed, texts: &mut Texts) -> Result<Profile, Error> {
    limit("requirements", row.requirements.len(), MAX_REQUIREMENTS)?;
    let mut requirements = Vec::with_capacity(row.requirements.len());
    let mut has_same = false;
    for (i, wire) in row.requirements.iter().enumerate() {
        let at = |error: Error| error.within(format_args!("requirements[{i}]"));
        let requirement = accept_requirement(wire, texts).map_err(at)?;
        if requirement.operator == Operator::Same && std::mem::replace(&mut has_same, true) {
            return Err(at(Error::at("operator", Problem::SecondSame)));
        }
        requirements.push(requirement);
    }
    let mut spread = Vec::with_capacity(row.spread.len());
    for (i, wire) in row.spread.iter().enumerate() {
        spread.push(accept_spread(wire, texts).map_err(|error| error.within(format_args!("spread[{i}]")))?);
    }
    Ok(Profile::new(
        requirements,
        spread,
        row.priority,
        bucket("interruption_penalty_bucket", row.interruption_penalty_bucket)?,
        bucket("reclamation_penalty_bucket", row.reclamation_penalty_bucket)?,
    ))
}

/// The row of a profile.
fn accept_row(row: &CapacityNeed, profile: Arc<Profile>, texts: &mut Texts) -> Result<Need, Error> {
    let aggregate = amounts::demand(&row.aggregate_resources, texts)
        .map_err(|error| error.within("aggregate_resources"))?;
    let min_unit = amounts::demand(&row.min_unit, texts).map_err(|error| error.within("min_unit"))?;
    within_aggregate(&min_unit, &aggregate)?;
    length("group", &row.group, MAX_GROUP_BYTES)?;
    Ok(Need { profile, aggregate, min_unit, group: Group::new(&row.group), arrival: None })
}

fn accept_requirement(wire: &NodeSelectorRequirement, texts: &mut Texts) -> Result<Requirement, Error> {
    text("key", &wire.key)?;
    let operator = Operator::from_number(wire.operator).ok_or_else(|| {
        let problem =
            if wire.operator == 0 { Problem::Unspecified } else { Problem::UnknownNumber(wire.operator) };
        Error::at("operator", problem)
    })?;
    let compares = matches!(operator, Operator::In | Operator::NotIn);
    match (compares, wire.values.is_empty()) {
        (true, true) => return Err(Error::at("values", Problem::MissingValues)),
        (false, false) => return Err(Error::at("values", Problem::UnexpectedValues)),
        _ => {}
    }
    limit("values", wire.values.len(), MAX_VALUES)?;
    let mut values = Vec::with_capacity(wire.values.len());
    for (i, value) in wire.values.iter().enumerate() {
        // An empty value is a legal label value.
        length(format_args!("values[{i}]"), value, MAX_TEXT_BYTES)?;
        values.push(texts.text(value));
    }
    Ok(Requirement { key: texts.text(&wire.key), operator, values })
}

fn accept_spread(wire: &TopologySpread, texts: &mut Texts) -> Result<SpreadTerm, Error> {
    text("topology_key", &wire.topology_key)?;
    if wire.max_skew < 1 {
        return Err(Error::at("max_skew", Problem::TooSmall { found: i64::from(wire.max_skew), least: 1 }));
    }
    let when_unsatisfiable = WhenUnsatisfiable::from_number(wire.when_unsatisfiable)
        .ok_or_else(|| Error::at("when_unsatisfiable", Problem::UnknownNumber(wire.when_unsatisfiable)))?;
    Ok(SpreadTerm {
        topology_key: texts.text(&wire.topology_key),
        max_skew: wire.max_skew,
        when_unsatisfiable,
    })
}

/// Number 0 is a producer that left the field out: no penalty.
fn bucket(field: &str, number: i32) -> Result<PenaltyBucket, Error> {
    PenaltyBucket::from_wire(number).map_err(|unknown| Error::at(field, Problem::UnknownNumber(unknown.0)))
}

fn within_aggregate(min_unit: &Resources, aggregate: &Resources) -> Result<(), Error> {
    for (name, amount) in min_unit.iter() {
        let total = aggregate.get(name.as_str());
        if amount > total {
            let print = |amount| Resources::quantity(name.as_str(), amount).to_string();
            let problem = Problem::AboveAggregate { min_unit: print(amount), aggregate: print(total) };
            return Err(Error::at(format_args!("min_unit[{}]", shown(name.as_str())), problem));
        }
    }
    Ok(())
}

/// A text that has to be there.
fn text(field: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::at(field, Problem::Empty));
    }
    length(field, text, MAX_TEXT_BYTES)
}

fn length(field: impl std::fmt::Display, text: &str, limit: usize) -> Result<(), Error> {
    let found = text.len();
    if found > limit { Err(Error::at(field, Problem::TooLong { found, limit })) } else { Ok(()) }
}

fn limit(field: &str, found: usize, limit: usize) -> Result<(), Error> {
    if found > limit { Err(Error::at(field, Problem::TooMany { found, limit })) } else { Ok(()) }
}
