//! The trace: one JSON object a line, members in the order of the structs, no blanks outside strings.

use std::io::{self, Write};

use bigfleet_engine::ActionKind;
use bigfleet_types::{ClusterId, MachineId};
use serde::Serialize;

use super::world::State;

/// One step.
#[derive(Debug, Serialize)]
struct Line<'a> {
    step: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Vec<ActionView<'a>>>,
    state: &'a State,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct ActionView<'a> {
    kind: &'static str,
    machine_id: &'a str,
    cluster: &'a str,
}

/// What a line is about.
pub(super) enum Kind<'a> {
    Start,
    Rollup(&'a ClusterId),
    /// What was executed, in any order.
    Cycle(&'a [Done]),
    End,
}

/// An action that was executed.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) kind: ActionKind,
    pub(super) machine: MachineId,
    pub(super) cluster: Option<ClusterId>,
}

/// Where the lines go.
pub(super) struct Trace<'w> {
    out: &'w mut dyn Write,
    step: u64,
}

impl<'w> Trace<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Self {
        Self { out, step: 0 }
    }

    /// Writes the next line. `state` is how things are after the step.
    pub(super) fn line(&mut self, kind: Kind<'_>, state: &State, notes: &[String]) -> io::Result<()> {
        let (name, cluster, actions) = match kind {
            Kind::Start => ("scenario_start", None, None),
            Kind::Rollup(cluster) => ("rollup", Some(cluster.as_str()), None),
            Kind::Cycle(done) => ("cycle", None, Some(views(done))),
            Kind::End => ("scenario_end", None, None),
        };
        serde_json::to_writer(
            &mut self.out,
            &Line { step: self.step, kind: name, cluster, actions, state, notes },
        )?;
        self.step += 1;
        self.out.write_all(b"\n")
    }
}

fn views(done: &[Done]) -> Vec<ActionView<'_>> {
    let mut views: Vec<_> = done.iter().map(Done::view).collect();
    views.sort_by_key(|view| (view.kind, view.machine_id));
    views
}

impl Done {
    fn view(&self) -> ActionView<'_> {
        ActionView {
            kind: self.kind.name(),
            machine_id: self.machine.as_str(),
            cluster: self.cluster.as_ref().map_or("", |cluster| cluster.as_str()),
        }
    }
}
