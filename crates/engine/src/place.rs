//! Where a machine is, as far as any phase tells it apart from others of its class.

use bigfleet_types::{Machine, MachineState, NanoDollars, StampedPenalty};

use crate::event::{Eligibility, Facts, Purpose};
use crate::intern::{ClusterIx, StampIx, Symbols};

/// Where machines of a class are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Ready to join any cluster.
    Idle,
    /// Not bought yet.
    Speculative,
    /// Configured or Configuring in a cluster.
    Bound(Binding),
    /// Being created for a known Need.
    CreatingFor { cluster: ClusterIx, stamp: StampIx, creditable: bool },
    /// Being created for a Need that nobody remembers.
    CreatingForAnyone,
    /// Draining, but not for a reclaim.
    Draining(Drain),
}

/// How a machine is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) cluster: ClusterIx,
    /// Not Ready yet.
    pub(crate) configuring: bool,
    pub(crate) stamp: StampIx,
    /// The stamped priority; 0 when there is none.
    pub(crate) priority: i32,
    pub(crate) interruption: StampedPenalty,
    pub(crate) reclamation: StampedPenalty,
    /// Some stamp is there at all.
    pub(crate) attributed: bool,
    pub(crate) creditable: bool,
    pub(crate) preemptible: bool,
}

/// What a machine drains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Drain {
    /// For this Need, which had this priority then.
    For { cluster: ClusterIx, stamp: StampIx, priority: i32 },
    /// Nobody knows: found draining after a restart.
    Unknown,
}

impl Place {
    /// Whether a machine here may count as supply of whom it is for.
    pub(crate) fn is_creditable(self) -> bool {
        match self {
            Self::Bound(binding) => binding.creditable,
            Self::CreatingFor { creditable, .. } => creditable,
            Self::CreatingForAnyone => true,
            Self::Idle | Self::Speculative | Self::Draining(_) => false,
        }
    }
}

/// The penalty of a stamp; none counts as nothing.
fn penalty(stamped: Option<StampedPenalty>) -> StampedPenalty {
    stamped.unwrap_or(StampedPenalty::Finite(NanoDollars::ZERO))
}

/// The reclamation penalty that a machine is stamped with.
pub(crate) fn stamped_reclamation(machine: &Machine) -> StampedPenalty {
    penalty(machine.attribution.reclamation)
}

/// Where the phases find a machine; `None` when none of them has a use for it.
pub(crate) fn place(
    machine: &Machine,
    facts: &Facts,
    cluster: Option<ClusterIx>,
    symbols: &mut Symbols,
) -> Option<Place> {
    let Eligibility { acquirable, creditable, preemptible, .. } = facts.eligibility;
    if facts.eligibility == Eligibility::WITHHELD && machine.state != MachineState::Configured {
        return None;
    }
    match machine.state {
        MachineState::Idle => acquirable.then_some(Place::Idle),
        MachineState::Speculative => acquirable.then_some(Place::Speculative),
        MachineState::Configured | MachineState::Configuring => Some(Place::Bound(Binding {
            cluster: cluster?,
            configuring: machine.state == MachineState::Configuring,
            stamp: stamp(machine, symbols),
            priority: machine.attribution.priority.unwrap_or(0),
            interruption: penalty(machine.attribution.interruption),
            reclamation: stamped_reclamation(machine),
            attributed: !machine.attribution.is_empty(),
            creditable,
            preemptible: preemptible && machine.state == MachineState::Configured,
        })),
        MachineState::Creating => match &facts.created_for {
            Some(key) => {
                let (cluster, stamp) = symbols.destination(key);
                Some(Place::CreatingFor { cluster, stamp, creditable })
            }
            None => creditable.then_some(Place::CreatingForAnyone),
        },
        MachineState::Draining => match &facts.preempted_for {
            Purpose::None => None,
            Purpose::Unknown => Some(Place::Draining(Drain::Unknown)),
            Purpose::Preemption(by) => {
                let (cluster, stamp) = symbols.destination(&by.need);
                Some(Place::Draining(Drain::For { cluster, stamp, priority: by.priority }))
            }
        },
        MachineState::Deleting | MachineState::Failed => None,
    }
}

fn stamp(machine: &Machine, symbols: &mut Symbols) -> StampIx {
    let attribution = &machine.attribution;
    match &attribution.fingerprint {
        // A stamp without a group is one whose group is empty.
        Some(fingerprint) => symbols.stamp(fingerprint, attribution.group.as_deref().unwrap_or("")),
        None => StampIx::NONE,
    }
}
