//! The engine on one file.

use std::sync::Arc;

use bigfleet_engine::{Engine, Event};

use crate::input::Input;
use crate::report::Report;

/// Runs the engine on the content of a file, once.
#[must_use]
pub fn decide(input: &Input) -> Report {
    let mut engine = engine(input);
    let decisions = engine.decide(input.now);
    Report::new(input, decisions, engine.claimed().collect())
}

/// An engine that knows all of a file.
pub(crate) fn engine(input: &Input) -> Engine {
    let mut engine = Engine::new(input.policy.clone());
    for (machine, facts) in &input.fleet {
        engine.apply(Event::Machine { machine: Arc::new(machine.clone()), facts: facts.clone() });
    }
    for (cluster, rows) in &input.demand {
        engine.apply(Event::Demand { cluster: cluster.clone(), rows: rows.clone(), at: input.now });
    }
    for cluster in &input.ready {
        engine.apply(Event::Heard(cluster.clone()));
    }
    engine
}
