//! What can be measured: something that fills an engine and then changes its demand.

use std::time::Duration;

use bigfleet_engine::{Event, Policy};
use bigfleet_types::UnixNanos;

use crate::aggregated::Aggregated;
use crate::compare::Recorded;
use crate::published;
use crate::realistic::Realistic;
use crate::sizing::{CardinalityError, PROFILES, Tally};

/// When every workload begins.
pub const START: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

/// Time from one roll-up of a cluster to the next.
pub const ROLLUP: Duration = Duration::from_secs(10);

/// Takes events one by one.
pub type Emit<'a> = &'a mut dyn FnMut(Event);

/// Rows of demand in a round of roll-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// All that were sent.
    pub rows: u64,
    /// Those that differ from the round before.
    pub changed: u64,
}

/// A fleet with its demand.
pub trait Workload {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Emits the whole fleet and then the demand.
    ///
    /// # Errors
    /// What was made is not what the workload says that it is.
    fn fill(&self, emit: Emit<'_>) -> Result<Tally, CardinalityError>;

    /// Emits the roll-ups of every cluster in round `round`, 1 and up; the demand of round 0 is that of
    /// [`Self::fill`].
    fn churn(&self, round: u64, emit: Emit<'_>) -> Changed;

    /// How many actions a first decision may take, by machines: a fleet at rest takes few. `None`: no matter.
    fn most_actions(&self, records: u64) -> Option<u64>;

    /// What was published for it, if anything.
    fn recorded(&self) -> Option<Recorded> {
        None
    }

    /// Whether decisions after the first build on the one before.
    fn remembers(&self) -> bool {
        false
    }

    /// Holds and delays of the engine: one that keeps what is Idle, since the workload's Idle tier is constant.
    fn policy(&self) -> Policy {
        let hold = Duration::from_secs(24 * 3600);
        Policy {
            on_demand_idle_hold: hold,
            spot_idle_hold: hold,
            reclaim_after: Duration::from_secs(60),
            ..Policy::default()
        }
    }
}

/// The workload of a name; `None` if there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Workload>> {
    if let Some(profile) = PROFILES.iter().find(|profile| profile.name == name) {
        return Some(Box::new(Realistic::new(*profile)));
    }
    // `incremental-PROFILE-ROWS`: so many rows change from round to round.
    if let Some((profile, rows)) = name.strip_prefix("incremental-").and_then(|rest| rest.split_once('-')) {
        let profile = PROFILES.iter().find(|known| known.name == profile)?;
        return Some(Box::new(Realistic::changing(*profile, name, rows.parse().ok()?)));
    }
    if let Some(published) = published::by_name(name) {
        return Some(Box::new(published));
    }
    match name {
        "aggregated" => Some(Box::new(Aggregated::at_rest())),
        "aggregated-ramp" => Some(Box::new(Aggregated::all_idle())),
        _ => None,
    }
}
