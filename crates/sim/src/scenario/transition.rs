//! The four ways a machine changes state, and how long each takes.

use bigfleet_decide::json::{Node, Refused};
use bigfleet_types::{MachineId, MachineState};
use sha2::{Digest as _, Sha256};

/// What a provider does with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transition {
    Create,
    Configure,
    Drain,
    Delete,
}

impl Transition {
    const ALL: [Self; 4] = [Self::Create, Self::Configure, Self::Drain, Self::Delete];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Configure => "configure",
            Self::Drain => "drain",
            Self::Delete => "delete",
        }
    }

    /// The fault that lets it fail.
    pub(super) fn failure(self) -> &'static str {
        match self {
            Self::Create => "create-fails",
            Self::Configure => "configure-fails",
            Self::Drain => "drain-fails",
            Self::Delete => "delete-fails",
        }
    }

    pub(super) fn of_failure(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transition| transition.failure() == name)
    }

    /// The state of a machine that is on its way; the inverse of [`Self::under_way`].
    pub(super) fn state(self) -> MachineState {
        match self {
            Self::Create => MachineState::Creating,
            Self::Configure => MachineState::Configuring,
            Self::Drain => MachineState::Draining,
            Self::Delete => MachineState::Deleting,
        }
    }

    /// What is going on in a state, if anything.
    pub(super) fn under_way(state: MachineState) -> Option<Self> {
        Self::ALL.into_iter().find(|transition| transition.state() == state)
    }
}

/// How many cycles each transition takes, from the least to the most.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dwell([(u64, u64); 4]);

impl Dwell {
    pub(super) fn read(node: Node<'_>) -> Result<Self, Refused> {
        let mut dwell = Self::default();
        let mut object = node.object()?;
        for transition in Transition::ALL {
            if let Some(range) = object.take(transition.name(), range) {
                dwell.0[transition as usize] = range;
            }
        }
        object.finish()?;
        Ok(dwell)
    }

    /// How long a transition takes that begins in this cycle. Nothing but what is given decides it.
    pub(super) fn draw(&self, seed: i64, machine: &MachineId, transition: Transition, cycle: u64) -> u64 {
        let (least, most) = self.0[transition as usize];
        if least == most {
            return least;
        }
        let text = format!("{seed}|{machine}|{}|{cycle}", transition.name());
        let first: u64 =
            Sha256::digest(text).iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        least + first % (most - least + 1)
    }
}

fn range(node: Node<'_>) -> Result<(u64, u64), Refused> {
    if !node.source().starts_with('[') {
        return count(node).map(|cycles| (cycles, cycles));
    }
    let ends = node.each(|_, node| count(node))?;
    match ends[..] {
        [least, most] if least <= most => Ok((least, most)),
        [_, _] => Err(Refused::here("must begin with the smaller number of cycles")),
        _ => Err(Refused::here(format_args!("must have two numbers of cycles, not {}", ends.len()))),
    }
}

/// A whole number of 0 or more.
pub(super) fn count(node: Node<'_>) -> Result<u64, Refused> {
    node.integer(0, i64::MAX).map(i64::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_the_hash_of_what_is_drawn_for() {
        let dwell = Dwell([(3, 3), (2, 9), (0, 0), (0, i64::MAX.unsigned_abs())]);
        let machine = MachineId::trusted("gpu-7");
        assert_eq!(dwell.draw(1, &machine, Transition::Create, 5), 3);
        assert_eq!(dwell.draw(1, &machine, Transition::Drain, 5), 0);
        // SHA-256 of `12648430|gpu-7|configure|5` and of `12648430|gpu-7|delete|5`, computed elsewhere.
        assert_eq!(dwell.draw(12_648_430, &machine, Transition::Configure, 5), 2 + CONFIGURE % 8);
        assert_eq!(dwell.draw(12_648_430, &machine, Transition::Delete, 5), DELETE % (1 << 63));
    }
    const CONFIGURE: u64 = 0xe05c_5588_a70c_f215;
    const DELETE: u64 = 0x4525_fe81_b4f9_6a77;
}
