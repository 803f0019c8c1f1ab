//! What a run may be made difficult with.

use std::time::Duration;

use bigfleet_shard::control::Config;

/// How a run behaves. Everything random follows from `seed`.
#[derive(Debug, Clone, PartialEq)]
pub struct Knobs {
    /// Decides which roll-ups get lost, how long each dwell is drawn out, and nothing else.
    pub seed: u64,
    /// Decides in which order things arrive that happen at the same time. No decision may depend on it.
    pub order: u64,
    /// Evicted pods come back. Without it they are gone for good.
    pub managed: bool,
    /// For which pods there is a CapacityRequest.
    pub requests: Requests,
    /// How requests become rows.
    pub through: Through,
    /// Cycles that a machine is Creating; 0: the acknowledgement already says Idle.
    pub creating: u32,
    /// The same for Configuring.
    pub configuring: u32,
    /// The same for Draining.
    pub draining: u32,
    /// The same for Deleting.
    pub deleting: u32,
    /// Every dwell above zero may take up to this many cycles more.
    pub drawn_out: u32,
    /// How many cycles a List is behind. A Get never is.
    pub list_lag: usize,
    /// How many of a hundred roll-ups get lost. Never two of a cluster in a row.
    pub lost_rollups: u64,
    /// How many of a hundred roll-ups arrive twice.
    pub doubled_rollups: u64,
    /// Rows carry arrivals that are drawn from `seed`, so that ties are broken in another order.
    pub drawn_arrivals: bool,
    /// Every so many cycles the decision is compared with that of an engine that was told everything anew; 0: never.
    /// Needs `drawn_arrivals`, because first sights are not told anew, and Reclaims without delay.
    pub audit_every: u32,
    /// The shard's settings. Interval and gap are set to [`STEP`] whatever they say.
    pub shard: Config,
}

/// The time from one cycle to the next.
pub const STEP: Duration = Duration::from_secs(10);

/// For which pods there is a CapacityRequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// For every pod as long as it lives: how BigFleet does it.
    PerPod,
    /// Only for pods that wait for a place: how it must not be done.
    PendingOnly,
}

/// How requests become rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// One CapacityRequest a pod, summed up by the operator's aggregation and read by the shard's gate.
    Operator,
    /// The operator's row for one pod, multiplied. The same rows for the cost of one request a workload.
    Multiplied,
}

impl Default for Knobs {
    /// Nothing is difficult: every transition is done at once, every message arrives once.
    fn default() -> Self {
        Self {
            seed: 0x00C0_FFEE,
            order: 0,
            managed: true,
            requests: Requests::PerPod,
            through: Through::Operator,
            creating: 0,
            configuring: 0,
            draining: 0,
            deleting: 0,
            drawn_out: 0,
            list_lag: 0,
            lost_rollups: 0,
            doubled_rollups: 0,
            drawn_arrivals: false,
            audit_every: 0,
            shard: Config::bare(),
        }
    }
}

impl Knobs {
    /// The same dwell for all four transitions.
    #[must_use]
    pub fn dwelling(mut self, cycles: u32) -> Self {
        (self.creating, self.configuring) = (cycles, cycles);
        (self.draining, self.deleting) = (cycles, cycles);
        self
    }

    /// The longest time in cycles that something may need to become known.
    #[must_use]
    pub fn slowest(&self) -> u32 {
        let dwell = self.creating.max(self.configuring).max(self.draining).max(self.deleting);
        let drawn_out = if dwell > 0 { self.drawn_out } else { 0 };
        let lag = u32::try_from(self.list_lag).unwrap_or(u32::MAX);
        let lost = u32::from(self.lost_rollups > 0);
        dwell.saturating_add(drawn_out).saturating_add(lag).saturating_add(lost)
    }

    pub(super) fn config(&self) -> Config {
        Config {
            cycle_interval: STEP,
            cycle_min_gap: STEP,
            // Everything that a cycle decides is begun in it.
            execute_concurrency: u32::MAX,
            ..self.shard.clone()
        }
    }
}
