//! What is said about every Need (engine.md 14), and the list of actions (engine.md 1).

use std::cmp::Reverse;
use std::time::Duration;

use bigfleet_engine::{ActionKind, MatchingSupply, Preemption, SameVerdict, UnmetReason};
use bigfleet_types::MachineState;

use crate::amounts::Amounts;
use crate::pass::Pass;
use crate::phase2::grace;
use crate::world::{Action, MemberVerdict, Outcome, Shortfall, Verdict};

const SUPPLY_CAP: usize = 256;

impl Pass<'_> {
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            actions: self.actions(),
            claimed: self.claims.keys().map(|unit| self.units[*unit].machine.id.clone()).collect(),
            verdicts: (0..self.rows.len()).map(|row| self.verdict(row)).collect(),
            shortfalls: self.shortfalls(),
        }
    }

    /// engine.md 1.2: acquisitions and victims by Need, Reclaims by cluster, Deletes.
    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for row in 0..self.rows.len() {
            for unit in &self.progress[row].acquired {
                let idle = self.units[*unit].state() == MachineState::Idle;
                let kind = if idle { ActionKind::Bootstrap } else { ActionKind::Provision };
                actions.push(self.action(kind, *unit, Some(row)));
            }
        }
        for row in 0..self.rows.len() {
            let victims = self.progress[row].victims.iter();
            actions.extend(victims.map(|unit| self.action(ActionKind::Preempt, *unit, Some(row))));
        }
        for cluster in &self.world.heard {
            let excess = self.reclaims(cluster);
            actions.extend(excess.into_iter().map(|unit| self.action(ActionKind::Reclaim, unit, None)));
        }
        actions.extend(self.deletes().into_iter().map(|unit| self.action(ActionKind::Delete, unit, None)));
        actions
    }

    fn action(&self, kind: ActionKind, unit: usize, row: Option<usize>) -> Action {
        let need = row.map(|row| &self.rows[row]);
        let machine = &self.units[unit].machine;
        let destination = need.map(|need| need.cluster.clone());
        let source = machine.cluster.clone();
        let preemptor = need.map_or(0, |need| need.profile.priority());
        let (cluster, grace, preemptor_priority, reason) = match kind {
            ActionKind::Bootstrap => (destination, Duration::ZERO, 0, "phase1.idle"),
            ActionKind::Provision => (destination, Duration::ZERO, 0, "phase1.speculative"),
            ActionKind::Preempt => {
                (source, grace(preemptor, self.effective_priority(unit)), preemptor, "phase2.inversion")
            }
            ActionKind::Reclaim => (source, self.world.policy.reclaim_grace, 0, "phase3.excess"),
            ActionKind::Delete => (None, Duration::ZERO, 0, "phase3.release"),
        };
        let need = need.map(|need| need.key());
        Action { kind, machine: machine.id.clone(), cluster, need, grace, preemptor_priority, reason }
    }

    fn verdict(&self, row: usize) -> Verdict {
        let (need, progress) = (&self.rows[row], &self.progress[row]);
        let satisfied = progress.remaining.is_zero();
        let machines = progress.credited.iter().chain(&progress.acquired).copied();
        let idle = |unit: &&usize| self.units[**unit].state() == MachineState::Idle;
        let bootstraps = progress.acquired.iter().filter(idle).count();
        let victims = progress.victims.iter().map(|unit| &self.units[*unit].capacity);
        let supply = (!satisfied).then(|| self.supply(row));
        Verdict {
            key: need.key(),
            priority: need.profile.priority(),
            members: self.members(row),
            satisfied,
            residual: progress.remaining.to_resources(),
            machines: machines.map(|unit| self.units[unit].machine.id.clone()).collect(),
            bootstraps,
            provisions: progress.acquired.len() - bootstraps,
            same: need.same_key().is_some().then(|| SameVerdict {
                domain: progress.domain.as_deref().map(Into::into),
                satisfiable: progress.same_satisfiable,
                candidates: progress.candidates.clone(),
            }),
            reason: self.reason(row, supply),
            supply,
            preemption: (!progress.victims.is_empty()).then(|| Preemption {
                victims: u32::try_from(progress.victims.len()).unwrap_or(u32::MAX),
                freed: victims.fold(Amounts::default(), |sum, capacity| sum.add(capacity)).to_resources(),
            }),
        }
    }

    /// The first that holds.
    fn reason(&self, row: usize, supply: Option<MatchingSupply>) -> UnmetReason {
        let (need, progress) = (&self.rows[row], &self.progress[row]);
        let Some(supply) = supply else { return UnmetReason::Unspecified };
        let claims_nothing = progress.credited.is_empty() && progress.acquired.is_empty();
        if need.same_key().is_some() && !progress.same_satisfiable {
            UnmetReason::TopologyUnsatisfiable
        } else if claims_nothing && supply == MatchingSupply::default() {
            UnmetReason::NoMatchingSupply
        } else if progress.unresolved.is_some() && !progress.victims.is_empty() {
            UnmetReason::PreemptionExhausted
        } else {
            UnmetReason::PriorityStarved
        }
    }

    /// Machines of the whole fleet that match, cover the floor and have something that is wanted.
    fn supply(&self, row: usize) -> MatchingSupply {
        let wanted = &self.rows[row].aggregate;
        let could = |unit: &usize| self.is_suitable(row, *unit) && self.units[*unit].capacity.lessens(wanted);
        let counts = [MachineState::Idle, MachineState::Configured, MachineState::Speculative].map(|state| {
            self.all_units().filter(|unit| self.units[*unit].state() == state).filter(could).count()
        });
        let cut = |count: usize| u16::try_from(count.min(SUPPLY_CAP)).unwrap_or(u16::MAX);
        let ([idle, configured, speculative], capped) =
            (counts.map(cut), counts.iter().any(|count| *count > SUPPLY_CAP));
        MatchingSupply { idle, configured, speculative, capped }
    }

    /// Of a folded Need's gangs the first are satisfied, as many as its machines hold.
    fn members(&self, row: usize) -> Vec<MemberVerdict> {
        let (need, progress) = (&self.rows[row], &self.progress[row]);
        let machines = progress.credited.iter().chain(&progress.acquired);
        let covered: i128 =
            machines.map(|unit| self.units[*unit].capacity.times_that_fits(&need.min_unit)).sum();
        let satisfied = progress.remaining.is_zero();
        let member = |(at, (_, fingerprint, group)): (usize, &(i64, _, _))| MemberVerdict {
            fingerprint: *fingerprint,
            group: Clone::clone(group),
            satisfied: satisfied || i128::try_from(at).is_ok_and(|at| at < covered),
        };
        need.members.iter().enumerate().map(member).collect()
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        let mut shortfalls: Vec<Shortfall> = Vec::new();
        for (need, progress) in self.rows.iter().zip(&self.progress) {
            let Some(unresolved) = &progress.unresolved else { continue };
            let (deficit, preempted) = (unresolved.to_resources(), !progress.victims.is_empty());
            shortfalls.push(Shortfall {
                key: need.key(),
                priority: need.profile.priority(),
                deficit,
                preempted,
            });
        }
        shortfalls.sort_by_key(|shortfall| {
            let key = &shortfall.key;
            (Reverse(shortfall.priority), key.fingerprint, key.cluster.clone(), key.group.clone())
        });
        shortfalls
    }
}
