//! Provider records. Each is judged by itself: a bad one is refused and never takes the others with it.
//!
//! A refused record is not a removal: whoever keeps the machines keeps the last good one. Some breaches of the contract
//! are repaired instead, where there is only one sensible reading, and reported as [`Violation`]s to be counted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Host, Machine, MachineId, MachineState, NanoDollars, Probability,
    Resources,
};
use bytes::Bytes;

use super::{Error, Problem, Texts, amounts, metadata};
use crate::v1alpha1 as wire;

/// Labels of one machine.
pub const MAX_LABELS: usize = 64;
/// Bytes of all keys and values of a machine's `shard_metadata`.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Bytes of `last_error`; a longer one is cut and marked.
pub const MAX_LAST_ERROR_BYTES: usize = 4 << 10;
/// Bytes of a List's revision.
pub const MAX_REVISION_BYTES: usize = 4 << 10;

const CUT_MARK: &str = " [cut]";
const NO_ERROR_GIVEN: &str = "the provider reports FAILED without an error";

/// Why a record was refused, as the label of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The price is negative, infinite or not a number.
    Price,
    /// The interruption probability is not between 0 and 1.
    InterruptionProbability,
    /// Anything else: the record makes no sense.
    Structural,
}

impl Reason {
    /// The label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Price => "price",
            Self::InterruptionProbability => "interruption_probability",
            Self::Structural => "structural",
        }
    }
}

/// A record that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// How to count it.
    pub reason: Reason,
    /// What is wrong, and where.
    pub error: Error,
}

/// A breach of the provider contract that did not cost the record, as the label of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    /// A machine that serves nobody carried a cluster; it was dropped.
    UnboundCluster,
    /// A machine that serves nobody carried metadata; they were dropped.
    UnboundMetadata,
    /// A failed machine gave no error; one was made up.
    FailedWithoutError,
    /// A Configuring machine named no cluster. The machine comes without one: fill in the cluster that it is being
    /// configured for, or refuse it when there is none.
    ConfiguringWithoutCluster,
    /// A stamp of ours came back unreadable; it was skipped.
    MalformedMetadata,
    /// The error text was too long; it was cut.
    LongError,
    /// An id was listed twice; the last record counts.
    DuplicateId,
    /// The revision was too long; it was ignored, so that the next List is a full one.
    LongRevision,
    /// A removed id was no id; it was ignored.
    BadRemovedId,
}

impl Violation {
    /// The label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::UnboundCluster => "unbound_cluster",
            Self::UnboundMetadata => "unbound_metadata",
            Self::FailedWithoutError => "failed_without_error",
            Self::ConfiguringWithoutCluster => "configuring_without_cluster",
            Self::MalformedMetadata => "malformed_metadata",
            Self::LongError => "long_error",
            Self::DuplicateId => "duplicate_id",
            Self::LongRevision => "long_revision",
            Self::BadRemovedId => "bad_removed_id",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// One record after the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The id that it carries, also when the rest was refused: the machine was seen. `None` when the id itself is bad.
    pub id: Option<MachineId>,
    /// The machine. Repairs are done, but for [`Violation::ConfiguringWithoutCluster`].
    pub machine: Result<Machine, Refused>,
    /// What was repaired, in no particular order.
    pub violations: Vec<Violation>,
}

/// A List after the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Every id once, in the order of the answer; a repeated id stands where it was last.
    pub records: Vec<Record>,
    /// What to ask the next changes with; `None` when the provider has no revisions.
    pub revision: Option<Bytes>,
    /// Machines that the provider says are gone.
    pub removed: Vec<MachineId>,
    /// Breaches of the List itself.
    pub violations: Vec<Violation>,
}

/// An acknowledgement after the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The provider's name for the operation.
    pub operation_id: String,
    /// The machine as acknowledged. One that is missing is refused as structural.
    pub record: Record,
}

/// Checks one record.
#[must_use]
pub fn record(machine: &wire::Machine) -> Record {
    check(machine, "", &mut Texts::default())
}

/// Checks a List, record by record. Field paths begin with `machines[i]`.
#[must_use]
pub fn list(message: &wire::MachineList) -> Listing {
    let mut texts = Texts::default();
    let mut violations = Vec::new();
    let mut last: HashMap<&str, usize> = HashMap::with_capacity(message.machines.len());
    for (i, machine) in message.machines.iter().enumerate() {
        if last.insert(&machine.id, i).is_some() && !machine.id.is_empty() {
            violations.push(Violation::DuplicateId);
        }
    }
    let records = message
        .machines
        .iter()
        .enumerate()
        .filter(|(i, machine)| machine.id.is_empty() || last.get(machine.id.as_str()) == Some(i))
        .map(|(i, machine)| check(machine, format_args!("machines[{i}]"), &mut texts))
        .collect();
    let revision = match message.revision.len() {
        0 => None,
        1..=MAX_REVISION_BYTES => Some(message.revision.clone()),
        _ => {
            violations.push(Violation::LongRevision);
            None
        }
    };
    let mut removed = Vec::new();
    for id in &message.removed_ids {
        match MachineId::parse(id) {
            Ok(id) => removed.push(id),
            Err(_) => violations.push(Violation::BadRemovedId),
        }
    }
    Listing { records, revision, removed, violations }
}

/// Checks an acknowledgement. Field paths begin with `machine`.
#[must_use]
pub fn acknowledged(ack: &wire::TransitionAck) -> Acknowledged {
    let record = match &ack.machine {
        Some(machine) => check(machine, "machine", &mut Texts::default()),
        None => Record {
            id: None,
            machine: Err(Refused {
                reason: Reason::Structural,
                error: Error::at(
                    "machine",
                    Problem::Missing("an acknowledgement says what became of the machine"),
                ),
            }),
            violations: Vec::new(),
        },
    };
    Acknowledged { operation_id: ack.operation_id.clone(), record }
}

fn check(wire: &wire::Machine, path: impl fmt::Display, texts: &mut Texts) -> Record {
    let mut violations = Vec::new();
    let id = MachineId::parse(&wire.id);
    let machine = match &id {
        Ok(id) => build(wire, id.clone(), texts, &mut violations),
        Err(error) => Err(structural("id", Problem::Id(error.clone()))),
    };
    let machine = machine.map_err(|mut refused| {
        // What was repaired in a refused record is of no interest.
        violations.clear();
        let path = path.to_string();
        if !path.is_empty() {
            refused.error = refused.error.within(path);
        }
        refused
    });
    Record { id: id.ok(), machine, violations }
}

fn build(
    wire: &wire::Machine,
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
    let resources = vector("resources", wire.resources.as_ref(), texts)?;
    let allocatable = vector("allocatable", wire.allocatable.as_ref(), texts)?;
    if wire.labels.len() > MAX_LABELS {
        let problem = Problem::TooMany { found: wire.labels.len(), limit: MAX_LABELS };
        return Err(structural("labels", problem));
    }
    let host = host(wire.host.as_ref(), texts);
    let (cluster, attribution) = binding(wire, state, texts, violations)?;
    if cluster.is_some() && host.is_none() {
        return Err(structural("host", Problem::Missing("although the machine has a cluster")));
    }

    Ok(Machine {
        id,
        state,
        host,
        cluster,
        instance_type: texts.text(&wire.instance_type),
        zone: texts.text(&wire.zone),
        capacity_type,
        price,
        interruption_probability,
        resources,
        allocatable,
        labels: wire.labels.iter().map(|(key, value)| (texts.text(key), texts.text(value))).collect(),
        last_error: last_error(&wire.last_error, state, violations),
        attribution,
    })
}

/// Whom the machine serves, and for which Need.
fn binding(
    wire: &wire::Machine,
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
    let cluster = match wire.cluster.as_str() {
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
    let (attribution, malformed) = metadata::decode_into(&wire.shard_metadata, texts);
    violations.extend(malformed.iter().map(|_| Violation::MalformedMetadata));
    Ok((cluster, attribution))
}

/// Two empty texts are no host.
fn host(wire: Option<&wire::HostRef>, texts: &mut Texts) -> Option<Host> {
    let wire = wire.filter(|host| !host.provider.is_empty() || !host.r#ref.is_empty())?;
    Some(Host { provider: texts.text(&wire.provider), reference: texts.text(&wire.r#ref) })
}

fn vector(field: &str, wire: Option<&wire::Resources>, texts: &mut Texts) -> Result<Resources, Refused> {
    let Some(wire) = wire else { return Ok(Resources::EMPTY) };
    amounts::supply(&wire.resources, texts).map_err(|error| Refused {
        reason: Reason::Structural,
        error: error.within("resources").within(field),
    })
}

fn last_error(text: &str, state: MachineState, violations: &mut Vec<Violation>) -> Arc<str> {
    if text.is_empty() && state == MachineState::Failed {
        violations.push(Violation::FailedWithoutError);
        return NO_ERROR_GIVEN.into();
    }
    if text.len() <= MAX_LAST_ERROR_BYTES {
        return text.into();
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
