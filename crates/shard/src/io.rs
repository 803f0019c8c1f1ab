//! What goes into the control core and what comes out of it. The core decides; the shell talks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::Decisions;
use bigfleet_proto::gate::machine;
pub use bigfleet_proto::gate::rollup::{Change, Ingest};
use bigfleet_proto::v1alpha1::ShardMessage;
use bigfleet_types::{Attribution, ClusterId, Machine, MachineId, NeedKey, Resources, UnixNanos};

use crate::decision_audit::{DecisionAudit, Divergence};

mod listing;

pub use listing::{Known, Listing};

/// One call to the provider, numbered from 1 in the order in which the core asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One operator stream, numbered from 1 in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// A List came back.
    Listed {
        /// The call that asked for it.
        call: CallId,
        /// What is known of the provider's Lists, for the next one.
        known: Box<Known>,
        /// How it differs from the List before, or why there is no answer.
        result: Result<Listing, CallError>,
    },
    /// A Get came back.
    Got {
        /// The call that asked for it.
        call: CallId,
        /// The record.
        result: Result<Reported, CallError>,
    },
    /// A lifecycle call was answered.
    Acked {
        /// The call that asked for it.
        call: CallId,
        /// What the provider acknowledged.
        result: Result<Acknowledged, CallError>,
    },
    /// An operator said Hello. Its answer and the replay of its machines are the core's first frames to it. A newer
    /// session of a cluster replaces the older one.
    SessionOpened {
        /// The stream.
        session: SessionId,
        /// Who speaks.
        cluster: ClusterId,
    },
    /// An operator said Hello again on its stream.
    HelloAgain {
        /// The stream.
        session: SessionId,
    },
    /// A stream ended, whoever ended it.
    SessionClosed {
        /// The stream.
        session: SessionId,
    },
    /// A roll-up arrived and passed the gate, or did not.
    Rollup {
        /// The stream.
        session: SessionId,
        /// The timestamp that the operator gave it: echoed, never used for order.
        timestamp_unix_nanos: i64,
        /// All rows, or how they differ from those of the roll-up before on this stream that passed; or the reason for
        /// refusing the message whole.
        rows: Result<Change, String>,
    },
    /// An operator answered a bootstrap request.
    Blob {
        /// The stream.
        session: SessionId,
        /// Which request.
        request_id: String,
        /// The blob, or the operator's own error, or what is wrong with its answer.
        answer: Result<Blob, String>,
    },
    /// An operator began a drain.
    ReclaimAcked {
        /// The stream.
        session: SessionId,
        /// Which instruction.
        instruction_id: String,
    },
    /// An audit of a decision ended.
    DecisionAudited {
        /// The cycle whose decision it was.
        cycle: u64,
        /// What is different, if anything; or why that is not known.
        result: Result<Option<Divergence>, String>,
    },
    /// Whether the PAUSE file is there, or the flag is set.
    Paused(bool),
    /// No new work: the process is about to stop.
    Stopping,
}

/// One record of the provider, past the gate or refused by it.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The id that it carries; `None` when it carries no usable one.
    pub id: Option<MachineId>,
    /// The machine, repaired where the contract allows it.
    pub record: Result<Arc<Machine>, Refused>,
    /// What was repaired, as labels of the violations counter.
    pub violations: Vec<&'static str>,
}

impl From<machine::Record> for Reported {
    fn from(record: machine::Record) -> Self {
        let refused = |refused: Box<machine::Refused>| Refused {
            reason: refused.reason.label(),
            message: refused.to_string(),
        };
        Self {
            id: record.id,
            record: record.machine.map_err(refused),
            violations: record.violations.into_iter().map(machine::Violation::label).collect(),
        }
    }
}

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `price`, `interruption_probability` or `structural`.
    pub reason: &'static str,
    /// What is wrong, with the field path.
    pub message: String,
}

/// A lifecycle acknowledgement.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    /// The provider's operation id.
    pub operation_id: String,
    /// The machine as acknowledged; a missing one is refused as structural.
    pub machine: Reported,
}

/// Why a call gave no answer, sorted by what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// FAILED_PRECONDITION: our token was not newer than one that the provider has seen.
    Fenced(String),
    /// NOT_FOUND.
    NotFound,
    /// UNIMPLEMENTED.
    Unimplemented,
    /// RESOURCE_EXHAUSTED.
    Exhausted(String),
    /// UNAUTHENTICATED or PERMISSION_DENIED.
    Denied(String),
    /// Another answer that says the operation was not taken: INVALID_ARGUMENT, INTERNAL, ABORTED and the like.
    Rejected(String),
    /// No answer: nothing is known of what the provider did.
    Ambiguous {
        /// Whether it was our own deadline.
        deadline: bool,
        /// What the transport said.
        message: String,
    },
}

pub use crate::secret::Secret;

/// What an operator rendered for one machine. Good for one attempt.
#[derive(Debug)]
pub struct Blob {
    /// Opaque: forwarded, never logged.
    pub user_data: Secret,
    /// How long it may be used, from its arrival.
    pub ttl: Duration,
}

/// Something is to be done.
#[derive(Debug)]
pub enum Output {
    /// Ask for all machines.
    List {
        /// Answered by [`Input::Listed`].
        call: CallId,
        /// What is known of the List before; comes back with the answer.
        known: Box<Known>,
    },
    /// Ask for one machine.
    Get {
        /// Answered by [`Input::Got`].
        call: CallId,
        /// Which one.
        machine: MachineId,
    },
    /// Change a machine. The shell stamps the fencing token, with a fresh sequence number for each.
    Mutate {
        /// Answered by [`Input::Acked`].
        call: CallId,
        /// Which one.
        machine: MachineId,
        /// How.
        mutation: Mutation,
    },
    /// Send a frame to an operator.
    Send {
        /// The stream.
        session: SessionId,
        /// In which lane.
        lane: Lane,
        /// The frame.
        message: Box<ShardMessage>,
    },
    /// End a stream.
    Close {
        /// The stream.
        session: SessionId,
        /// Why; the shell maps it to a status.
        reason: CloseReason,
    },
    /// Write a line to the audit log.
    Audit(Box<AuditRecord>),
    /// Give readers a new copy of what the last cycle found.
    Publish(Arc<Published>),
    /// Compare a decision with a full pass, elsewhere. Answered by [`Input::DecisionAudited`].
    AuditDecision(Box<DecisionAudit>),
    /// Three machines in a row fenced us: look whether the epoch file holds a higher epoch, and stop if it does.
    CheckEpoch,
}

/// A change of one machine.
#[derive(Debug)]
pub enum Mutation {
    /// Make the host.
    Create,
    /// Join it to a cluster.
    Configure {
        /// Which cluster.
        cluster: ClusterId,
        /// What the operator rendered.
        blob: Secret,
        /// For which Need; the provider stores it for us.
        attribution: Attribution,
    },
    /// Take it from its cluster.
    Drain {
        /// How long that may take.
        grace: Duration,
    },
    /// Give the host back.
    Delete,
}

/// How a frame travels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lane {
    /// In order; none may be lost.
    Fifo,
    /// The same, and what waits under this key goes ahead of it: the frame only makes sense after that one.
    Behind(String),
    /// The newest frame of a key replaces an older one that still waits.
    Coalescing(String),
}

/// Why the shard ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// A roll-up came that builds on one that never came.
    OutOfStep,
    /// A newer session of the cluster took over.
    Replaced,
}

/// One line of the audit log: what became of one action.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditRecord {
    /// The cycle count when this was written.
    pub cycle: u64,
    /// The cycle that decided it.
    pub decided_cycle: u64,
    /// The kind of action.
    pub kind: &'static str,
    /// The machine.
    pub machine: String,
    /// The cluster, if any.
    pub cluster: String,
    /// Why it was decided.
    pub reason: &'static str,
    /// The drain's grace.
    pub grace_seconds: u64,
    /// An outcome label, `suppressed` or `dryrun`.
    pub outcome: &'static str,
    /// More about the outcome; empty when there is nothing to add.
    pub detail: String,
    /// The provider's operation id; empty when there is none.
    pub operation_id: String,
}

/// What readers see of the last cycle.
#[derive(Debug, Default)]
pub struct Published {
    /// The cycle; 0: nothing was computed yet.
    pub cycle: u64,
    /// When it was computed.
    pub computed_at: UnixNanos,
    /// The engine's answer.
    pub decisions: Decisions,
    /// For how many cycle intervals Needs have been unmet; none that is met.
    pub unmet_age: Arc<BTreeMap<NeedKey, u32>>,
    /// What keeps decided machines from coming, by the Need's key.
    pub notes: BTreeMap<NeedKey, Note>,
}

/// Why machines that were decided for a Need are not coming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// For people.
    pub cause: Arc<str>,
    /// What is missing because of it, when the Need counts as unmet, whatever its verdict says.
    pub missing: Option<Resources>,
}
