//! The member `policy`: holds, graces, delays and weights.

use std::time::Duration;

use bigfleet_engine::Policy;
use bigfleet_types::NanoDollars;

use crate::cap::ReclaimCap;
use crate::json::{Node, Refused};

/// The member `policy`.
#[derive(Debug, Clone, Default)]
pub struct PolicyFile {
    /// Holds, graces, delays, and how victims are weighed.
    pub engine: Policy,
    /// How many Reclaims get through; `None`: all.
    pub reclaim_cap: Option<ReclaimCap>,
}

impl PolicyFile {
    /// Reads the object. What it leaves out has its default.
    ///
    /// # Errors
    /// The first member that is unknown or breaks a rule.
    pub fn read(node: Node<'_>) -> Result<Self, Refused> {
        let mut policy = Self::default();
        let Self { engine, reclaim_cap } = &mut policy;
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
        let victims = &mut engine.victims;
        replace(&mut victims.drain_estimate, object.take("drainEstimateSeconds", seconds));
        object.take("victimWeights", |node| {
            let mut weights = node.object()?;
            replace(&mut victims.priority_weight, weights.take("priority", weight));
            replace(&mut victims.drain_weight, weights.take("drain", weight));
            replace(&mut victims.interruption_weight, weights.take("interruption", weight));
            replace(&mut victims.reclamation_weight, weights.take("reclamation", weight));
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
