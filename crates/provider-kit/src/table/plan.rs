//! Judging calls and completions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{MachineId, MachineState};

use super::describe::wire_resources;
use super::{Change, Mark, Table};
use crate::defects::Defect;
use crate::instance::Host;
use crate::kind::Kind;
use crate::shape::{self, Malformed};

/// Who calls: a shard's process and the number of its attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Token {
    /// The shard.
    pub shard_id: String,
    /// Its epoch.
    pub epoch: i64,
    /// Its sequence number.
    pub sequence: i64,
}

impl Token {
    /// Whether this is the token of a caller without fencing, such as a person's test client: all of it is zero.
    #[must_use]
    pub fn is_unfenced(&self) -> bool {
        *self == Self::default()
    }
}

/// To whom a machine is bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Binding {
    /// The cluster; never empty.
    pub cluster: String,
    /// The shard's notes, kept byte for byte.
    pub metadata: BTreeMap<String, String>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make a host.
    Create,
    /// Join a cluster.
    Configure(Binding),
    /// Leave the cluster.
    Drain {
        /// Time that pods get, in seconds, not negative.
        grace_seconds: i64,
    },
    /// Give the host back.
    Delete,
}

impl Command {
    /// The operation.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Create => Kind::Create,
            Self::Configure(_) => Kind::Configure,
            Self::Drain { .. } => Kind::Drain,
            Self::Delete => Kind::Delete,
        }
    }
}

/// One call, its shape already checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The machine.
    pub machine: MachineId,
    /// Who calls.
    pub token: Token,
    /// What is asked for.
    pub command: Command,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller is superseded, or the attempt was seen before.
    #[error(
        "fenced: token (epoch {epoch}, sequence {sequence}) of shard {shard:?} is not newer than the accepted (epoch {mark_epoch}, sequence {mark_sequence}) for this machine"
    )]
    Fenced {
        /// The shard.
        shard: String,
        /// The token's epoch.
        epoch: i64,
        /// The token's sequence number.
        sequence: i64,
        /// The mark's epoch.
        mark_epoch: i64,
        /// The mark's sequence number.
        mark_sequence: i64,
    },
    /// The shard's newer process was here already, with whatever machine.
    #[error("fenced: epoch {epoch} of shard {shard:?} is over, epoch {newest} has begun to move machines")]
    Superseded {
        /// The shard.
        shard: String,
        /// The token's epoch.
        epoch: i64,
        /// The newest epoch seen.
        newest: i64,
    },
    /// The shard's first token for this machine has a negative number.
    #[error(transparent)]
    Token(Malformed),
    /// No such machine.
    #[error("machine_id: no machine {0:?}")]
    Unknown(MachineId),
    /// The machine serves, or joins, a cluster other than the one asked for.
    #[error(
        "machine {machine:?} is bound to cluster {bound:?}; drain it before it is configured for {asked:?}"
    )]
    OtherCluster {
        /// The machine.
        machine: MachineId,
        /// Its cluster.
        bound: String,
        /// The cluster that was asked for.
        asked: String,
    },
    /// The back end cannot give hosts of this kind back.
    #[error("machine {0:?} cannot be deleted: its provider keeps its hosts")]
    CannotDelete(MachineId),
    /// The machine is not where the operation starts.
    #[error("{kind} of machine {machine:?} starts from {origin}, but it is {state}{}", because(.last_error))]
    Position {
        /// The operation.
        kind: Kind,
        /// The machine.
        machine: MachineId,
        /// Where the operation starts.
        origin: MachineState,
        /// Where the machine is.
        state: MachineState,
        /// Why it failed, if it did.
        last_error: String,
    },
    /// The back end has no such host to give now.
    #[error("machine {machine:?} is out of stock: {reason}")]
    OutOfStock {
        /// The machine.
        machine: MachineId,
        /// What the back end says.
        reason: String,
    },
}

fn because(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!(" ({last_error})") }
}

/// What the back end can do, asked while a call is judged. Answers must be instant.
pub trait Checks {
    /// Whether the host of a machine can be given back.
    fn can_delete(&self, machine: &pb::Machine) -> bool;
    /// Whether a host for a machine can be had now.
    ///
    /// # Errors
    /// Why not.
    fn in_stock(&self, machine: &pb::Machine) -> Result<(), String>;
}

/// What a successful call is answered with.
#[derive(Debug, Clone, PartialEq)]
pub struct Ack {
    /// The same for every repeat.
    pub operation_id: String,
    /// The machine as it is once the change is applied.
    pub machine: Arc<pb::Machine>,
}

/// Work that the back end must now do.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The operation.
    pub kind: Kind,
    /// Its id.
    pub operation_id: String,
    /// The machine's id.
    pub machine_id: MachineId,
    /// The machine in its transitional state.
    pub machine: Arc<pb::Machine>,
    /// The grace of a Drain, in seconds.
    pub grace_seconds: i64,
}

/// A judged call: store `change` first, then answer, then start `work`.
#[derive(Debug)]
pub struct Plan {
    /// What to answer.
    pub answer: Result<Ack, Refusal>,
    /// What to make durable and apply before anything else; a refused call may have moved the fencing mark.
    pub change: Option<Change>,
    /// What to start.
    pub work: Option<Work>,
}

/// How work ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A host was made.
    Created {
        /// The host.
        host: Host,
        /// What the hardware has, if it is known better now.
        resources: Option<BTreeMap<String, String>>,
        /// What pods can use of it, if it is known better now.
        allocatable: Option<BTreeMap<String, String>>,
    },
    /// The host joined its cluster and its node is Ready.
    Configured,
    /// The host left its cluster.
    Drained,
    /// The host was given back.
    Deleted,
}

impl Outcome {
    fn kind(&self) -> Kind {
        match self {
            Self::Created { .. } => Kind::Create,
            Self::Configured => Kind::Configure,
            Self::Drained => Kind::Drain,
            Self::Deleted => Kind::Delete,
        }
    }
}

/// How work ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why, for `last_error`.
    pub reason: String,
    /// Whether it was a Create that made nothing.
    pub untouched: bool,
}

impl<T: Into<String>> From<T> for Failure {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), untouched: false }
    }
}

impl Table {
    /// Judges one call: fence, existence, repeat, position, in this order.
    ///
    /// A token with a negative number is malformed, but only where no mark says what it is compared with: the contract
    /// wants it refused as an argument (B211) and compared like any other (B1201, B1204), and this rule does both.
    /// Shards of ours never send one.
    pub fn plan(&mut self, call: &Call, checks: &dyn Checks) -> Plan {
        match self.switch.on() {
            None => self.plan_sound(call, checks),
            Some(defect) => self.plan_broken(defect, call, checks),
        }
    }

    pub(super) fn plan_sound(&mut self, call: &Call, checks: &dyn Checks) -> Plan {
        let Call { machine: id, token, command } = call;
        let mark = (!token.is_unfenced()).then(|| Mark {
            shard_id: token.shard_id.clone(),
            machine_id: id.to_string(),
            epoch: token.epoch,
            sequence: token.sequence,
        });
        if let Some(mark) = &mark
            && let Err(refusal) = self.fence(mark)
        {
            return Plan { answer: Err(refusal), change: None, work: None };
        }
        match self.judge(id, command, checks) {
            Ok(Verdict::Repeat(ack)) => Plan { answer: Ok(ack), change: mark.map(only_mark), work: None },
            Ok(Verdict::Start) => self.start(id, command, mark),
            Err(refusal) => Plan { answer: Err(refusal), change: mark.map(only_mark), work: None },
        }
    }

    pub(super) fn fence(&self, mark: &Mark) -> Result<(), Refusal> {
        if self.strict_epoch
            && let Some(newest) = self.marks.newest_epoch(&mark.shard_id)
            && mark.epoch < newest
        {
            return Err(Refusal::Superseded { shard: mark.shard_id.clone(), epoch: mark.epoch, newest });
        }
        let token = (mark.epoch, mark.sequence);
        if !self.marks.has(&mark.shard_id, &mark.machine_id) {
            return shape::first_token(mark.epoch, mark.sequence).map_err(Refusal::Token);
        }
        self.marks.check(&mark.shard_id, &mark.machine_id, token).map_err(|(mark_epoch, mark_sequence)| {
            Refusal::Fenced {
                shard: mark.shard_id.clone(),
                epoch: mark.epoch,
                sequence: mark.sequence,
                mark_epoch,
                mark_sequence,
            }
        })
    }

    fn judge(&self, id: &MachineId, command: &Command, checks: &dyn Checks) -> Result<Verdict, Refusal> {
        let kind = command.kind();
        let record = self.records.get(id).ok_or_else(|| Refusal::Unknown(id.clone()))?;
        let machine = record.machine();
        let joined = matches!(record.state, MachineState::Configuring | MachineState::Configured);
        if let Command::Configure(binding) = command
            && joined
            && machine.cluster != binding.cluster
        {
            let (bound, asked) = (machine.cluster.clone(), binding.cluster.clone());
            return Err(Refusal::OtherCluster { machine: id.clone(), bound, asked });
        }
        if let Some(operation) = record.repeat(kind) {
            let ack = Ack { operation_id: operation.to_owned(), machine };
            return Ok(Verdict::Repeat(ack));
        }
        if kind == Kind::Delete && !checks.can_delete(&machine) {
            return Err(Refusal::CannotDelete(id.clone()));
        }
        if record.state != kind.origin() {
            return Err(Refusal::Position {
                kind,
                machine: id.clone(),
                origin: kind.origin(),
                state: record.state,
                last_error: machine.last_error.clone(),
            });
        }
        if kind == Kind::Create {
            checks
                .in_stock(&machine)
                .map_err(|reason| Refusal::OutOfStock { machine: id.clone(), reason })?;
        }
        Ok(Verdict::Start)
    }

    pub(super) fn start(&mut self, id: &MachineId, command: &Command, mark: Option<Mark>) -> Plan {
        let Some(mut record) = self.records.get(id).cloned() else {
            return Plan {
                answer: Err(Refusal::Unknown(id.clone())),
                change: mark.map(only_mark),
                work: None,
            };
        };
        let operation_id = self.next_operation(command.kind(), id);
        record.start(command.kind(), operation_id.clone());
        match command {
            Command::Configure(binding) => {
                let machine = record.edit();
                machine.cluster.clone_from(&binding.cluster);
                machine.shard_metadata.clone_from(&binding.metadata);
            }
            Command::Drain { grace_seconds } => record.grace_seconds = *grace_seconds,
            Command::Create | Command::Delete => {}
        }
        record.edit().last_error.clear();
        let machine = record.machine();
        let work = Work {
            kind: command.kind(),
            operation_id: operation_id.clone(),
            machine_id: id.clone(),
            machine: Arc::clone(&machine),
            grace_seconds: record.grace_seconds,
        };
        let ack = Ack { operation_id, machine };
        Plan { answer: Ok(ack), change: Some(self.change(record, mark)), work: Some(work) }
    }

    /// Plans the end of work. `None` when the machine has moved on meanwhile: the result is stale.
    pub fn plan_end(&mut self, work: &Work, result: Result<Outcome, Failure>) -> Option<Change> {
        let record = self.records.get(&work.machine_id)?;
        let late =
            self.switch.is(Defect::LateSuccessWins) && result.is_ok() && record.state == MachineState::Failed;
        let current = (record.state == work.kind.transitional() || late)
            && record.operation(work.kind) == Some(work.operation_id.as_str());
        if !current {
            return None;
        }
        let mut record = record.clone();
        match result {
            Ok(outcome) if outcome.kind() == work.kind => {
                match outcome {
                    Outcome::Created { host, resources, allocatable } => {
                        if host.provider.is_empty() && host.reference.is_empty() {
                            record.fail("the back end created a host without a name");
                            return Some(self.change(record, None));
                        }
                        record.set_host(&host);
                        if let Some(resources) = resources {
                            record.edit().resources = wire_resources(&resources);
                        }
                        if let Some(allocatable) = allocatable {
                            record.edit().allocatable = wire_resources(&allocatable);
                        }
                    }
                    Outcome::Configured => {}
                    Outcome::Drained if self.switch.is(Defect::MetadataOutliveDrain) => {
                        record.edit().cluster.clear();
                    }
                    Outcome::Drained => record.unbind(),
                    Outcome::Deleted => {
                        record.unbind();
                        record.edit().host = None;
                    }
                }
                record.enter(work.kind.target());
            }
            Ok(outcome) => {
                record.fail(&format!("the back end ended a {} as a {}", work.kind, outcome.kind()));
            }
            Err(Failure { reason, untouched }) => {
                record.fail(&reason);
                record.untouched = untouched && work.kind == Kind::Create;
            }
        }
        Some(self.change(record, None))
    }
}

enum Verdict {
    Repeat(Ack),
    Start,
}

fn only_mark(mark: Mark) -> Change {
    Change { mark: Some(mark), ..Change::default() }
}
