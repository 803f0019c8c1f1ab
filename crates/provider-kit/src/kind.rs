//! The four operations that move a machine.

use std::fmt;

use bigfleet_types::MachineState;

/// An operation that a shard asks for. Create and Drain both lead to Idle: the kind, not the target, tells them
/// apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Speculative to Idle: a host is made.
    Create = 0,
    /// Idle to Configured: the host joins a cluster.
    Configure = 1,
    /// Configured to Idle: the host leaves its cluster.
    Drain = 2,
    /// Idle to Speculative: the host is given back.
    Delete = 3,
}

impl Kind {
    /// All four, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Create, Self::Configure, Self::Drain, Self::Delete];

    /// The state that a machine has while the operation runs.
    #[must_use]
    pub fn transitional(self) -> MachineState {
        match self {
            Self::Create => MachineState::Creating,
            Self::Configure => MachineState::Configuring,
            Self::Drain => MachineState::Draining,
            Self::Delete => MachineState::Deleting,
        }
    }

    /// The only state that the operation starts from.
    #[must_use]
    pub fn origin(self) -> MachineState {
        match self {
            Self::Create => MachineState::Speculative,
            Self::Configure | Self::Delete => MachineState::Idle,
            Self::Drain => MachineState::Configured,
        }
    }

    /// The state that the operation leads to.
    #[must_use]
    pub fn target(self) -> MachineState {
        match self {
            Self::Create | Self::Drain => MachineState::Idle,
            Self::Configure => MachineState::Configured,
            Self::Delete => MachineState::Speculative,
        }
    }

    /// The operation that a machine in `state` is undergoing; `None` in states at rest.
    #[must_use]
    pub fn under_way(state: MachineState) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.transitional() == state)
    }

    /// The kind of a number, as stores write it.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| u32::from(kind.number()) == number)
    }

    /// The number that stores write, 0..=3.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name of the call.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Configure => "Configure",
            Self::Drain => "Drain",
            Self::Delete => "Delete",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_take_the_legal_edges_of_a_machine() {
        for kind in Kind::ALL {
            assert_eq!(kind.origin().command(kind.transitional()), Ok(kind.transitional()));
            assert_eq!(kind.transitional().command(kind.target()), Ok(kind.target()));
            assert_eq!(Kind::under_way(kind.transitional()), Some(kind));
            assert_eq!(Kind::from_number(u32::from(kind.number())), Some(kind));
        }
        assert_eq!(Kind::under_way(MachineState::Idle), None);
        assert_eq!(Kind::from_number(4), None);
    }
}
