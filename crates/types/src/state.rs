//! Machine states and the one place that knows which edges between them are legal.

use std::fmt;

/// What a machine is doing. The numbers are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MachineState {
    /// A quota slot: nothing exists yet.
    Speculative = 1,
    /// The provider is making the host.
    Creating = 2,
    /// A real host that serves nobody.
    Idle = 3,
    /// Joining a cluster.
    Configuring = 4,
    /// Joined, and its node is Ready.
    Configured = 5,
    /// Leaving its cluster.
    Draining = 6,
    /// The host is being given back.
    Deleting = 7,
    /// Broken, until the provider reports something else.
    Failed = 8,
}

/// An edge that no command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a machine cannot go from {from} to {to}")]
pub struct IllegalTransition {
    /// Where the machine is.
    pub from: MachineState,
    /// Where it was told to go.
    pub to: MachineState,
}

/// What an observed change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// The state did not change.
    Unchanged,
    /// A transition under way came to its end, good or bad.
    Expected,
    /// A transition under way fell back to where it began.
    Regression,
    /// Anything else: adopted, logged and counted.
    Unexpected,
}

impl Observed {
    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Expected => "expected",
            Self::Regression => "regression",
            Self::Unexpected => "unexpected",
        }
    }
}

/// Proof that the provider did not take an operation, which makes a step back legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback;

impl MachineState {
    /// All eight states, in wire order.
    pub const ALL: [Self; 8] = [
        Self::Speculative,
        Self::Creating,
        Self::Idle,
        Self::Configuring,
        Self::Configured,
        Self::Draining,
        Self::Deleting,
        Self::Failed,
    ];

    /// The state of a wire number; `None` for 0 (unspecified) and unknown ones.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| i32::from(state.number()) == number)
    }

    /// The number on the wire, 1..=8.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name in metrics, logs and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Speculative => "Speculative",
            Self::Creating => "Creating",
            Self::Idle => "Idle",
            Self::Configuring => "Configuring",
            Self::Configured => "Configured",
            Self::Draining => "Draining",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }

    /// Whether a provider is at work on the machine.
    #[must_use]
    pub fn is_transitional(self) -> bool {
        matches!(self, Self::Creating | Self::Configuring | Self::Draining | Self::Deleting)
    }

    /// Whether the machine belongs to a cluster: Configuring, Configured or Draining. A Failed machine may carry a
    /// cluster, but serves it no more.
    #[must_use]
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Configuring | Self::Configured | Self::Draining)
    }

    /// Where a transition under way began; `None` for the other states.
    #[must_use]
    pub fn origin(self) -> Option<Self> {
        match self {
            Self::Creating => Some(Self::Speculative),
            Self::Configuring | Self::Deleting => Some(Self::Idle),
            Self::Draining => Some(Self::Configured),
            _ => None,
        }
    }

    /// Where a transition under way ends when all goes well; `None` for the other states.
    #[must_use]
    pub fn target(self) -> Option<Self> {
        match self {
            Self::Creating | Self::Draining => Some(Self::Idle),
            Self::Configuring => Some(Self::Configured),
            Self::Deleting => Some(Self::Speculative),
            _ => None,
        }
    }

    /// Takes a commanded edge: starting a transition from a stable state, or ending one under way. 13 edges are
    /// legal, among them Configuring back to Idle.
    ///
    /// # Errors
    /// Any other edge, naming both ends.
    pub fn command(self, to: Self) -> Result<Self, IllegalTransition> {
        let starts = to.origin() == Some(self);
        let ends = self.target() == Some(to) || (self.is_transitional() && to == Self::Failed);
        let unbinds = self == Self::Configuring && to == Self::Idle;
        if starts || ends || unbinds { Ok(to) } else { Err(IllegalTransition { from: self, to }) }
    }

    /// Steps back from a transition that the provider is known not to have accepted.
    ///
    /// # Errors
    /// The machine is in no transition.
    pub fn roll_back(self, _proof: Rollback) -> Result<Self, IllegalTransition> {
        self.origin().ok_or(IllegalTransition { from: self, to: self })
    }

    /// Classifies what the provider reports. Every report is adopted; this says how loudly.
    #[must_use]
    pub fn observe(self, reported: Self) -> Observed {
        if self == reported {
            Observed::Unchanged
        } else if self.is_transitional() && (self.target() == Some(reported) || reported == Self::Failed) {
            Observed::Expected
        } else if self.origin() == Some(reported) {
            Observed::Regression
        } else {
            Observed::Unexpected
        }
    }
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
