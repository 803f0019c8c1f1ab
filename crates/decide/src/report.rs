//! What was decided, as plain data: all that `bigfleet.decision/v1` prints.

use bigfleet_engine::{ActionKind, MatchingSupply, UnmetReason};
use bigfleet_types::{ClusterId, Fingerprint, Group, MachineId, NeedKey, Resources};

use crate::cap;
use crate::input::Input;

/// What an engine decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// In emission order.
    pub actions: Vec<Decided>,
    /// One per Need after merging and folding, in precedence order.
    pub needs: Vec<Verdict>,
    /// One per unresolved Need, in any order.
    pub shortfalls: Vec<Shortfall>,
    /// Every machine that some Need claims, in any order.
    pub claimed: Vec<MachineId>,
}

/// One thing to do with a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// What; the reason goes with it.
    pub kind: ActionKind,
    /// With which machine.
    pub machine: MachineId,
    /// The destination; the source of a Preempt or Reclaim; `None` for Delete.
    pub cluster: Option<ClusterId>,
    /// The Need served, or the preemptor; `None` for Reclaim and Delete.
    pub need: Option<NeedKey>,
    /// How long the drain may take, in seconds; 0 unless Preempt or Reclaim.
    pub grace_seconds: u64,
    /// The preemptor's priority; 0 unless Preempt.
    pub preemptor_priority: i32,
}

/// A thing to do with its place in the order of emission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Counted from 0, before the reclaim cap.
    pub seq: u64,
    /// The thing itself.
    pub decided: Decided,
}

impl std::ops::Deref for Action {
    type Target = Decided;
    fn deref(&self) -> &Decided {
        &self.decided
    }
}

/// What became of one Need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The Need, after folding.
    pub key: NeedKey,
    /// Its priority.
    pub priority: i32,
    /// The gangs behind a folded Need by arrival, fingerprint and group; empty for any other.
    pub members: Vec<MemberVerdict>,
    /// Whether its claims cover it.
    pub satisfied: bool,
    /// What Phase 1 left missing, without what a preempting gang withdrew.
    pub residual: Resources,
    /// Machines claimed; the other two counts are included.
    pub claimed: u64,
    /// Machines bootstrapped.
    pub bootstraps: u64,
    /// Machines provisioned.
    pub provisions: u64,
    /// For a gang that is not folded.
    pub same: Option<SameVerdict>,
    /// Why it is not satisfied; printed unless it is.
    pub reason: UnmetReason,
    /// What could serve it; unless satisfied.
    pub supply: Option<MatchingSupply>,
    /// What is preempted for it; only with victims.
    pub preemption: Option<Preemption>,
}

/// One gang of a folded Need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberVerdict {
    /// Its own profile.
    pub fingerprint: Fingerprint,
    /// Its own group.
    pub group: Group,
    /// Whether it is among the gangs that are covered.
    pub satisfied: bool,
}

/// Where a gang goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameVerdict {
    /// The value that its machines share; empty if there is none.
    pub domain: String,
    /// Whether that domain can hold it.
    pub satisfiable: bool,
    /// The best domains, best first, at most 6.
    pub candidates: Vec<Candidate>,
}

/// A domain that was considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The value.
    pub domain: String,
    /// The share of the scarcest dimension, 0 to 1000.
    pub coverage_per_mille: u16,
    /// Whether it can hold the gang.
    pub satisfiable: bool,
}

/// What a Need's victims free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// How many machines.
    pub victims_found: u64,
    /// The sum of their whole capacity.
    pub capacity_freed: Resources,
}

/// What no phase could meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Whose.
    pub key: NeedKey,
    /// The Need's priority.
    pub priority: i32,
    /// What remains after Phase 2.
    pub deficit: Resources,
    /// Whether something was preempted for it.
    pub preempted: bool,
}

/// The answer as it is printed: numbered, capped and sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is to be done, by kind and machine.
    pub actions: Vec<Action>,
    /// The Reclaims that the cap held back, by machine.
    pub deferred: Vec<Action>,
    /// One verdict per Need, in precedence order.
    pub needs: Vec<Verdict>,
    /// What no phase could meet: by priority descending, then fingerprint, cluster and group.
    pub shortfalls: Vec<Shortfall>,
    /// Every machine that some Need claims, sorted.
    pub claimed_machine_ids: Vec<MachineId>,
}

impl Report {
    /// The report on an answer to `input`, which says what the reclaim cap is and how large clusters are.
    #[must_use]
    pub fn new(input: &Input, answer: Answer) -> Self {
        let numbered = (0..).zip(answer.actions).map(|(seq, decided)| Action { seq, decided }).collect();
        let (mut actions, mut deferred) = cap::apply(input, numbered);
        for list in [&mut actions, &mut deferred] {
            list.sort_by(|a, b| (a.kind.name(), &a.machine).cmp(&(b.kind.name(), &b.machine)));
        }
        let mut shortfalls = answer.shortfalls;
        shortfalls.sort_by(|a, b| {
            let order = |s: &Shortfall| (std::cmp::Reverse(s.priority), s.key.fingerprint);
            let ties = |s: &Shortfall| (s.key.cluster.clone(), s.key.group.clone());
            order(a).cmp(&order(b)).then_with(|| ties(a).cmp(&ties(b)))
        });
        let mut claimed_machine_ids = answer.claimed;
        claimed_machine_ids.sort();
        Self { actions, deferred, needs: answer.needs, shortfalls, claimed_machine_ids }
    }
}
