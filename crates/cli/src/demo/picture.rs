//! What the demo shows at one moment, as plain data: the views draw it, the lines print it.

use std::time::Duration;

use bigfleet_types::MachineState;

use super::cluster::Tier;

/// The states in the order of their columns.
pub(crate) const STATES: [MachineState; 8] = MachineState::ALL;

/// The whole moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Picture {
    /// Since the start.
    pub(crate) uptime: Duration,
    /// How long after the start the first machine was Configured.
    pub(crate) first_bound: Option<Duration>,
    pub(crate) clusters: Vec<ClusterLine>,
    pub(crate) classes: Vec<ClassLine>,
    /// Declared prices of the machines that exist.
    pub(crate) dollars_per_hour: f64,
    /// The newest actions, the newest last.
    pub(crate) actions: Vec<ActionLine>,
    /// Needs without enough machines: whose, what is missing, why.
    pub(crate) unmet: Vec<UnmetLine>,
    /// The shard's last cycle, as it told; `None` while it does not answer.
    pub(crate) cycle: Option<i64>,
    pub(crate) paused: bool,
    pub(crate) broken: bool,
    /// What was told last: scenario, keys, problems.
    pub(crate) story: Vec<String>,
    /// Where to reach the parts and read more.
    pub(crate) hints: Vec<String>,
}

/// One cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterLine {
    pub(crate) name: String,
    /// Its tiers and the levels of each, in the order of their rows.
    pub(crate) demand: Vec<(Tier, u32)>,
    pub(crate) wanted: usize,
    pub(crate) running: usize,
    pub(crate) pending: usize,
    /// Nodes that are Ready.
    pub(crate) nodes: usize,
    /// Pods that ended because a machine was drained or lost under them.
    pub(crate) evicted: u64,
    pub(crate) lost: u64,
}

/// Machines of one offer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClassLine {
    pub(crate) name: String,
    pub(crate) capacity_type: &'static str,
    pub(crate) price: f64,
    /// How many in each of [`STATES`].
    pub(crate) counts: [usize; 8],
}

/// One action of the shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ActionLine {
    pub(crate) clock: String,
    pub(crate) headline: String,
    pub(crate) why: String,
    pub(crate) outcome: String,
}

/// One Need that is not satisfied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnmetLine {
    pub(crate) cluster: String,
    pub(crate) priority: i32,
    pub(crate) missing: String,
    pub(crate) why: String,
}

impl Picture {
    /// How many machines are in each of [`STATES`].
    pub(crate) fn totals(&self) -> [usize; 8] {
        let mut totals = [0; 8];
        for class in &self.classes {
            totals.iter_mut().zip(class.counts).for_each(|(total, count)| *total += count);
        }
        totals
    }
}
