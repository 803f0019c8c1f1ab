//! One machine: what callers see, and what the kit remembers beside it.

use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{MachineId, MachineState};

use super::change::{StoredMachine, StoredOperation};
use super::encoded::{Encoded, Facts};
use super::{Unreadable, wire_state};
use crate::instance::Host;
use crate::kind::Kind;

/// What callers see, as it is kept or while it is changed.
#[derive(Debug, Clone, PartialEq)]
enum Shown {
    Kept(Encoded),
    Changing(Arc<pb::Machine>),
}

/// A machine and its notes.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    shown: Shown,
    pub(super) state: MachineState,
    pub(super) revision: u64,
    pub(super) operations: [Option<String>; 4],
    pub(super) grace_seconds: i64,
    /// Failed in a Create that made nothing.
    pub(super) untouched: bool,
}

impl Record {
    /// A machine without history. Its state number is set from `state`.
    pub(super) fn new(mut machine: pb::Machine, state: MachineState) -> Self {
        machine.state = wire_state(state);
        Self {
            shown: Shown::Changing(Arc::new(machine)),
            state,
            revision: 0,
            operations: [const { None }; 4],
            grace_seconds: 0,
            untouched: false,
        }
    }

    /// The machine as callers see it.
    #[must_use]
    pub fn machine(&self) -> Arc<pb::Machine> {
        match &self.shown {
            Shown::Kept(machine) => machine.shared(),
            Shown::Changing(machine) => Arc::clone(machine),
        }
    }

    /// The same, encoded.
    pub(super) fn encoded(&self) -> Encoded {
        match &self.shown {
            Shown::Kept(machine) => machine.clone(),
            Shown::Changing(machine) => Encoded::of(machine),
        }
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> MachineState {
        self.state
    }

    /// The id of the latest operation of a kind, as long as its target has not been left.
    #[must_use]
    pub fn operation(&self, kind: Kind) -> Option<&str> {
        self.operations[usize::from(kind.number())].as_deref()
    }

    /// The operation id that a repeat of `kind` gets: the machine is in, or has reached, the kind's target.
    pub(super) fn repeat(&self, kind: Kind) -> Option<&str> {
        let there = self.state == kind.transitional() || self.state == kind.target();
        self.operation(kind).filter(|_| there)
    }

    /// Starts an operation. Those that led to the state now left lose their ids.
    pub(super) fn start(&mut self, kind: Kind, operation: String) {
        for ended in Kind::ALL.into_iter().filter(|ended| ended.target() == self.state) {
            self.operations[usize::from(ended.number())] = None;
        }
        self.operations[usize::from(kind.number())] = Some(operation);
        self.enter(kind.transitional());
    }

    pub(super) fn enter(&mut self, state: MachineState) {
        self.state = state;
        self.edit().state = wire_state(state);
    }

    /// The one place where a binding ends.
    pub(super) fn unbind(&mut self) {
        let machine = self.edit();
        machine.cluster.clear();
        machine.shard_metadata.clear();
        machine.last_error.clear();
    }

    pub(super) fn edit(&mut self) -> &mut pb::Machine {
        if let Shown::Kept(machine) = &self.shown {
            self.shown = Shown::Changing(machine.shared());
        }
        match &mut self.shown {
            Shown::Changing(machine) => Arc::make_mut(machine),
            Shown::Kept(_) => unreachable!("it was just made the other"),
        }
    }

    pub(super) fn set_host(&mut self, host: &Host) {
        let (provider, r#ref) = (host.provider.clone(), host.reference.clone());
        self.edit().host = Some(pb::HostRef { provider, r#ref });
    }

    /// The broken rule, if there is one.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Facts { host, bound, noted, error } = match &self.shown {
            Shown::Kept(machine) => machine.facts,
            Shown::Changing(machine) => Facts::of(machine),
        };
        if !bound && noted {
            return Err("has shard_metadata without a cluster");
        }
        if bound && !host {
            return Err("has a cluster without a host");
        }
        let (wants_host, wants_cluster) = match self.state {
            MachineState::Speculative | MachineState::Creating => (Some(false), false),
            MachineState::Idle | MachineState::Deleting => (Some(true), false),
            MachineState::Configuring | MachineState::Configured | MachineState::Draining => {
                (Some(true), true)
            }
            MachineState::Failed if !error => return Err("Failed without last_error"),
            MachineState::Failed => (None, bound),
        };
        if wants_host.is_some_and(|wanted| wanted != host) {
            return Err(if host { "has a host too many" } else { "has no host" });
        }
        if wants_cluster != bound {
            return Err(if bound { "has a cluster too many" } else { "has no cluster" });
        }
        if self.state.is_transitional()
            && Kind::under_way(self.state).is_none_or(|kind| self.operation(kind).is_none())
        {
            return Err("is in a transition without an operation id");
        }
        Ok(())
    }

    pub(super) fn store(&self) -> StoredMachine {
        let operations = Kind::ALL.into_iter().filter_map(|kind| {
            let id = self.operation(kind)?.to_owned();
            Some(StoredOperation { kind: kind.number().into(), id })
        });
        StoredMachine {
            machine: self.encoded().bytes().clone(),
            revision: self.revision,
            operations: operations.collect(),
            grace_seconds: self.grace_seconds,
            untouched: self.untouched,
        }
    }

    pub(super) fn restore(stored: StoredMachine) -> Result<(MachineId, Self), Unreadable> {
        let (machine, id, number) = Encoded::checked(stored.machine)
            .map_err(|problem| Unreadable { machine: String::new(), problem: problem.to_owned() })?;
        let bad = |problem: String| Unreadable { machine: id.clone(), problem };
        let state =
            MachineState::from_number(number).ok_or_else(|| bad(format!("state {number} is unknown")))?;
        let mut operations = [const { None }; 4];
        for operation in stored.operations {
            let kind = Kind::from_number(operation.kind)
                .ok_or_else(|| bad(format!("operation kind {} is unknown", operation.kind)))?;
            operations[usize::from(kind.number())] = Some(operation.id);
        }
        let record = Self {
            state,
            revision: stored.revision,
            operations,
            grace_seconds: stored.grace_seconds,
            untouched: stored.untouched,
            shown: Shown::Kept(machine),
        };
        let id = MachineId::parse(&id).map_err(|e| bad(format!("id {e}")))?;
        Ok((id, record))
    }
}
