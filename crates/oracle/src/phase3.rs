//! Phase 3: what no Need claims goes back (engine.md 13).

use std::time::Duration;

use bigfleet_types::{CapacityType, ClusterId, MachineState};

use crate::pass::Pass;

impl Pass<'_> {
    /// The cluster's excess in release order: the reverse of keep order.
    pub(crate) fn reclaims(&self, cluster: &ClusterId) -> Vec<usize> {
        let world = self.world;
        let is_excess = |unit: &usize| {
            let of = &self.units[*unit];
            let lasted = of.facts.excess_since.map_or(Duration::ZERO, |since| world.now.since(since));
            of.state() == MachineState::Configured
                && of.is_bound_to(cluster)
                && self.is_spare(*unit)
                && lasted >= world.policy.reclaim_after
        };
        let mut excess: Vec<usize> = self.all_units().filter(is_excess).collect();
        excess.sort_by_key(|unit| std::cmp::Reverse(self.keep_order(*unit)));
        excess
    }

    /// Idle machines whose hold ended, by id.
    pub(crate) fn deletes(&self) -> Vec<usize> {
        let world = self.world;
        let expired = |unit: &usize| {
            let of = &self.units[*unit];
            let hold = match of.machine.capacity_type {
                CapacityType::OnDemand => world.policy.on_demand_idle_hold,
                CapacityType::Spot => world.policy.spot_idle_hold,
                CapacityType::Unspecified | CapacityType::BareMetal | CapacityType::Reserved => return false,
            };
            let idle = of.facts.idle_since.map(|since| world.now.since(since));
            !hold.is_zero() && idle.is_some_and(|idle| idle >= hold)
        };
        let idle = self.all_units().filter(|unit| self.units[*unit].state() == MachineState::Idle);
        idle.filter(|unit| self.is_spare(*unit)).filter(expired).collect()
    }

    /// It may go, and nobody has a use for it.
    fn is_spare(&self, unit: usize) -> bool {
        let taken = self.victims.contains(&unit) || self.reserved.contains(&unit);
        self.units[unit].facts.eligibility.releasable && !self.is_claimed(unit) && !taken
    }
}
