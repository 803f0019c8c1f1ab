//! Why: what a decision saw of every machine, and who would have been next.
//!
//! An explanation is read off a decision once its phases are done. Nobody who does not ask pays for it, and asking
//! changes nothing.

mod fates;
mod orders;

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{
    CapacityType, ClusterId, EffectiveCost, MachineId, MachineState, NanoDollars, Need, NeedKey, Probability,
    Resources, StampedPenalty, UnixNanos,
};

use crate::decision::{Action, ActionKind};
use crate::demand::{Row, RowIx};
use crate::fleet::Fleet;
use crate::intern::{Map, Symbols};
use crate::members::Slot;
use crate::pass::Pass;
use crate::phase1::Outcome;
use crate::policy::Policy;

/// How many runners-up an action is given.
pub(crate) const RUNNERS_UP: usize = 3;
/// How many rivals a Need is told.
const RIVALS: usize = 6;

/// What [`crate::Engine::decide_explained`] is to explain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// The Needs of this cluster and what happens to its machines; `None`: everything.
    pub cluster: Option<ClusterId>,
    /// Only Needs whose fingerprint begins with these hex digits, and only actions for them.
    pub fingerprint: Option<String>,
}

impl Question {
    /// Whether a Need is asked about.
    #[must_use]
    pub fn is_about(&self, key: &NeedKey) -> bool {
        let begins = |digits: &String| key.fingerprint.to_string().starts_with(digits.as_str());
        self.cluster.as_ref().is_none_or(|cluster| *cluster == key.cluster)
            && self.fingerprint.as_ref().is_none_or(begins)
    }

    /// Whether a row is asked about, by its own name or that of a gang in it.
    fn is_about_row(&self, row: &Row, symbols: &Symbols) -> bool {
        let gangs = row.gangs.as_deref().unwrap_or_default();
        let is_about = |need: &Need| self.is_about(&need.key(symbols.name(row.cluster)));
        is_about(&row.need) || gangs.iter().any(|gang| is_about(gang))
    }

    /// Whether an action that serves no Need asked about is asked about because of the machine's cluster.
    fn is_about_machine_of(&self, cluster: Option<&ClusterId>) -> bool {
        self.fingerprint.is_none() && self.cluster.as_ref().is_none_or(|asked| Some(asked) == cluster)
    }
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// The Needs asked about, in precedence order.
    pub needs: Vec<NeedExplanation>,
    /// The actions asked about, in emission order.
    pub actions: Vec<ActionExplanation>,
}

/// What one Need saw of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedExplanation {
    /// The place of its verdict in [`crate::Decisions::verdicts`].
    pub verdict: usize,
    /// Every machine of the fleet by class: those that could serve in the order of acquisition, then those below the
    /// largest pod, then those that do not match, both in the same order.
    pub classes: Vec<ClassExplanation>,
    /// The Needs that hold machines which it could have used otherwise: those with the most, at most 6.
    pub rivals: Vec<Rival>,
}

/// Machines that a Need does not tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassExplanation {
    /// What they have in common.
    pub shape: Shape,
    /// What one of them costs this Need an hour, the risk of an interruption included.
    pub cost: EffectiveCost,
    /// How many kinds of devices they have that this Need did not ask for.
    pub unrequested: usize,
    /// How many there are, whatever their state.
    pub machines: u32,
    /// What became of them; the counts add up to `machines`.
    pub fates: Vec<Fate>,
}

/// What machines of a class have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Their instance type.
    pub instance_type: Arc<str>,
    /// Their zone.
    pub zone: Arc<str>,
    /// How they are paid for.
    pub capacity_type: CapacityType,
    /// What one of them offers.
    pub capacity: Resources,
    /// What one of them costs an hour.
    pub price: NanoDollars,
    /// How likely one is interrupted.
    pub interruption_probability: Probability,
    /// Their values of the other keys that the Need mentions, by key; `None`: absent, or a host that nobody names.
    pub labels: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// Machines of a class and state that shared a fate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// What became of them.
    pub rule: Rule,
    /// Their state.
    pub state: MachineState,
    /// How many.
    pub machines: u32,
    /// The first of them by id.
    pub first: MachineId,
}

/// What a Need does with a machine, or the first rule that kept the machine from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Bound to its cluster or on the way there, and counted as its supply.
    Credited,
    /// Idle, and acquired.
    Bootstrapped,
    /// Speculative, and acquired.
    Provisioned,
    /// Preempted for it.
    Preempted,
    /// Drains already, and will do when it is done.
    DrainCounted,
    /// Kept for it in the domain that it moves to.
    ReservedForMove,
    /// Acquired at first, and given up again because the gang moves to another domain.
    Withdrawn,
    /// In a state in which it serves nobody: Failed, Deleting, or draining for a reclaim.
    NotUsable,
    /// Held back by the shard: cooling down, stuck, out of quota or not owned.
    Withheld,
    /// A requirement on this key does not hold.
    Requirement(Arc<str>),
    /// Smaller than the largest pod.
    BelowMinUnit,
    /// Being created, or draining, for another Need.
    ForAnotherNeed,
    /// Bound to another cluster, and the Need was met without preempting.
    BoundElsewhere,
    /// Bound to another cluster, where it matters as much or more.
    PriorityNotLower,
    /// Bound without stamps to a cluster that has not reported yet.
    ClusterSilent,
    /// Preempted for, or kept for, a Need that goes first.
    TakenInPhase2,
    /// Claimed by a Need that goes first, or by an equal that has it already.
    Claimed,
    /// Offers nothing that is still missing when its turn comes.
    NoProgress,
    /// Not in the domain of the gang.
    OtherDomain,
    /// Would break an enforced spread.
    Skew,
    /// The gang cannot be completed, so nothing is bought or preempted for it.
    GangIncomplete,
    /// Covered without it.
    NotNeeded,
}

impl Rule {
    /// Whether the machine serves the Need, now or when it is ready.
    #[must_use]
    pub fn serves(&self) -> bool {
        *self <= Self::ReservedForMove
    }
}

/// A Need that holds what another could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// Who.
    pub key: NeedKey,
    /// Its priority.
    pub priority: i32,
    /// How many such machines it holds.
    pub machines: u32,
}

/// Why one action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionExplanation {
    /// The place of the action in [`crate::Decisions::actions`].
    pub action: usize,
    /// What the machine costs an hour whom it is for; the price alone for a Reclaim or Delete.
    pub cost: EffectiveCost,
    /// What decided.
    pub why: Why,
}

/// What decided on an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// A Bootstrap or Provision: the first in the order of acquisition.
    Acquired {
        /// What would be acquired if this machine were not there, next first; at most 3.
        next: Vec<Alternative>,
    },
    /// A Preempt: the best victim.
    Preempted {
        /// The victim.
        victim: Victim,
        /// Who would be preempted if this machine were not there, next first; at most 3.
        next: Vec<Victim>,
    },
    /// A Reclaim: no Need claims the machine. Within a cluster the dearest goes first, of these the one of the least
    /// value.
    Excess {
        /// The stamped value of the pairing with its workload.
        reclamation: StampedPenalty,
        /// Since when nobody claims it.
        since: UnixNanos,
    },
    /// A Delete: no Need claims the machine, and its hold is over.
    HoldOver {
        /// Since when it is Idle.
        since: UnixNanos,
        /// How long machines of its type are held.
        hold: Duration,
    },
}

/// Another machine for the same purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// Which.
    pub machine: MachineId,
    /// Whether it would be bootstrapped or provisioned.
    pub kind: ActionKind,
    /// What it would cost the Need an hour.
    pub cost: EffectiveCost,
}

/// A machine that a Need may preempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Which.
    pub machine: MachineId,
    /// Whose it is.
    pub cluster: Option<ClusterId>,
    /// Its priority: the stamped one or, if higher, that of the Need that claims it.
    pub priority: i32,
    /// Who claims it.
    pub claimed_by: Option<NeedKey>,
    /// Nobody claims it, and its cluster has spoken: such go first, whatever their score.
    pub excess: bool,
    /// Its score in nano-points; the highest goes first.
    pub score: i128,
}

/// Collects an explanation on the way through a decision.
pub(crate) struct Explainer<'q> {
    question: &'q Question,
    /// Which row claimed a slot when Phase 1 was over.
    claims: Vec<Option<usize>>,
    rows: Vec<RowIx>,
    explanation: Explanation,
}

impl<'q> Explainer<'q> {
    pub(crate) fn new(question: &'q Question) -> Self {
        Self { question, claims: Vec::new(), rows: Vec::new(), explanation: Explanation::default() }
    }

    /// Notes who claims what, before Phase 2 changes some of it.
    pub(crate) fn after_phase1(&mut self, pass: &Pass<'_>, rows: Vec<RowIx>) {
        let positions: Map<RowIx, usize> = rows.iter().copied().zip(0..).collect();
        let position = |at| positions.get(&pass.claiming_row(Slot::new(at))?).copied();
        self.claims = (0..pass.fleet.slots()).map(position).collect();
        self.rows = rows;
    }

    /// Explains Needs, and the actions so far, which are all of those that serve one.
    pub(crate) fn after_phase2(
        &mut self,
        pass: &mut Pass<'_>,
        outcomes: &[Outcome],
        actions: &[Action],
        heard: &[bool],
        policy: &Policy,
    ) {
        let asked: Vec<bool> =
            pass.rows.iter().map(|row| self.question.is_about_row(row, pass.symbols)).collect();
        for (position, row) in
            pass.rows.clone().into_iter().enumerate().filter(|(position, _)| asked[*position])
        {
            // Nobody looked for a Need that wants nothing.
            pass.matching.look(row.profile, &pass.fleet.classes);
            let fates = fates::Fates::new(pass, &self.claims, outcomes, heard, position);
            self.explanation.needs.push(fates.explain());
        }
        let is_about = |position: usize, action: &Action| {
            asked[position]
                || action.kind == ActionKind::Preempt
                    && self.question.is_about_machine_of(action.cluster.as_ref())
        };
        self.explanation.actions =
            orders::explain(pass, &self.rows, &self.claims, outcomes, actions, heard, policy, &is_about);
    }

    /// Explains what goes, which are the actions from `start` on.
    pub(crate) fn after_phase3(
        mut self,
        fleet: &Fleet,
        actions: &[Action],
        start: usize,
        policy: &Policy,
    ) -> Explanation {
        for (position, action) in actions.iter().enumerate().skip(start) {
            if self.question.is_about_machine_of(action.cluster.as_ref()) {
                self.explanation.actions.extend(orders::release(fleet, position, action, policy));
            }
        }
        self.explanation
    }
}
