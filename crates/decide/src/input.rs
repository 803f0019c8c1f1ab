//! The file `bigfleet.decide/v1`, and what it says.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_engine::{Facts, Policy};
use bigfleet_types::{ClusterId, Machine, NanoDollars, Need, UnixNanos};

use crate::cap::ReclaimCap;
use crate::json::{Ids, Node, Refused, shown};

mod demand;
mod machine;

const FORMAT: &str = "bigfleet.decide/v1";

/// Everything that a decision depends on. Ids are distinct.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    /// The time of the decision.
    pub now: UnixNanos,
    /// The machines and what the shard knows of them, in the order of the file.
    pub fleet: Vec<(Machine, Facts)>,
    /// The rows of every cluster that sent a roll-up, in the order of the file; an unknown arrival is 0.
    pub demand: Vec<(ClusterId, Vec<Need>)>,
    /// The clusters whose machines may be reclaimed.
    pub ready: BTreeSet<ClusterId>,
    /// Holds, graces and delays.
    pub policy: Policy,
    /// How many Reclaims get through; `None`: all.
    pub reclaim_cap: Option<ReclaimCap>,
    /// How victims are weighed.
    pub victims: VictimRules,
}

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

/// Reads a file.
///
/// # Errors
/// The first field that is unknown, repeated or breaks a rule of the format; the file means nothing then.
pub fn read(bytes: &[u8]) -> Result<Input, Refused> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| Refused::here(format_args!("is not JSON: {error}")))?;
    let root = Node::parse(text)?;
    of_this_format(root)?;

    let mut object = root.object()?;
    object.take("format", Node::text);
    let now = object.take("nowUnixNanos", Node::int64).unwrap_or_default();
    let mut ids = Ids::default();
    let fleet = object.take("fleet", |node| node.each(|_, entry| machine::read(entry, &mut ids)));
    let mut clusters = Ids::default();
    let demand = object.take("demand", |node| node.each(|_, entry| demand::read(entry, &mut clusters)));
    let ready = object.take("readyClusters", ready_clusters);
    let policy = object.take("policy", PolicyFile::read).unwrap_or_default();
    object.finish()?;

    let demand = demand.unwrap_or_default();
    Ok(Input {
        now: UnixNanos(now),
        fleet: fleet.unwrap_or_default(),
        ready: ready.unwrap_or_else(|| demand.iter().map(|(cluster, _)| cluster.clone()).collect()),
        demand,
        policy: policy.engine,
        reclaim_cap: policy.reclaim_cap,
        victims: policy.victims,
    })
}

/// A file of another format says nothing about its members: this comes before all else.
fn of_this_format(root: Node<'_>) -> Result<(), Refused> {
    let wrong = |reason: String| Err(Refused::at("format", reason));
    let mut object = root.object()?;
    match object.take("format", Node::text) {
        Some(format) if format == FORMAT => Ok(()),
        Some(format) => wrong(format!("{} is not read here; write {FORMAT:?}", shown(&format))),
        None => {
            object.so_far()?;
            wrong(format!("is missing; write {FORMAT:?}"))
        }
    }
}

fn ready_clusters(node: Node<'_>) -> Result<BTreeSet<ClusterId>, Refused> {
    let mut ids = Ids::default();
    let clusters = node.each(|_, node| {
        let text = node.text()?;
        ids.take(&text)?;
        Ok(ClusterId::trusted(text))
    })?;
    Ok(clusters.into_iter().collect())
}

/// The member `policy`.
#[derive(Debug, Default)]
struct PolicyFile {
    engine: Policy,
    reclaim_cap: Option<ReclaimCap>,
    victims: VictimRules,
}

impl PolicyFile {
    fn read(node: Node<'_>) -> Result<Self, Refused> {
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
