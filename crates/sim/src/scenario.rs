//! `bigfleet simulate`: a scenario in, a trace of what the engine did out.
//!
//! [`read`] takes a `bigfleet.scenario/v1` file in YAML or JSON, as strictly as `bigfleet decide` takes its own.
//! [`Scenario::run`] plays it: roll-ups arrive, machines change state after their dwell, faults strike, and in every cycle
//! the production engine decides. The trace is one JSON object a line.

mod expect;
mod limits;
mod read;
mod run;
mod steps;
mod template;
mod trace;
mod transition;
mod world;
mod yaml;

use std::sync::Arc;

use bigfleet_decide::PolicyFile;
use bigfleet_types::Machine;

use expect::Expectation;
use steps::Step;
use transition::Dwell;

pub use bigfleet_decide::json::Refused;
pub use read::read;

/// A scenario that can be played. Whatever it refers to is there, and it comes to an end.
#[derive(Debug, Clone)]
pub struct Scenario {
    name: String,
    seed: i64,
    cycle_seconds: i64,
    policy: PolicyFile,
    dwell: Dwell,
    fleet: Vec<Arc<Machine>>,
    steps: Vec<Step>,
    expect: Vec<Expectation>,
}
