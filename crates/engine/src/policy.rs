//! The few numbers of a decision that are configuration. The cost formula is none of them.

use std::time::Duration;

use bigfleet_types::CapacityType;

/// Holds, graces and delays of [`crate::Engine::decide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long an unclaimed Idle on-demand machine is kept before its Delete; zero keeps it for ever.
    pub on_demand_idle_hold: Duration,
    /// The same for spot machines. Bare metal, reserved and unspecified machines are never released.
    pub spot_idle_hold: Duration,
    /// How long a Configured machine must have been unclaimed before its Reclaim.
    pub reclaim_after: Duration,
    /// The grace of a Reclaim's drain.
    pub reclaim_grace: Duration,
    /// How victims of preemption are weighed.
    pub victims: VictimPolicy,
}

/// The configurable numbers of the victim score. Weights are in nano-points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VictimPolicy {
    /// For each point of priority that the preemptor is above the victim.
    pub priority_weight: u64,
    /// For 1/second of the estimated drain.
    pub drain_weight: u64,
    /// For 1/dollar of the stamped interruption penalty.
    pub interruption_weight: u64,
    /// For 1/dollar of the stamped reclamation penalty.
    pub reclamation_weight: u64,
    /// How long a drain is expected to take; below one second counts as one.
    pub drain_estimate: Duration,
}

impl Default for VictimPolicy {
    /// Weights of 1 for priority and 0.1 for all else, drains of 30 s.
    fn default() -> Self {
        Self {
            priority_weight: 1_000_000_000,
            drain_weight: 100_000_000,
            interruption_weight: 100_000_000,
            reclamation_weight: 100_000_000,
            drain_estimate: Duration::from_secs(30),
        }
    }
}

impl Default for Policy {
    /// Holds of 10 min and 1 min, Reclaims at once with a grace of 10 min.
    fn default() -> Self {
        Self {
            on_demand_idle_hold: Duration::from_secs(600),
            spot_idle_hold: Duration::from_secs(60),
            reclaim_after: Duration::ZERO,
            reclaim_grace: Duration::from_secs(600),
            victims: VictimPolicy::default(),
        }
    }
}

impl Policy {
    /// How long an unclaimed Idle machine of this type is held; `None`: for ever.
    #[must_use]
    pub fn idle_hold(&self, capacity_type: CapacityType) -> Option<Duration> {
        let hold = match capacity_type {
            CapacityType::OnDemand => self.on_demand_idle_hold,
            CapacityType::Spot => self.spot_idle_hold,
            _ => return None,
        };
        (!hold.is_zero()).then_some(hold)
    }
}
