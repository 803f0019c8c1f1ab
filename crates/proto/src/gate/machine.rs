//! Provider records. Each is judged by itself: a bad one is refused and never takes the others with it.
//!
//! A refused record is not a removal: whoever keeps the machines keeps the last good one. Some breaches of the contract
//! are repaired instead, where there is only one sensible reading, and reported as [`Violation`]s to be counted.

use std::fmt;
use std::sync::Arc;

use bigfleet_types::{Machine, MachineId};

use super::{Error, Problem, Texts};
use crate::v1alpha1 as wire;

mod check;
mod list;
mod view;
mod walk;

use check::check;
pub use list::{Difference, Known, Listing, Said};
use view::View;

/// Labels of one machine.
pub const MAX_LABELS: usize = 64;
/// Bytes of all keys and values of a machine's `shard_metadata`.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Bytes of `last_error`; a longer one is cut and marked.
pub const MAX_LAST_ERROR_BYTES: usize = 4 << 10;
/// Bytes of a List's revision.
pub const MAX_REVISION_BYTES: usize = 4 << 10;

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
    pub machine: Result<Arc<Machine>, Box<Refused>>,
    /// What was repaired, in no particular order.
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
    let mut texts = Texts::default();
    check(&View::of(machine, &mut texts), "", &mut texts)
}

/// Checks an acknowledgement. Field paths begin with `machine`.
#[must_use]
pub fn acknowledged(ack: &wire::TransitionAck) -> Acknowledged {
    let record = match &ack.machine {
        Some(machine) => {
            let mut texts = Texts::default();
            check(&View::of(machine, &mut texts), "machine", &mut texts)
        }
        None => Record {
            id: None,
            machine: Err(Box::new(Refused {
                reason: Reason::Structural,
                error: Error::at(
                    "machine",
                    Problem::Missing("an acknowledgement says what became of the machine"),
                ),
            })),
            violations: Vec::new(),
        },
    };
    Acknowledged { operation_id: ack.operation_id.clone(), record }
}
