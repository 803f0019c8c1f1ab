//! The file `bigfleet.decide/v1`, and what it says.

use std::collections::BTreeSet;

use bigfleet_engine::{Facts, Policy};
use bigfleet_types::{ClusterId, Machine, Need, UnixNanos};

use crate::cap::ReclaimCap;
use crate::json::{Ids, Node, Refused, shown};

mod demand;
mod machine;
mod policy;

pub use demand::rollup;
pub use machine::record;
pub use policy::{PolicyFile, VictimRules};

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

/// Reads a file.
///
/// # Errors
/// The first field that is unknown, repeated or breaks a rule of the format; the file means nothing then.
pub fn read(bytes: &[u8]) -> Result<Input, Refused> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| Refused::here(format_args!("is not JSON: {error}")))?;
    let root = Node::parse(text)?;
    of_format(root, FORMAT)?;

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

/// Checks the member `format` of a whole file. A file of another format says nothing about its members: this comes
/// before all else.
///
/// # Errors
/// The file is no object, or its format is missing or another.
pub fn of_format(root: Node<'_>, name: &str) -> Result<(), Refused> {
    let wrong = |reason: String| Err(Refused::at("format", reason));
    let mut object = root.object()?;
    match object.take("format", Node::text) {
        Some(format) if format == name => Ok(()),
        Some(format) => wrong(format!("{} is not read here; write {name:?}", shown(&format))),
        None => {
            object.so_far()?;
            wrong(format!("is missing; write {name:?}"))
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
