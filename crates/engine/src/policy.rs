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
}

impl Default for Policy {
    /// Holds of 10 min and 1 min, Reclaims at once with a grace of 10 min.
    fn default() -> Self {
        Self {
            on_demand_idle_hold: Duration::from_secs(600),
            spot_idle_hold: Duration::from_secs(60),
            reclaim_after: Duration::ZERO,
            reclaim_grace: Duration::from_secs(600),
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
