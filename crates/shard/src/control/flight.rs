//! Operations under way: at most one a machine, each an explicit little state machine.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Action, ActionKind};
use bigfleet_types::{ClusterId, MachineState, Need, NeedKey, UnixNanos};

use crate::io::CallId;

/// The four lifecycle operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    Create,
    Configure,
    Drain,
    Delete,
}

impl Operation {
    /// The state that a machine has during the operation.
    pub(crate) fn state(self) -> MachineState {
        match self {
            Self::Create => MachineState::Creating,
            Self::Configure => MachineState::Configuring,
            Self::Drain => MachineState::Draining,
            Self::Delete => MachineState::Deleting,
        }
    }

    /// The operation that a machine in this state is in.
    pub(crate) fn of(state: MachineState) -> Option<Self> {
        match state {
            MachineState::Creating => Some(Self::Create),
            MachineState::Configuring => Some(Self::Configure),
            MachineState::Draining => Some(Self::Drain),
            MachineState::Deleting => Some(Self::Delete),
            _ => None,
        }
    }
}

/// What the engine wanted, as the worker keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) action: Action,
    pub(crate) decided_cycle: u64,
}

impl Work {
    pub(crate) fn kind(&self) -> ActionKind {
        self.action.kind
    }

    /// Cluster, Need and key of an acquisition.
    pub(crate) fn target(&self) -> Option<(&ClusterId, &Arc<Need>, &NeedKey)> {
        Some((self.action.cluster.as_ref()?, self.action.need.as_ref()?, self.action.need_key.as_ref()?))
    }
}

/// One operation under way.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) operation: Operation,
    /// `None`: the provider reports a transition that this process did not start.
    pub(crate) work: Option<Box<Work>>,
    pub(crate) stage: Stage,
    /// When this operation began.
    pub(crate) began: UnixNanos,
    /// When the present wait of the stages `Blob` and `Instructed` is over.
    pub(crate) deadline: UnixNanos,
    pub(crate) operation_id: String,
    /// The watchdog has sent the call once more.
    pub(crate) reissued: bool,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waiting for the operator's blob.
    Blob { request: String, asked: UnixNanos, again: bool },
    /// Waiting for the operator to begin the drain.
    Instructed { instruction: String },
    /// Waiting for the provider's acknowledgement.
    Call { call: CallId },
    /// Watching it by Get.
    Watch(Watch),
}

/// A watch by Get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The Get on its way.
    pub(crate) get: Option<CallId>,
    /// The next pause between Gets.
    pub(crate) pause: Duration,
    /// The next Get is listed in the queue under this time.
    pub(crate) due: UnixNanos,
    /// The provider refused the operation or did not answer: if it shows the state before, nothing happened.
    pub(crate) doubt: Option<Doubt>,
    /// The last answer did not know the machine. One such answer may be a read that lags behind a write.
    pub(crate) unknown: bool,
}

/// Why the outcome of a call is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The provider said no.
    Refused,
    /// The provider did not know the machine.
    Unknown,
    /// No answer.
    Silent,
}

impl Flight {
    /// Whether a worker is busy with it.
    pub(crate) fn holds_slot(&self) -> bool {
        !matches!(self.stage, Stage::Watch(_))
    }

    /// Whether it belongs to the share of workers that is kept for giving capacity back.
    pub(crate) fn is_release(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.kind(), ActionKind::Reclaim | ActionKind::Delete))
    }

    /// The cluster whose operator it waits for.
    pub(crate) fn waits_for(&self) -> Option<&ClusterId> {
        let waits = matches!(self.stage, Stage::Blob { .. } | Stage::Instructed { .. });
        self.work.as_ref().filter(|_| waits)?.action.cluster.as_ref()
    }
}
