//! A copy of all that an engine was told, and the means to check its answers against another engine made of it.
//!
//! The copy has none of what the engine worked out: no pools, no classes, no ledger. It is columns and shared rows, so
//! that making one costs little more than reading them; what takes longer is done by whoever has the time.

use std::sync::Arc;

use bigfleet_types::{ClusterId, Machine, MachineId, Need, UnixNanos};

use crate::decision::Decisions;
use crate::engine::Engine;
use crate::event::{Event, Facts};
use crate::fleet::Columns;
use crate::intern::Texts;
use crate::policy::Policy;

/// All that an engine was told, as of one moment.
#[derive(Debug)]
pub struct Content {
    pub(crate) policy: Policy,
    pub(crate) texts: Texts,
    pub(crate) fleet: Columns,
    pub(crate) demand: Vec<(ClusterId, Vec<Arc<Need>>)>,
    pub(crate) heard: Vec<ClusterId>,
}

/// What a decision left behind on machines, in the numbers of its engine: see [`Content::marked`].
#[derive(Debug)]
pub struct Marks {
    /// By slot: whether some Need claims it.
    pub(crate) claimed: Vec<bool>,
    /// By slot: since when it is excess.
    pub(crate) since: Vec<i64>,
}

/// What a decision left behind on one machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The machine.
    pub machine: MachineId,
    /// Whether some Need claims it.
    pub claimed: bool,
    /// Since when no Need has claimed it; Configured machines only.
    pub excess_since: Option<UnixNanos>,
}

impl Content {
    /// How decisions are weighed.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// All machines in no particular order, as far as the engine keeps them: without host, last error and the cluster
    /// of machines that no phase looks at there, and with their capacity as resources.
    pub fn machines(&self) -> impl Iterator<Item = (Machine, Facts)> {
        self.fleet.machines(&self.texts)
    }

    /// The rows of every cluster that wants something, in no particular order, with their arrivals.
    #[must_use]
    pub fn demand(&self) -> &[(ClusterId, Vec<Arc<Need>>)] {
        &self.demand
    }

    /// The clusters that have spoken, in no particular order.
    #[must_use]
    pub fn heard(&self) -> &[ClusterId] {
        &self.heard
    }

    /// Another engine that was told the same.
    #[must_use]
    pub fn engine(&self) -> Engine {
        let mut engine = Engine::new(self.policy.clone());
        for (cluster, rows) in &self.demand {
            let rows = rows.iter().map(|need| Need::clone(need)).collect();
            // Every row brings its arrival.
            engine.apply(Event::Demand { cluster: cluster.clone(), rows, at: UnixNanos(0) });
        }
        for (machine, facts) in self.machines() {
            engine.apply(Event::Machine { machine: Arc::new(machine), facts });
        }
        self.heard.iter().for_each(|cluster| engine.apply(Event::Heard(cluster.clone())));
        engine
    }

    /// Marks of the engine that this content is of, by machine. Nothing may have been applied to it in between.
    #[must_use]
    pub fn marked(&self, marks: &Marks) -> Vec<Mark> {
        let mut marked: Vec<Mark> = self.fleet.marked(marks).collect();
        marked.sort_unstable();
        marked
    }

    /// What an engine that was told the same and knows nothing else decides, and how it marks the machines.
    #[must_use]
    pub fn decide(&self, now: UnixNanos) -> (Decisions, Vec<Mark>) {
        let mut engine = self.engine();
        let decisions = engine.decide(now);
        let marked = engine.content().marked(&engine.marks());
        (decisions, marked)
    }
}

impl Engine {
    /// A copy of all that was applied so far, and of since when machines are excess.
    #[must_use]
    pub fn content(&self) -> Content {
        Content {
            policy: self.policy.clone(),
            texts: self.symbols.texts(),
            fleet: self.fleet.columns(),
            demand: self.demand.copy(),
            heard: self.heard.iter().cloned().collect(),
        }
    }

    /// What the last decision left behind on machines. To be asked for before anything else is applied.
    #[must_use]
    pub fn marks(&self) -> Marks {
        Marks { claimed: self.ledger.claims.by_slot(), since: self.fleet.since().to_vec() }
    }

    /// Whether anything was applied since the last decision.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.fleet.changes.any
    }

    /// Overlooks all that was applied since the last decision, as a mistake in keeping track would: the next decision
    /// is wrong. For tests of those who are to notice.
    #[cfg(feature = "faults")]
    pub fn overlook(&mut self) {
        self.fleet.changes.clear();
    }
}
