//! What goes in and what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_engine::{ActionKind, Facts, MatchingSupply, Policy, Preemption, SameVerdict, UnmetReason};
use bigfleet_types::{
    ClusterId, Fingerprint, Group, Machine, MachineId, Need, NeedKey, Resources, UnixNanos,
};

/// Everything that a decision depends on.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// The fleet, ids distinct, in any order.
    pub machines: Vec<(Machine, Facts)>,
    /// The rows of every cluster that has demand, in any order; arrivals filled in, or unknown for good.
    pub demand: BTreeMap<ClusterId, Vec<Need>>,
    /// The clusters past the first-roll-up gate.
    pub heard: BTreeSet<ClusterId>,
    /// Holds, graces, delays, and how victims are weighed.
    pub policy: Policy,
    /// The time.
    pub now: UnixNanos,
}

/// What is decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In emission order.
    pub actions: Vec<Action>,
    /// Every machine that some Need claims.
    pub claimed: BTreeSet<MachineId>,
    /// One per Need after merging and folding, in precedence order.
    pub verdicts: Vec<Verdict>,
    /// Unresolved deficits by priority descending, then fingerprint, cluster, group.
    pub shortfalls: Vec<Shortfall>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub kind: ActionKind,
    /// With which machine.
    pub machine: MachineId,
    /// The destination; the source of a Preempt or Reclaim; `None` for Delete.
    pub cluster: Option<ClusterId>,
    /// The Need served, or the preemptor; `None` for Reclaim and Delete.
    pub need: Option<NeedKey>,
    /// How long the drain may take.
    pub grace: Duration,
    /// The preemptor's priority; 0 unless Preempt.
    pub preemptor_priority: i32,
    /// The tag in the audit log.
    pub reason: &'static str,
}

/// What became of one Need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The Need, after folding.
    pub key: NeedKey,
    /// Its priority.
    pub priority: i32,
    /// The gangs behind a folded Need; empty for any other.
    pub members: Vec<MemberVerdict>,
    /// Whether its claims cover it.
    pub satisfied: bool,
    /// What Phase 1 left missing, after a withdrawal.
    pub residual: Resources,
    /// Its machines, in the order of crediting and then acquisition.
    pub machines: Vec<MachineId>,
    /// How many of them are bootstrapped.
    pub bootstraps: usize,
    /// How many of them are provisioned.
    pub provisions: usize,
    /// For a gang that is not folded.
    pub same: Option<SameVerdict>,
    /// Why it is not satisfied.
    pub reason: UnmetReason,
    /// What could serve it; unless satisfied.
    pub supply: Option<MatchingSupply>,
    /// What is preempted for it, if anything.
    pub preemption: Option<Preemption>,
}

/// One gang of a folded Need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberVerdict {
    /// Its own profile.
    pub fingerprint: Fingerprint,
    /// Its own group.
    pub group: Group,
    /// Whether it is among those that are covered.
    pub satisfied: bool,
}

/// What no phase could meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Whose.
    pub key: NeedKey,
    /// The Need's priority.
    pub priority: i32,
    /// How much.
    pub deficit: Resources,
    /// Whether something was preempted for it.
    pub preempted: bool,
}
