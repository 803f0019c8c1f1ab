//! What may be configured in the core, and the constants that may not.

use std::time::Duration;

use bigfleet_engine::Policy;

/// The core's configuration. Durations follow the clock whose time is handed in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// This process's fencing epoch, told to operators.
    pub epoch: i64,
    /// The engine's holds, graces and delays.
    pub policy: Policy,
    /// The longest time between two cycles, two Lists and two ticks of the shortfall ages.
    pub cycle_interval: Duration,
    /// The shortest time between the starts of two cycles.
    pub cycle_min_gap: Duration,
    /// Actions executed in one cycle; 0: no limit.
    pub max_actions_per_cycle: u32,
    /// Actions in execution at once, not counting transitions that the provider has acknowledged. At least 1.
    pub execute_concurrency: u32,
    /// Reclaims of one cluster in 10 s, as a part of its Configured machines; at least one. 0: no limit.
    pub reclaim_cap_fraction: f64,
    /// Decide, but execute nothing, by flag. The PAUSE file arrives as [`crate::io::Input::Paused`].
    pub actuation_paused: bool,
    /// Decide and say so, but execute nothing.
    pub dry_run: bool,
    /// Hold suspiciously empty roll-ups.
    pub empty_rollup_guard: bool,
    /// The shortest time between two hints of one (cluster, profile).
    pub available_capacity_interval: Duration,
    /// How long an operator may take to render a blob.
    pub bootstrap_timeout: Duration,
    /// How long one action may take from its start to the provider's acknowledgement.
    pub execute_timeout: Duration,
    /// The longest time between two audits of decisions, as long as something changes.
    pub decision_audit_interval: Duration,
    /// The largest number of cycles between two audits of decisions, as long as something changes. At least 1.
    pub decision_audit_cycles: u32,
    /// Overlook what changes after the first cycle, until an audit notices.
    #[cfg(feature = "faults")]
    pub overlook: bool,
    /// When a transition counts as stuck.
    pub stuck: StuckAfter,
    /// Answer bootstrap requests with a stub instead of asking the operator. Tests and simulation only.
    pub local_bootstrap: bool,
}

/// How long each transition may take before it counts as stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckAfter {
    /// Creating.
    pub create: Duration,
    /// Configuring.
    pub configure: Duration,
    /// Draining, on top of its grace; the sum is at least 15 min.
    pub drain: Duration,
    /// Deleting.
    pub delete: Duration,
}

impl Default for StuckAfter {
    fn default() -> Self {
        let ten = Duration::from_secs(600);
        Self { create: ten, configure: ten, drain: ten, delete: ten }
    }
}

impl Default for Config {
    /// The defaults of the shard's flags: all rails on, Reclaims after 60 s.
    fn default() -> Self {
        Self {
            epoch: 1,
            policy: Policy { reclaim_after: Duration::from_secs(60), ..Policy::default() },
            cycle_interval: Duration::from_secs(10),
            cycle_min_gap: Duration::from_millis(100),
            max_actions_per_cycle: 0,
            execute_concurrency: 32,
            reclaim_cap_fraction: 0.05,
            actuation_paused: false,
            dry_run: false,
            empty_rollup_guard: true,
            available_capacity_interval: Duration::from_secs(5),
            bootstrap_timeout: Duration::from_secs(30),
            execute_timeout: Duration::from_secs(95),
            decision_audit_interval: Duration::from_secs(60),
            decision_audit_cycles: 100,
            #[cfg(feature = "faults")]
            overlook: false,
            stuck: StuckAfter::default(),
            local_bootstrap: false,
        }
    }
}

impl Config {
    /// All rails off and every delay zero: what simulations and golden scenarios run with.
    #[must_use]
    pub fn bare() -> Self {
        Self {
            policy: Policy::default(),
            cycle_min_gap: Duration::ZERO,
            reclaim_cap_fraction: 0.0,
            empty_rollup_guard: false,
            ..Self::default()
        }
    }

    /// How many workers may wait for the operator of one cluster at once. Preempts are above it.
    #[must_use]
    pub fn waits_per_cluster(&self) -> usize {
        usize::try_from((self.execute_concurrency / 4).max(4)).unwrap_or(usize::MAX)
    }
}

/// How long the operator may take to begin a drain before the provider is told anyway.
pub(crate) const RECLAIM_ACK_WAIT: Duration = Duration::from_secs(10);
/// The first Get after an acknowledgement.
pub(crate) const WATCH_FIRST: Duration = Duration::from_millis(250);
/// The slowest rhythm of Gets on a machine in flight.
pub(crate) const WATCH_SLOWEST: Duration = Duration::from_secs(10);
/// Gets in flight at once.
pub(crate) const GETS_AT_ONCE: usize = 32;
/// For how long a List that contradicts a settled transition needs a Get to be believed.
pub(crate) const SETTLED_FOR: Duration = Duration::from_secs(60);
/// A blob is not used in the last part of its life.
pub(crate) const BLOB_SAFETY: Duration = Duration::from_secs(30);
/// The rail on Reclaims counts within this time.
pub(crate) const RECLAIM_WINDOW: Duration = Duration::from_secs(10);
/// After being fenced.
pub(crate) const FENCED_COOL_DOWN: Duration = Duration::from_secs(600);
/// Distinct machines fenced in a row that mean that we are the zombie.
pub(crate) const FENCED_LATCH: usize = 3;
/// The removal guard acts from this many removals on.
pub(crate) const GUARD_REMOVALS: usize = 10;
/// Lists that must agree on guarded removals.
pub(crate) const GUARD_LISTS: u32 = 3;
/// Roll-ups that must agree on an empty demand.
pub(crate) const GUARD_ROLLUPS: u32 = 3;
/// The roll-up guard knows nothing below this many rows, nor below this many Configured machines.
pub(crate) const GUARD_ROWS: usize = 10;
