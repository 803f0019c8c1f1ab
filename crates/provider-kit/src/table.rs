//! The machines of a provider and the rules for moving them: a plain value, without clock, disk or network.
//!
//! Every change takes two steps. A *plan* method judges a request against what is known and gives back a [`Change`]
//! to be made durable; [`Table::apply`] makes it true. Between the two nothing else may be planned for the same
//! machine, changes are applied in the order in which they were planned, and a change that could not be stored is
//! dropped: so no reader ever sees what a crash could take back.

mod broken;
mod change;
mod cursor;
mod describe;
mod encoded;
mod fence;
mod list;
mod plan;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{MachineId, MachineState};

use crate::backend::Operation;
use crate::defects::{Defect, Switch};
use crate::kind::Kind;

pub use change::{Change, Mark, StoredMachine, StoredOperation};
pub use encoded::Encoded;
pub use fence::MAX_GHOSTS;
pub use list::Page;
pub use plan::{Ack, Binding, Call, Checks, Command, Failure, Outcome, Plan, Refusal, Token, Work};
pub use record::Record;

/// Ids of removed machines that are remembered for deltas. An older cursor gets a full list.
const MAX_TOMBSTONES: usize = 10_000;

/// What is wrong with a stored change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored machine {machine:?}: {problem}")]
pub struct Unreadable {
    machine: String,
    problem: String,
}

/// What a revision stands for.
#[derive(Debug, Clone, PartialEq)]
enum Touched {
    /// The machine as it is in its record, so that lists need not look it up.
    Changed {
        id: MachineId,
        state: MachineState,
        machine: Encoded,
    },
    Removed(String),
}

/// All machines, fencing marks and counters of one provider.
#[derive(Debug)]
pub struct Table {
    records: BTreeMap<MachineId, Record>,
    revisions: BTreeMap<u64, Touched>,
    tombstones: BTreeMap<String, u64>,
    /// Removals up to this revision are forgotten.
    horizon: u64,
    marks: fence::Marks,
    /// The highest revision that readers may see.
    head: u64,
    /// The highest revision given to a plan.
    planned: u64,
    /// The highest operation number given to a plan.
    operations: u64,
    prefix: String,
    strict_epoch: bool,
    /// Tells cursors of this table from those of others; 0 until it has one.
    identity: u64,
    /// What is broken on purpose.
    pub(crate) switch: Switch,
    /// For [`Defect::MetadataShared`](crate::defects::Defect) alone.
    latest_metadata: BTreeMap<String, String>,
}

impl Table {
    /// An empty table whose operation ids read `<prefix>-<number>`.
    #[must_use]
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            records: BTreeMap::new(),
            revisions: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            horizon: 0,
            marks: fence::Marks::default(),
            head: 0,
            planned: 0,
            operations: 0,
            prefix: prefix.into(),
            strict_epoch: false,
            identity: 0,
            switch: Switch::default(),
            latest_metadata: BTreeMap::new(),
        }
    }

    /// Fences a shard by its newest epoch on any machine, too.
    #[must_use]
    pub fn strict_epoch(mut self, strict: bool) -> Self {
        self.strict_epoch = strict;
        self
    }

    /// Makes a change true, whether just stored or read back at a start.
    ///
    /// # Errors
    /// The change says something that no version of the kit writes; the table is unchanged.
    pub fn apply(&mut self, change: Change) -> Result<(), Unreadable> {
        let Change { machine, removed, mark, revision, operations, horizon, identity } = change;
        let record = machine.map(Record::restore).transpose()?;
        if let Some(mark) = mark {
            let known = self.records.contains_key(mark.machine_id.as_str());
            self.marks.set(mark, known);
        }
        if !removed.is_empty() {
            if let Some(old) = self.records.remove(removed.as_str()) {
                self.revisions.remove(&old.revision);
            }
            self.marks.orphan(&removed);
            self.bury(removed, revision);
        }
        if let Some((id, record)) = record {
            let (at, state, machine) = (record.revision, record.state, record.encoded());
            if let Some(old) = self.tombstones.remove(id.as_str()) {
                self.revisions.remove(&old);
            }
            if let Some(old) = self.records.insert(id.clone(), record) {
                self.revisions.remove(&old.revision);
            }
            self.marks.adopt(id.as_str());
            self.revisions.insert(at, Touched::Changed { id, state, machine });
        }
        if identity != 0 {
            self.identity = identity;
        }
        self.horizon = self.horizon.max(horizon);
        self.head = self.head.max(revision);
        self.planned = self.planned.max(revision);
        self.operations = self.operations.max(operations);
        Ok(())
    }

    fn bury(&mut self, id: String, revision: u64) {
        if let Some(old) = self.tombstones.insert(id.clone(), revision) {
            self.revisions.remove(&old);
        }
        self.revisions.insert(revision, Touched::Removed(id));
        if self.tombstones.len() > MAX_TOMBSTONES
            && let Some((id, at)) = self.tombstones.iter().min_by_key(|(_, at)| **at)
        {
            let (id, at) = (id.clone(), *at);
            self.tombstones.remove(&id);
            self.revisions.remove(&at);
            self.horizon = self.horizon.max(at);
        }
    }

    /// Everything that must survive a restart, as changes that rebuild it in any empty table.
    pub fn snapshot(&self) -> impl Iterator<Item = Change> + '_ {
        let counters = Change {
            revision: self.head,
            operations: self.operations,
            horizon: self.horizon,
            identity: self.identity,
            ..Change::default()
        };
        let touched = self.revisions.iter().filter_map(|(revision, touched)| match touched {
            Touched::Changed { id, .. } => {
                let machine = self.records.get(id)?.store();
                Some(Change { machine: Some(machine), revision: *revision, ..Change::default() })
            }
            Touched::Removed(id) => {
                Some(Change { removed: id.clone(), revision: *revision, ..Change::default() })
            }
        });
        let marks = self.marks.iter().map(|mark| Change { mark: Some(mark), ..Change::default() });
        touched.chain(marks).chain([counters])
    }

    /// One machine as callers see it.
    #[must_use]
    pub fn machine(&self, id: &str) -> Option<Arc<pb::Machine>> {
        self.records.get(id).map(Record::machine)
    }

    /// One machine with the kit's own notes.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.records.get(id)
    }

    /// All machines in id order.
    pub fn records(&self) -> impl Iterator<Item = (&MachineId, &Record)> {
        self.records.iter()
    }

    /// How many machines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// The highest revision that readers may see.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Plans the identity of a table that has none yet: any number but 0 that no other table has.
    pub fn plan_identity(&self, identity: u64) -> Option<Change> {
        (self.identity == 0 && identity != 0).then(|| Change { identity, ..Change::default() })
    }

    /// Machines whose operation was under way when the table was stored, in id order: machine, kind, operation id.
    #[must_use]
    pub fn interrupted(&self) -> Vec<Work> {
        self.records.iter().filter_map(|(id, record)| Work::under_way(id, record)).collect()
    }

    /// The rules that every machine keeps at all times, for tests and for what was read from a disk.
    ///
    /// # Errors
    /// The first machine that breaks one, and which.
    pub fn audit(&self) -> Result<(), Unreadable> {
        self.records.iter().try_for_each(|(id, record)| {
            record.check().map_err(|problem| Unreadable { machine: id.to_string(), problem: problem.into() })
        })
    }

    fn next_operation(&mut self, kind: Kind, machine: &MachineId) -> String {
        if self.switch.is(Defect::OperationsPerKind) {
            return format!("{kind}-{machine}");
        }
        self.operations += 1;
        format!("{}-{}", self.prefix, self.operations)
    }

    /// Wraps a new version of a machine into a change.
    fn change(&mut self, mut record: Record, mark: Option<Mark>) -> Change {
        self.planned += 1;
        record.revision = self.planned;
        Change {
            machine: Some(record.store()),
            mark,
            revision: self.planned,
            operations: self.operations,
            ..Change::default()
        }
    }
}

impl Work {
    /// The same, as a back end is given it.
    #[must_use]
    pub fn operation(&self) -> Operation<'_> {
        Operation {
            id: &self.machine_id,
            machine: &self.machine,
            operation_id: &self.operation_id,
            grace_seconds: self.grace_seconds,
        }
    }

    fn under_way(id: &MachineId, record: &Record) -> Option<Self> {
        let kind = Kind::under_way(record.state)?;
        Some(Self {
            kind,
            operation_id: record.operation(kind).unwrap_or_default().to_owned(),
            machine_id: id.clone(),
            machine: record.machine(),
            grace_seconds: record.grace_seconds,
        })
    }
}

/// The state's number as wire messages carry it.
pub(crate) fn wire_state(state: MachineState) -> i32 {
    i32::from(state.number())
}
