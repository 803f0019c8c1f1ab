//! The member `policy`: holds, graces, delays and weights.

use std::time::Duration;

use bigfleet_engine::{Policy, VictimPolicy};
use bigfleet_types::NanoDollars;

use crate::cap::ReclaimCap;
use crate::json::{Node, Refused};

/// The configurable part of the score by which victims of a preemption are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VictimRules {
    /// Nano-points for a point of priority gap.
    pub priority: u64,
    /// Nano-points for 1/second of drain.
    pub drain: u64,
    /// Nano-points for 1/dollar of stamped interruption penalty.
    pub interruption: u64,
    /// Nano-points for 1/dollar of stamped reclamation penalty.
    pub reclamation: u64,
    /// How long a drain is expected to take.
    pub drain_estimate: Duration,
}

impl Default for VictimRules {
    /// Weights of 1, 0.1, 0.1 and 0.1, and drains of 30 s.
    fn default() -> Self {
        Self {
            priority: 1_000_000_000,
            drain: 100_000_000,
            interruption: 100_000_000,
            reclamation: 100_000_000,
            drain_estimate: Duration::from_secs(30),
        }
    }
}

impl From<VictimRules> for VictimPolicy {
    fn from(rules: VictimRules) -> Self {
        Self {
            priority_weight: rules.priority,
            drain_weight: rules.drain,
            interruption_weight: rules.interruption,
            reclamation_weight: rules.reclamation,
            drain_estimate: rules.drain_estimate,
        }
    }
}

/// The member `policy`.
#[derive(Debug, Clone, Default)]
pub struct PolicyFile {
    /// Holds, graces and delays. How victims are weighed is in `victims`.
    pub engine: Policy,
    /// How many Reclaims get through; `None`: all.
    pub reclaim_cap: Option<ReclaimCap>,
    /// How victims are weighed.
    pub victims: VictimRules,
}

impl PolicyFile {
    /// Reads the object. What it leaves out has its default.
    ///
    /// # Errors
    /// The first member that is unknown or breaks a rule.
    pub fn read(node: Node<'_>) -> Result<Self, Refused> {
        let mut policy = Self::default();
        let Self { engine, reclaim_cap, victims } = &mut policy;
        let mut object = node.object()?;
        object.take("idleHoldSeconds", |node| {
            let mut holds = node.object()?;
            replace(&mut engine.on_demand_idle_hold, holds.take("onDemand", seconds));
            replace(&mut engine.spot_idle_hold, holds.take("spot", seconds));
            holds.finish()
        });
        *reclaim_cap = object.take("reclaimCapFraction", fraction).flatten();
        replace(&mut engine.reclaim_grace, object.take("reclaimGraceSeconds", seconds));
        replace(&mut engine.reclaim_after, object.take("reclaimAfterSeconds", seconds));
        replace(&mut victims.drain_estimate, object.take("drainEstimateSeconds", seconds));
        object.take("victimWeights", |node| {
            let mut weights = node.object()?;
            replace(&mut victims.priority, weights.take("priority", weight));
            replace(&mut victims.drain, weights.take("drain", weight));
            replace(&mut victims.interruption, weights.take("interruption", weight));
            replace(&mut victims.reclamation, weights.take("reclamation", weight));
            weights.finish()
        });
        object.finish()?;
        Ok(policy)
    }
}

fn replace<T>(default: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *default = given;
    }
}

fn seconds(node: Node<'_>) -> Result<Duration, Refused> {
    let seconds = node.integer(0, i64::MAX)?;
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

fn fraction(node: Node<'_>) -> Result<Option<ReclaimCap>, Refused> {
    let fraction = node.double()?;
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Refused::here(format_args!("{fraction} is not a fraction from 0 to 1")));
    }
    Ok(ReclaimCap::of_fraction(fraction))
}

/// A weight in nano-points.
fn weight(node: Node<'_>) -> Result<u64, Refused> {
    let weight = node.double()?;
    let wrong = || Refused::here(format_args!("{weight} is not a finite weight of 0 or more"));
    // A weight is kept as money is: in billionths, rounded half up.
    NanoDollars::from_dollars(weight).map(|nano| nano.nano().unsigned_abs()).ok_or_else(wrong)
}
