//! What changes: machines and demand.

use std::sync::Arc;

use bigfleet_types::{ClusterId, Fingerprint, Group, Machine, MachineId, Need, NeedKey, UnixNanos};

/// One change of the fleet or of the demand.
#[derive(Debug, Clone)]
pub enum Event {
    /// A machine appeared or changed; replaces all that was known of it, but for the engine's own clock of how long
    /// it has been excess, which a machine keeps while it stays Configured.
    Machine {
        /// The provider's record with the stamps.
        machine: Arc<Machine>,
        /// What only the shard knows of it.
        facts: Facts,
    },
    /// A machine is gone.
    Removed(MachineId),
    /// A cluster's complete demand, replacing what it wanted before. Rows with equal keys have been merged. A row
    /// without an arrival keeps the one that its key had before, or takes `at`.
    Demand {
        /// Whose demand.
        cluster: ClusterId,
        /// All rows; none means that the cluster wants nothing.
        rows: Vec<Need>,
        /// When it was received.
        at: UnixNanos,
    },
    /// Some rows of a cluster's demand are not as they were; all others are. By the same rules as a whole demand.
    DemandChanged {
        /// Whose demand.
        cluster: ClusterId,
        /// New rows and rows with other content, one per key.
        changed: Vec<Arc<Need>>,
        /// The keys of rows that are no more. None is among the changed ones.
        removed: Vec<(Fingerprint, Group)>,
        /// When it was received.
        at: UnixNanos,
    },
    /// The cluster has spoken: from now on its excess machines may be reclaimed.
    Heard(ClusterId),
}

/// What the shard knows of a machine beyond the provider's record. All of it is process-local.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// What may be done with the machine.
    pub eligibility: Eligibility,
    /// Since when it has been Idle; `None` holds it for ever. Idle machines only.
    pub idle_since: Option<UnixNanos>,
    /// For which Need it is being created; `None`: not known (found after a restart). Creating machines only.
    pub created_for: CreatedFor,
    /// Whether a preemption drains it. Draining machines only.
    pub preempted_for: Purpose,
    /// Since when no Need has claimed it, where that is carried over from elsewhere; normally `None`: the engine
    /// keeps this clock itself. Configured machines only.
    pub excess_since: Option<UnixNanos>,
}

/// The Need that a Creating machine was bought for, if known.
pub type CreatedFor = Option<NeedKey>;

/// Why a machine drains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Purpose {
    /// For a reclaim, or it does not drain.
    #[default]
    None,
    /// For a preemption.
    Preemption(PreemptedFor),
    /// Not known: found Draining after a restart.
    Unknown,
}

/// Who a machine was preempted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptedFor {
    /// The Need.
    pub need: NeedKey,
    /// Its priority then.
    pub priority: i32,
}

/// What others judge of a machine. With all bits off the machine is withheld: the engine does not see it at all. A
/// Configured machine is never withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Eligibility {
    /// May be bootstrapped or provisioned.
    pub acquirable: bool,
    /// Counts as supply of its cluster.
    pub creditable: bool,
    /// May be preempted.
    pub preemptible: bool,
    /// May be reclaimed or deleted.
    pub releasable: bool,
}

impl Eligibility {
    /// Everything is allowed.
    pub const ALL: Self = Self { acquirable: true, creditable: true, preemptible: true, releasable: true };
    /// The machine is withheld.
    pub const WITHHELD: Self =
        Self { acquirable: false, creditable: false, preemptible: false, releasable: false };
}

impl Default for Eligibility {
    fn default() -> Self {
        Self::ALL
    }
}
