//! The rules for one record.

use std::fmt;
use std::sync::Arc;

use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Host, Machine, MachineId, MachineState, NanoDollars, Probability,
    Resources,
};

use super::view::View;
use super::{MAX_LABELS, MAX_LAST_ERROR_BYTES, MAX_METADATA_BYTES, Reason, Record, Refused, Violation};
use crate::gate::{Error, Problem, Texts, metadata};

const CUT_MARK: &str = " [cut]";
const NO_ERROR_GIVEN: &str = "the provider reports FAILED without an error";

/// Checks one record; `path` is the field that holds it.
pub(super) fn check(wire: &View<'_>, path: impl fmt::Display, texts: &mut Texts) -> Record {
    let mut violations = Vec::new();
    let id = MachineId::parse(wire.id);
    let machine = match &id {
        Ok(id) => build(wire, id.clone(), texts, &mut violations),
        Err(error) => Err(structural("id", Problem::Id(error.clone()))),
    };
    let machine = machine.map(Arc::new).map_err(|mut refused| {
        // What was repaired in a refused record is of no interest.
        violations.clear();
        let path = path.to_string();
        if !path.is_empty() {
            refused.error = refused.error.within(path);
        }
        Box::new(refused)
    });
    Record { id: id.ok(), machine, violations }
}

fn build(
    wire: &View<'_>,
    id: MachineId,
    texts: &mut Texts,
    violations: &mut Vec<Violation>,
) -> Result<Machine, Refused> {
    let state = MachineState::from_number(wire.state).ok_or_else(|| {
        let unknown = Problem::UnknownNumber(wire.state);
        structural("state", if wire.state == 0 { Problem::Unspecified } else { unknown })
    })?;
    let capacity_type = CapacityType::from_number(wire.capacity_type)
        .ok_or_else(|| structural("capacity_type", Problem::UnknownNumber(wire.capacity_type)))?;
    let price = NanoDollars::from_dollars(wire.price_per_hour).ok_or_else(|| {
        let expected = "a price: a finite number of dollars that is not negative";
        out_of_range(Reason::Price, "price_per_hour", wire.price_per_hour, expected)
    })?;
    let interruption_probability = Probability::new(wire.interruption_probability).ok_or_else(|| {
        let field = "interruption_probability";
        let expected = "a probability between 0 and 1";
        out_of_range(Reason::InterruptionProbability, field, wire.interruption_probability, expected)
    })?;
    let resources = vector("resources", wire.resources.as_ref())?;
    let allocatable = vector("allocatable", wire.allocatable.as_ref())?;
    if wire.labels.len() > MAX_LABELS {
        let problem = Problem::TooMany { found: wire.labels.len(), limit: MAX_LABELS };
        return Err(structural("labels", problem));
    }
    let host = host(wire.host, texts);
    let (cluster, attribution) = binding(wire, state, texts, violations)?;
    if cluster.is_some() && host.is_none() {
        return Err(structural("host", Problem::Missing("although the machine has a cluster")));
    }

    Ok(Machine {
        id,
        state,
        host,
        cluster,
        instance_type: texts.text(wire.instance_type),
        zone: texts.text(wire.zone),
        capacity_type,
        price,
        interruption_probability,
        resources,
        allocatable,
        labels: wire.labels.clone(),
        last_error: last_error(wire.last_error, state, texts, violations),
        attribution,
    })
}

/// Whom the machine serves, and for which Need.
fn binding(
    wire: &View<'_>,
    state: MachineState,
    texts: &mut Texts,
    violations: &mut Vec<Violation>,
) -> Result<(Option<ClusterId>, Attribution), Refused> {
    let bytes = wire.shard_metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        let problem = Problem::TooLong { found: bytes, limit: MAX_METADATA_BYTES };
        return Err(structural("shard_metadata", problem));
    }
    let failed = state == MachineState::Failed;
    if !state.is_bound() && !failed {
        if !wire.cluster.is_empty() {
            violations.push(Violation::UnboundCluster);
        }
        if !wire.shard_metadata.is_empty() {
            violations.push(Violation::UnboundMetadata);
        }
        return Ok((None, Attribution::default()));
    }
    let cluster = match wire.cluster {
        "" => None,
        text => Some(ClusterId::parse(text).map_err(|error| structural("cluster", Problem::Id(error)))?),
    };
    if cluster.is_none() {
        match state {
            MachineState::Configuring => violations.push(Violation::ConfiguringWithoutCluster),
            MachineState::Failed => return Ok((None, Attribution::default())),
            _ => {
                return Err(structural(
                    "cluster",
                    Problem::Missing("although the state says that it has one"),
                ));
            }
        }
    }
    let (attribution, malformed) = metadata::decode_into(wire.shard_metadata.iter().copied(), texts);
    violations.extend(malformed.iter().map(|_| Violation::MalformedMetadata));
    Ok((cluster, attribution))
}

/// Two empty texts are no host.
fn host(wire: Option<(&str, &str)>, texts: &mut Texts) -> Option<Host> {
    let (provider, reference) = wire.filter(|host| *host != ("", ""))?;
    // Hardly two machines share a reference.
    Some(Host { provider: texts.text(provider), reference: reference.into() })
}

fn vector(field: &str, read: Option<&Result<Resources, Error>>) -> Result<Resources, Refused> {
    match read {
        None => Ok(Resources::EMPTY),
        Some(Ok(resources)) => Ok(resources.clone()),
        Some(Err(error)) => Err(Refused {
            reason: Reason::Structural,
            error: error.clone().within("resources").within(field),
        }),
    }
}

fn last_error(
    text: &str,
    state: MachineState,
    texts: &mut Texts,
    violations: &mut Vec<Violation>,
) -> Arc<str> {
    if text.is_empty() && state == MachineState::Failed {
        violations.push(Violation::FailedWithoutError);
        return texts.text(NO_ERROR_GIVEN);
    }
    if text.len() <= MAX_LAST_ERROR_BYTES {
        return texts.text(text);
    }
    violations.push(Violation::LongError);
    let end = text.floor_char_boundary(MAX_LAST_ERROR_BYTES - CUT_MARK.len());
    format!("{}{CUT_MARK}", &text[..end]).into()
}

fn structural(field: &str, problem: Problem) -> Refused {
    Refused { reason: Reason::Structural, error: Error::at(field, problem) }
}

fn out_of_range(reason: Reason, field: &str, found: f64, expected: &'static str) -> Refused {
    Refused { reason, error: Error::at(field, Problem::OutOfRange { found: found.to_string(), expected }) }
}
