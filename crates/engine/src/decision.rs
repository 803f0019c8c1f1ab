//! What the engine answers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{ClusterId, MachineId, Need, NeedKey, Resources, UnixNanos};

/// The answer of one [`crate::Engine::decide`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// In emission order: acquisitions by Need in precedence order and then order of acquisition, Preempts, Reclaims
    /// by cluster and release order, Deletes by id. At most one per machine.
    pub actions: Shared<Action>,
    /// One per Need after folding, in precedence order.
    pub verdicts: Shared<Arc<Verdict>>,
    /// What no phase could meet, sorted by priority descending, then fingerprint, cluster, group.
    pub shortfalls: Shared<Shortfall>,
}

/// A list. A copy is cheap and stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared<T>(pub(crate) Arc<Vec<T>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::new(list))
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        Vec::from_iter(list).into()
    }
}

impl<'a, T> IntoIterator for &'a Shared<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What is to be done with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Join an Idle machine to a cluster.
    Bootstrap,
    /// Create a Speculative machine and join it to a cluster.
    Provision,
    /// Drain a machine for a Need of higher priority.
    Preempt,
    /// Drain a machine that no Need claims.
    Reclaim,
    /// Give an Idle machine back.
    Delete,
}

impl ActionKind {
    /// The five kinds.
    pub const ALL: [Self; 5] = [Self::Bootstrap, Self::Provision, Self::Preempt, Self::Reclaim, Self::Delete];

    /// The name in metrics, logs and traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bootstrap => "Bootstrap",
            Self::Provision => "Provision",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
            Self::Delete => "Delete",
        }
    }

    /// The reason tag in the audit log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Bootstrap => "phase1.idle",
            Self::Provision => "phase1.speculative",
            Self::Preempt => "phase2.inversion",
            Self::Reclaim => "phase3.excess",
            Self::Delete => "phase3.release",
        }
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub kind: ActionKind,
    /// With which machine.
    pub machine: MachineId,
    /// The destination; for Preempt and Reclaim the source; `None` for Delete.
    pub cluster: Option<ClusterId>,
    /// The Need served; for Preempt the preemptor; `None` for Reclaim and Delete.
    pub need: Option<Arc<Need>>,
    /// Whose Need that is; `None` with it.
    pub need_key: Option<NeedKey>,
    /// How long the drain may take; zero unless Preempt or Reclaim.
    pub grace: Duration,
    /// The priority of the preemptor; 0 unless Preempt.
    pub preemptor_priority: i32,
}

/// Why a Need is not satisfied. Numbers as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnmetReason {
    /// Satisfied.
    Unspecified = 0,
    /// Others go first.
    PriorityStarved = 1,
    /// No machine of the fleet could serve it.
    NoMatchingSupply = 2,
    /// No single domain can hold it.
    TopologyUnsatisfiable = 3,
    /// Even preempting all that may be preempted does not suffice.
    PreemptionExhausted = 4,
}

/// How many machines of the whole fleet could serve a Need, whoever holds them; each count is at most 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatchingSupply {
    /// Idle ones.
    pub idle: u16,
    /// Configured ones.
    pub configured: u16,
    /// Speculative ones.
    pub speculative: u16,
    /// Whether a count was cut at 256.
    pub capped: bool,
}

/// What became of one Need in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The Need.
    pub need: Arc<Need>,
    /// Its key.
    pub key: NeedKey,
    /// When it was first seen.
    pub arrival: UnixNanos,
    /// Whether the machines that it claims cover it.
    pub satisfied: bool,
    /// What is missing; empty when satisfied.
    pub residual: Resources,
    /// Machines claimed, bound and newly acquired ones.
    pub claimed: u32,
    /// Of these, Idle machines to be bootstrapped.
    pub bootstraps: u32,
    /// Of these, Speculative machines to be provisioned.
    pub provisions: u32,
    /// Why it is not satisfied.
    pub reason: UnmetReason,
    /// What could serve it; only when it is not satisfied.
    pub supply: Option<MatchingSupply>,
    /// Where a gang goes; `None` for a Need without `Same` and for a folded one.
    pub same: Option<SameVerdict>,
    /// What is preempted for it, if anything.
    pub preemption: Option<Preemption>,
    /// The gangs that were folded into this Need, by arrival, fingerprint and group; empty for any other.
    pub gangs: Gangs,
}

/// Where a gang goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameVerdict {
    /// The chosen value of its key; `None` when no value offers anything.
    pub domain: Option<Arc<str>>,
    /// Whether that domain can hold the whole gang. True for a gang that wants nothing.
    pub satisfiable: bool,
    /// The best values by coverage, at most 6, the chosen one perhaps not among them.
    pub candidates: Vec<Candidate>,
}

/// A value that was considered for a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The value.
    pub domain: Arc<str>,
    /// How much of the scarcest resource is there, in thousandths, at most 1000.
    pub per_mille: u16,
    /// Whether the whole gang fits.
    pub satisfiable: bool,
}

/// What is preempted for a Need in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// How many machines.
    pub victims: u32,
    /// Their capacity together.
    pub freed: Resources,
}

/// The gangs of a folded Need. Half a million fold in a large fleet, so each verdict is made when it is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gangs {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) needs: Option<Arc<[Arc<Need>]>>,
    /// How many of the first are satisfied.
    pub(crate) satisfied: usize,
}

impl Gangs {
    /// The gangs of a cluster in the order of arrival, fingerprint and group, of which so many of the first are
    /// satisfied.
    #[must_use]
    pub fn new(cluster: ClusterId, needs: Arc<[Arc<Need>]>, satisfied: usize) -> Self {
        Self { cluster: Some(cluster), needs: Some(needs), satisfied }
    }

    /// How many gangs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.needs.as_ref().map_or(0, |needs| needs.len())
    }

    /// Whether the Need is no fold.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The gang at a place in the order of arrival, fingerprint and group.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<GangVerdict> {
        let need = self.needs.as_ref()?.get(at)?;
        Some(GangVerdict {
            key: need.key(self.cluster.as_ref()?),
            arrival: need.arrival.unwrap_or_default(),
            satisfied: at < self.satisfied,
            need: need.clone(),
        })
    }

    /// All gangs by arrival, fingerprint and group.
    pub fn iter(&self) -> impl Iterator<Item = GangVerdict> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// One gang of a folded Need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangVerdict {
    /// The gang as its cluster wants it.
    pub need: Arc<Need>,
    /// Its key.
    pub key: NeedKey,
    /// When it was first seen.
    pub arrival: UnixNanos,
    /// Whether the machines of the folded Need hold it. If not, it lacks its whole aggregate.
    pub satisfied: bool,
}

/// A deficit that nothing in this shard can meet now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Whose.
    pub key: NeedKey,
    /// The Need.
    pub need: Arc<Need>,
    /// How much.
    pub deficit: Resources,
    /// Whether something was preempted for it all the same.
    pub preempted: bool,
}
