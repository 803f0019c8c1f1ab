//! Phase 2: what Phase 1 left unsatisfied preempts what matters less (engine.md 12).

use std::cmp::Reverse;
use std::time::Duration;

use bigfleet_engine::VictimPolicy;
use bigfleet_types::{MachineState, StampedPenalty};

use crate::amounts::Amounts;
use crate::pass::Pass;

const NANO: i128 = 1_000_000_000;

/// How long a victim's drain may take (engine.md 12.3).
#[must_use]
pub fn grace(preemptor: i32, victim: i32) -> Duration {
    Duration::from_secs(match gap(preemptor, victim) {
        900_001.. => 10,
        500_001.. => 30,
        100_001.. => 120,
        _ => 600,
    })
}

/// How good a victim is, in nano-points; the highest is preempted first (engine.md 12.1, decide-format.md 3.5).
#[must_use]
pub fn victim_score(
    rules: &VictimPolicy,
    preemptor: i32,
    victim: i32,
    interruption: StampedPenalty,
    reclamation: StampedPenalty,
) -> i128 {
    let per_dollar = |weight: u64, penalty: StampedPenalty| match penalty {
        StampedPenalty::Finite(dollars) => {
            i128::from(weight) * NANO / i128::from(dollars.nano()).max(NANO / 100)
        }
        StampedPenalty::Infinite => 0,
    };
    let drain = i128::try_from(rules.drain_estimate.as_nanos()).unwrap_or(i128::MAX).max(NANO);
    gap(preemptor, victim) * i128::from(rules.priority_weight)
        + i128::from(rules.drain_weight) * NANO / drain
        + per_dollar(rules.interruption_weight, interruption)
        + per_dollar(rules.reclamation_weight, reclamation)
}

fn gap(preemptor: i32, victim: i32) -> i128 {
    (i128::from(preemptor) - i128::from(victim)).max(0)
}

impl Pass<'_> {
    /// Every unsatisfied Need in precedence order: first what already drains for it, then victims.
    pub(crate) fn phase2(&mut self) {
        for row in 0..self.rows.len() {
            if self.progress[row].remaining.is_zero() {
                continue;
            }
            let mut deficit = self.progress[row].remaining.clone();
            let drains = self.take_pending_drains(row, &mut deficit);
            if deficit.is_zero() {
                continue;
            }
            if self.rows[row].same_key().is_some() {
                self.preempt_for_gang(row, deficit);
                continue;
            }
            let (picks, left) = self.pick(row, deficit, &drains, None);
            self.victims.extend(&picks);
            self.progress[row].victims = picks;
            self.progress[row].unresolved = (!left.is_zero()).then_some(left);
        }
    }

    /// engine.md 12.4.1: its own drains, then for plain Needs those of preemptors that matter as much, then those of
    /// unknown purpose; each part by id.
    fn take_pending_drains(&mut self, row: usize, deficit: &mut Amounts) -> Vec<usize> {
        let domain = self.progress[row].domain.clone();
        let mut drains: Vec<(u8, usize)> = self
            .all_units()
            .filter(|unit| !self.used_drains.contains(unit) && !self.reserved.contains(unit))
            .filter(|unit| self.is_suitable(row, *unit) && self.is_in(row, *unit, domain.as_deref()))
            .filter_map(|unit| Some((self.drain_part(row, unit)?, unit)))
            .collect();
        drains.sort_unstable();
        let mut taken = Vec::new();
        for (_, unit) in drains {
            let worth = self.contribution(row, unit);
            if worth.lessens(deficit) {
                *deficit = deficit.minus(&worth);
                self.used_drains.insert(unit);
                taken.push(unit);
            }
        }
        taken
    }

    /// Which part of the pending drains a machine belongs to for a Need; `None`: it does not count for it.
    pub(crate) fn drain_part(&self, row: usize, unit: usize) -> Option<u8> {
        let (need, unit) = (&self.rows[row], &self.units[unit]);
        match unit.drains_for() {
            Some((by, _)) if *by == need.key() => Some(0),
            Some((_, priority)) => {
                (need.same_key().is_none() && priority >= need.profile.priority()).then_some(1)
            }
            None => unit.drains_for_somebody().then_some(2),
        }
    }

    /// engine.md 12.4.2: victims by score until they cover, then without those that the others make superfluous.
    /// Gives them in the order picked, and what is left. In a domain of a gang, if given.
    pub(crate) fn pick(
        &self,
        row: usize,
        deficit: Amounts,
        drains: &[usize],
        domain: Option<&str>,
    ) -> (Vec<usize>, Amounts) {
        let mut candidates: Vec<usize> = self
            .all_units()
            .filter(|unit| self.may_be_victim(row, *unit) && self.is_in(row, *unit, domain))
            .collect();
        candidates.sort_by_key(|unit| self.victim_order(row, *unit));
        let mut left = deficit.clone();
        let mut picks: Vec<usize> = Vec::new();
        while !left.is_zero() {
            let coming: Vec<usize> = drains.iter().chain(&picks).copied().collect();
            let next = candidates.iter().copied().find(|unit| {
                !picks.contains(unit)
                    && self.contribution(row, *unit).lessens(&left)
                    && self.keeps_spread(row, *unit, &coming)
            });
            let Some(unit) = next else { return (picks, left) };
            left = left.minus(&self.contribution(row, unit));
            picks.push(unit);
        }
        if self.spread_terms(row).is_empty() {
            picks = self.without_surplus(row, picks.clone(), &picks, &deficit);
        }
        (picks, left)
    }

    /// engine.md 12.2, but for progress and spread.
    fn may_be_victim(&self, row: usize, unit: usize) -> bool {
        let (need, of) = (&self.rows[row], &self.units[unit]);
        of.state() == MachineState::Configured
            && of.facts.eligibility.preemptible
            && !of.is_bound_to(&need.cluster)
            && (!of.machine.attribution.is_empty() || self.is_heard(unit))
            && self.effective_priority(unit) < need.profile.priority()
            && self.is_suitable(row, unit)
            && !self.victims.contains(&unit)
            && !self.reserved.contains(&unit)
    }

    /// The stamped priority or, if higher, that of the Need that claims the machine now.
    pub(crate) fn effective_priority(&self, unit: usize) -> i32 {
        let stamped = self.units[unit].machine.attribution.priority.unwrap_or(0);
        let claiming = self.claims.get(&unit).map(|row| self.rows[*row].profile.priority());
        claiming.map_or(stamped, |priority| stamped.max(priority))
    }

    /// The machine's cluster is past the first-roll-up gate.
    pub(crate) fn is_heard(&self, unit: usize) -> bool {
        self.units[unit].machine.cluster.as_ref().is_some_and(|cluster| self.world.heard.contains(cluster))
    }

    /// Excess of clusters that have spoken before all others; then score; lower penalties, id.
    fn victim_order(&self, row: usize, unit: usize) -> VictimOrder {
        let of = &self.units[unit];
        let excess = !self.is_claimed(unit) && self.is_heard(unit);
        let [interruption, reclamation] = of.penalties();
        let preemptor = self.rows[row].profile.priority();
        let victim = self.effective_priority(unit);
        let rules = &self.world.policy.victims;
        let score = victim_score(rules, preemptor, victim, interruption, reclamation);
        (!excess, Reverse(score), reclamation, interruption, unit)
    }
}

/// (not excess, score, reclamation, interruption, id), the first victim first.
type VictimOrder = (bool, Reverse<i128>, StampedPenalty, StampedPenalty, usize);
