//! The first gate of every call: is the request well formed at all?

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{IdError, MachineId, MachineState};

use crate::blob::Blob;
use crate::table::{Binding, Call, Command, Token};

/// Largest bootstrap blob, in bytes.
pub const MAX_BLOB_BYTES: usize = 4 * 1024 * 1024;
/// Largest `shard_metadata`, keys and values together, in bytes.
pub const MAX_METADATA_BYTES: usize = 4 * 1024 * 1024;
/// Longest shard or cluster id, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// What is wrong with a request. The text begins with the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The machine id cannot be one.
    #[error("{field} {source}")]
    Id {
        /// The field.
        field: &'static str,
        /// What is wrong.
        source: IdError,
    },
    /// A text that must be there is not, or is too long.
    #[error("{field} has {len} bytes, must have {range}")]
    Length {
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
        /// What would be right.
        range: &'static str,
    },
    /// A number is below zero.
    #[error("{field} is {value}, must not be negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// A state that is none.
    #[error("states[{index}] is {value}, which is no machine state")]
    State {
        /// The position in the list.
        index: usize,
        /// The number given.
        value: i32,
    },
}

/// Checks the id of a `Get`.
///
/// # Errors
/// When no machine can have such an id.
pub fn machine_id(field: &'static str, text: &str) -> Result<MachineId, Malformed> {
    MachineId::parse(text).map_err(|source| Malformed::Id { field, source })
}

/// Checks a `Create`.
///
/// # Errors
/// The first malformed field.
pub fn create(request: pb::CreateRequest) -> Result<Call, Malformed> {
    let pb::CreateRequest { machine_id, shard_id, shard_epoch, sequence_number } = request;
    call(&machine_id, shard_id, shard_epoch, sequence_number, Command::Create)
}

/// Checks a `Configure` and takes the blob out of it.
///
/// # Errors
/// The first malformed field.
pub fn configure(request: pb::ConfigureRequest) -> Result<(Call, Blob), Malformed> {
    let blob = Blob::new(request.bootstrap_blob);
    let binding = Binding { cluster: request.cluster_id, metadata: request.shard_metadata };
    let (cluster, metadata) = (binding.cluster.len(), metadata_bytes(&binding.metadata));
    let call = call(
        &request.machine_id,
        request.shard_id,
        request.shard_epoch,
        request.sequence_number,
        Command::Configure(binding),
    )?;
    between("cluster_id", cluster, 1, MAX_NAME_BYTES, "1 to 253")?;
    between("bootstrap_blob", blob.len(), 0, MAX_BLOB_BYTES, "at most 4 MiB")?;
    between("shard_metadata", metadata, 0, MAX_METADATA_BYTES, "at most 4 MiB")?;
    Ok((call, blob))
}

/// Checks a `Drain`.
///
/// # Errors
/// The first malformed field.
pub fn drain(request: pb::DrainRequest) -> Result<Call, Malformed> {
    let grace_seconds = request.grace_period_seconds;
    not_negative("grace_period_seconds", grace_seconds)?;
    call(
        &request.machine_id,
        request.shard_id,
        request.shard_epoch,
        request.sequence_number,
        Command::Drain { grace_seconds },
    )
}

/// Checks a `Delete`.
///
/// # Errors
/// The first malformed field.
pub fn delete(request: pb::DeleteRequest) -> Result<Call, Malformed> {
    let pb::DeleteRequest { machine_id, shard_id, shard_epoch, sequence_number } = request;
    call(&machine_id, shard_id, shard_epoch, sequence_number, Command::Delete)
}

/// Checks a `List`: the states asked for (empty: all) and the limit (0: none).
///
/// # Errors
/// The first malformed field.
pub fn filter(filter: &pb::ListFilter) -> Result<(BTreeSet<MachineState>, usize), Malformed> {
    let limit = usize::try_from(filter.max_results)
        .map_err(|_| Malformed::Negative { field: "max_results", value: filter.max_results.into() })?;
    let state = |(index, value): (usize, &i32)| {
        MachineState::from_number(*value).ok_or(Malformed::State { index, value: *value })
    };
    Ok((filter.states.iter().enumerate().map(state).collect::<Result<_, _>>()?, limit))
}

/// Checks a token that there is no mark to compare with: the first one of a shard for a machine.
///
/// # Errors
/// A negative number.
pub(crate) fn first_token(epoch: i64, sequence: i64) -> Result<(), Malformed> {
    not_negative("shard_epoch", epoch)?;
    not_negative("sequence_number", sequence)
}

fn call(
    machine: &str,
    shard_id: String,
    epoch: i64,
    sequence: i64,
    command: Command,
) -> Result<Call, Malformed> {
    let machine = machine_id("machine_id", machine)?;
    between("shard_id", shard_id.len(), 0, MAX_NAME_BYTES, "at most 253")?;
    Ok(Call { machine, token: Token { shard_id, epoch, sequence }, command })
}

fn metadata_bytes(metadata: &BTreeMap<String, String>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn not_negative(field: &'static str, value: i64) -> Result<(), Malformed> {
    if value < 0 { Err(Malformed::Negative { field, value }) } else { Ok(()) }
}

fn between(
    field: &'static str,
    len: usize,
    min: usize,
    max: usize,
    range: &'static str,
) -> Result<(), Malformed> {
    if (min..=max).contains(&len) { Ok(()) } else { Err(Malformed::Length { field, len, range }) }
}
