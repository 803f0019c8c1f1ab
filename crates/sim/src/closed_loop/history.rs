//! What happened, cycle by cycle, and what scenarios ask of it.

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_shard::step::{FleetState, StepAction};
use bigfleet_types::{ClusterId, MachineId, NeedKey, Resources};
use serde::Serialize;

/// One cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Its number, from 1.
    pub number: u32,
    /// What the shard began, sorted.
    pub actions: Vec<StepAction>,
    /// What nothing could meet.
    pub shortfalls: BTreeMap<NeedKey, Resources>,
    /// The fleet at the end.
    pub fleet: FleetState,
    /// Pods with a place at the end.
    pub bound: usize,
    /// Pods at the end.
    pub pods: usize,
    /// Pods evicted for good so far.
    pub destroyed: usize,
    /// Reclaims of machines that could have served a shortfall of the same cycle.
    pub foolish_reclaims: usize,
}

/// All cycles so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History(pub Vec<Cycle>);

impl History {
    /// The last cycles.
    #[must_use]
    pub fn last(&self, cycles: usize) -> &[Cycle] {
        &self.0[self.0.len().saturating_sub(cycles)..]
    }

    /// The cycles from one number on.
    #[must_use]
    pub fn from(&self, number: u32) -> &[Cycle] {
        let first = self.0.partition_point(|cycle| cycle.number < number);
        &self.0[first..]
    }

    /// The cycles as lines of JSON for people to review: every cycle that did something or changed what is missing.
    #[must_use]
    pub fn trace(&self, scenario: &str) -> String {
        let mut lines = Vec::new();
        let mut line = |line: &Line<'_>| lines.push(serde_json::to_string(line).unwrap_or_default());
        let empty = BTreeMap::new();
        let mut before = &empty;
        line(&Line {
            step: 0,
            kind: "scenario_start",
            actions: Vec::new(),
            state: None,
            missing: 0,
            notes: scenario,
        });
        for cycle in &self.0 {
            if !cycle.actions.is_empty() || cycle.shortfalls != *before {
                line(&Line::of(cycle, "cycle"));
            }
            before = &cycle.shortfalls;
        }
        if let Some(last) = self.0.last() {
            line(&Line { actions: Vec::new(), ..Line::of(last, "scenario_end") });
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// How many actions of a kind there were.
#[must_use]
pub fn count(cycles: &[Cycle], kind: &str) -> usize {
    cycles.iter().flat_map(|cycle| &cycle.actions).filter(|action| action.kind == kind).count()
}

/// How many actions there were.
#[must_use]
pub fn churn(cycles: &[Cycle]) -> usize {
    cycles.iter().map(|cycle| cycle.actions.len()).sum()
}

/// The machines that were acquired, each once however many actions that took.
#[must_use]
pub fn acquired(cycles: &[Cycle]) -> BTreeSet<&MachineId> {
    let actions = cycles.iter().flat_map(|cycle| &cycle.actions);
    actions.filter(|a| matches!(a.kind, "Bootstrap" | "Provision")).map(|action| &action.machine).collect()
}

/// Whether what is missing stayed the same, and is something.
#[must_use]
pub fn lacks_the_same(cycles: &[Cycle]) -> bool {
    let mut missing = cycles.iter().map(|cycle| &cycle.shortfalls);
    missing.next().is_some_and(|first| !first.is_empty() && missing.all(|next| next == first))
}

#[derive(Serialize)]
struct Line<'a> {
    step: u32,
    kind: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<Act<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State<'a>>,
    missing: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    notes: &'a str,
}

#[derive(Serialize)]
struct Act<'a> {
    kind: &'a str,
    machine_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cluster: &'a str,
}

#[derive(Serialize)]
struct State<'a> {
    total: usize,
    by_state: &'a BTreeMap<&'static str, usize>,
    configured_per_cluster: BTreeMap<&'a str, usize>,
}

impl<'a> Line<'a> {
    fn of(cycle: &'a Cycle, kind: &'a str) -> Self {
        let act = |action: &'a StepAction| Act {
            kind: action.kind,
            machine_id: action.machine.as_str(),
            cluster: action.cluster.as_ref().map_or("", ClusterId::as_str),
        };
        let configured = cycle.fleet.configured.iter();
        let state = State {
            total: cycle.fleet.total,
            by_state: &cycle.fleet.by_state,
            configured_per_cluster: configured.map(|(cluster, count)| (cluster.as_str(), *count)).collect(),
        };
        Self {
            step: cycle.number,
            kind,
            actions: cycle.actions.iter().map(act).collect(),
            state: Some(state),
            missing: cycle.shortfalls.len(),
            notes: "",
        }
    }
}
