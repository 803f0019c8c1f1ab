//! Golden traces: what a scenario decides and leaves, step by step, in files that a person can review.
//!
//! One JSON object a line: `step`, `kind` (scenario_start, rollup, cycle, scenario_end) and, where there is something
//! to say, `cluster`, `actions` sorted by kind and machine, `state` and `notes`. The notes of a cycle tell the grace of
//! every drain and what stays short.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bigfleet_shard::control::{Config, Control};
use bigfleet_shard::metrics::Metrics;
use bigfleet_shard::step::{FleetState, StepAction, Stepper};
use bigfleet_types::{Machine, Need, UnixNanos};
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::core_model::{Model, cluster, id};

/// Set to 1, it rewrites our traces instead of comparing them.
const UPDATE: &str = "BIGFLEET_UPDATE_TRACES";

#[derive(Serialize)]
struct Line {
    step: usize,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<ActionLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<StateLine>,
    #[serde(skip_serializing_if = "String::is_empty")]
    notes: String,
}

#[derive(Serialize)]
struct ActionLine {
    kind: &'static str,
    machine_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
}

#[derive(Serialize)]
struct StateLine {
    total: usize,
    by_state: BTreeMap<&'static str, usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    configured_per_cluster: BTreeMap<String, usize>,
}

impl From<FleetState> for StateLine {
    fn from(state: FleetState) -> Self {
        let clusters = state.configured.into_iter().map(|(cluster, n)| (cluster.to_string(), n));
        Self { total: state.total, by_state: state.by_state, configured_per_cluster: clusters.collect() }
    }
}

impl From<&StepAction> for ActionLine {
    fn from(action: &StepAction) -> Self {
        let cluster = action.cluster.as_ref().map(ToString::to_string);
        Self { kind: action.kind, machine_id: action.machine.to_string(), cluster }
    }
}

/// A scenario under way, with its trace so far.
pub(crate) struct Trace {
    name: &'static str,
    /// Made by others: never rewritten, and silent about what they are silent about.
    given: bool,
    pub(crate) stepper: Stepper<Model>,
    text: String,
    steps: usize,
    drains: usize,
}

/// Rails off, every delay zero, a provider that is instant unless it is told to dwell.
pub(crate) fn stepper(model: Model) -> Stepper<Model> {
    let metrics = Metrics::register(&mut Registry::default());
    Stepper::new(Config::bare(), model, metrics, UnixNanos(0).after(Duration::from_secs(1000)))
}

impl Trace {
    /// A trace of ours.
    pub(crate) fn ours(name: &'static str, machines: impl IntoIterator<Item = Machine>) -> Self {
        Self::start(name, false, Model::with(machines))
    }

    /// A trace that was handed to us.
    pub(crate) fn given(name: &'static str, model: Model) -> Self {
        Self::start(name, true, model)
    }

    fn start(name: &'static str, given: bool, model: Model) -> Self {
        let stepper = stepper(model);
        let mut trace = Self { name, given, stepper, text: String::new(), steps: 0, drains: 0 };
        let state = Some(trace.stepper.state().into());
        trace.line("scenario_start", None, Vec::new(), state, name.to_owned());
        trace
    }

    fn line(
        &mut self,
        kind: &'static str,
        cluster: Option<String>,
        actions: Vec<ActionLine>,
        state: Option<StateLine>,
        notes: String,
    ) {
        let line = Line { step: self.steps, kind, cluster, actions, state, notes };
        self.text.push_str(&serde_json::to_string(&line).unwrap());
        self.text.push('\n');
        self.steps += 1;
    }

    /// A cluster's complete demand.
    pub(crate) fn rollup(&mut self, name: &str, rows: Vec<Need>) {
        let notes = format!("needs={}", rows.len());
        self.stepper.rollup(&cluster(name), rows);
        self.line("rollup", Some(name.to_owned()), Vec::new(), None, notes);
    }

    /// One cycle. Gives its actions.
    pub(crate) fn cycle(&mut self) -> Vec<(&'static str, String)> {
        let now = self.stepper.now();
        self.stepper.provider().advance(now);
        let actions = self.stepper.cycle();
        let state = Some(self.stepper.state().into());
        let notes = if self.given { String::new() } else { self.cycle_notes() };
        self.line("cycle", None, actions.iter().map(ActionLine::from).collect(), state, notes);
        actions.iter().map(|action| (action.kind, action.machine.to_string())).collect()
    }

    /// Cycles in which nothing is to be done.
    pub(crate) fn quiet(&mut self, cycles: usize) {
        for _ in 0..cycles {
            assert_eq!(self.cycle(), [], "{}: step {}", self.name, self.steps - 1);
        }
    }

    fn cycle_notes(&mut self) -> String {
        let mut notes = Vec::new();
        let drains = &self.stepper.provider().drains;
        for (machine, grace) in &drains[self.drains..] {
            notes.push(format!("grace {machine} {}s", grace.as_secs()));
        }
        self.drains = drains.len();
        for (key, deficit) in self.stepper.control().shortfalls() {
            let mut note = format!("short {} {}", key.cluster, deficit.deficit);
            if !key.group.is_none() {
                write!(note, " group {}", key.group).unwrap();
            }
            notes.push(note);
        }
        notes.join(", ")
    }

    pub(crate) fn control(&self) -> &Control {
        self.stepper.control()
    }

    /// The machines of a cluster, by id.
    pub(crate) fn machines_of(&self, name: &str) -> Vec<String> {
        let name = cluster(name);
        let machines = self.control().machines().filter(|machine| machine.cluster.as_ref() == Some(&name));
        machines.map(|machine| machine.id.to_string()).collect()
    }

    pub(crate) fn machine(&self, name: &str) -> &Machine {
        self.control().machine(&id(name)).unwrap()
    }

    /// Ends the scenario and compares its trace with the file, byte for byte.
    pub(crate) fn end(&mut self) {
        let state = Some(self.stepper.state().into());
        self.line("scenario_end", None, Vec::new(), state, String::new());
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/traces", self.name].iter().collect();
        let path = path.with_extension("jsonl");
        if !self.given && std::env::var(UPDATE).is_ok_and(|value| value == "1") {
            std::fs::write(&path, &self.text).unwrap();
        }
        let expected = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; {UPDATE}=1 writes it", path.display()));
        for (n, (expected, found)) in expected.lines().zip(self.text.lines()).enumerate() {
            assert_eq!(expected, found, "{}: line {}; {UPDATE}=1 rewrites it", self.name, n + 1);
        }
        assert_eq!(expected, self.text, "{}; {UPDATE}=1 rewrites it", self.name);
    }
}
