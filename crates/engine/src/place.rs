//! Where a machine is, as far as any phase tells it apart from others of its class.

use bigfleet_types::{Machine, MachineState, NanoDollars, StampedPenalty};

use crate::event::{Eligibility, Facts, Purpose};
use crate::intern::{ClusterIx, Map, StampIx, Symbols, index};

index! {
    /// A place.
    PlaceIx;
}

impl PlaceIx {
    /// That of [`Place::Idle`].
    pub(crate) const IDLE: Self = Self(0);
    /// That of [`Place::Speculative`].
    pub(crate) const SPECULATIVE: Self = Self(1);
}

/// All places that some machine is or was in. They are only ever added; a fresh start drops the empty ones.
#[derive(Debug)]
pub(crate) struct Places {
    numbers: Map<Place, PlaceIx>,
    all: Vec<Place>,
}

impl Default for Places {
    fn default() -> Self {
        let mut places = Self { numbers: Map::default(), all: Vec::new() };
        places.number(Place::Idle);
        places.number(Place::Speculative);
        places
    }
}

impl Places {
    pub(crate) fn number(&mut self, place: Place) -> PlaceIx {
        let next = PlaceIx::new(self.all.len());
        *self.numbers.entry(place).or_insert_with(|| {
            self.all.push(place);
            next
        })
    }

    pub(crate) fn get(&self, ix: PlaceIx) -> Place {
        self.all[ix.at()]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// By number.
    pub(crate) fn all(&self) -> &[Place] {
        &self.all
    }
}

/// Where machines of a class are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Ready to join any cluster.
    Idle,
    /// Not bought yet.
    Speculative,
    /// Idle, but not for anybody now. It may still be released.
    Held,
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
    /// The same place in other numbers.
    pub(crate) fn renumbered(self, old: &Symbols, new: &mut Symbols) -> Self {
        match self {
            Self::Idle | Self::Speculative | Self::Held | Self::CreatingForAnyone => self,
            Self::Bound(binding) => Self::Bound(Binding {
                cluster: new.renumbered_cluster(binding.cluster, old),
                stamp: new.renumbered_stamp(binding.stamp, old),
                ..binding
            }),
            Self::CreatingFor { cluster, stamp, creditable } => Self::CreatingFor {
                cluster: new.renumbered_cluster(cluster, old),
                stamp: new.renumbered_stamp(stamp, old),
                creditable,
            },
            Self::Draining(Drain::For { cluster, stamp, priority }) => Self::Draining(Drain::For {
                cluster: new.renumbered_cluster(cluster, old),
                stamp: new.renumbered_stamp(stamp, old),
                priority,
            }),
            Self::Draining(Drain::Unknown) => self,
        }
    }

    /// Whether a machine here may count as supply of whom it is for.
    pub(crate) fn is_creditable(self) -> bool {
        match self {
            Self::Bound(binding) => binding.creditable,
            Self::CreatingFor { creditable, .. } => creditable,
            Self::CreatingForAnyone => true,
            Self::Idle | Self::Speculative | Self::Held | Self::Draining(_) => false,
        }
    }
}

/// The penalty of a stamp; none counts as nothing.
fn penalty(stamped: Option<StampedPenalty>) -> StampedPenalty {
    stamped.unwrap_or(StampedPenalty::Finite(NanoDollars::ZERO))
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
        MachineState::Idle => Some(if acquirable { Place::Idle } else { Place::Held }),
        MachineState::Speculative => acquirable.then_some(Place::Speculative),
        MachineState::Configured | MachineState::Configuring => Some(Place::Bound(Binding {
            cluster: cluster?,
            configuring: machine.state == MachineState::Configuring,
            stamp: stamp(machine, symbols),
            priority: machine.attribution.priority.unwrap_or(0),
            interruption: penalty(machine.attribution.interruption),
            reclamation: penalty(machine.attribution.reclamation),
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
