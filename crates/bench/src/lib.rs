//! Measures the decision engine, and providers: generators of realistic fleets, the loops that time them, and their
//! reports.
//!
//! Generators use index arithmetic and no chance, so that a workload is the same on every machine, and stream what
//! they make, so that nothing of a fleet of millions lives outside the engine. Each checks what it made against the
//! numbers that it must have; a wrong generator fails instead of flattering.

pub mod catalogue;
pub mod compare;
pub mod instructions;
pub mod measure;
pub mod page;
pub mod provider;
pub mod realistic;
pub mod report;
pub mod results;
pub mod sizing;
pub mod synthetic;
pub mod timing;
pub mod workload;

mod aggregated;
mod factory;
mod published;

use anyhow::{Result, bail};

/// What was measured of a workload.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(untagged)]
pub enum Measured {
    /// Decisions on a fleet.
    Fleet(Box<report::Report>),
    /// Something else.
    Other(Box<timing::Timing>),
}

/// The workloads that run when nothing is chosen, in order. The fleet of 5m is left out: it takes minutes.
pub fn usual() -> impl Iterator<Item = &'static str> {
    FLEETS.into_iter().chain(INCREMENTAL).chain(published::NAMES).chain(timing::names())
}

/// The workload that only runs by its own name.
pub const LARGEST: &str = "5m";

/// What the names of rows about a second of churn in a fleet begin with; the rest is the fleet's name.
pub const CHURN: &str = "churn-";

/// Whole fleets.
const FLEETS: [&str; 5] = ["5k", "50k", "500k", "aggregated", "aggregated-ramp"];

/// Fleets of which so many rows change from round to round.
const INCREMENTAL: [&str; 11] = [
    "incremental-5k-0",
    "incremental-5k-10",
    "incremental-5k-1000",
    "incremental-50k-0",
    "incremental-50k-10",
    "incremental-50k-1000",
    "incremental-50k-100000",
    "incremental-500k-0",
    "incremental-500k-10",
    "incremental-500k-1000",
    "incremental-500k-100000",
];

/// Measures one workload by name.
///
/// # Errors
/// There is no such workload, its generator is wrong, or what it decided makes no sense.
pub fn measured(name: &str, how: measure::Effortful) -> Result<Measured> {
    if let Some(timing) = timing::by_name(name, how) {
        return Ok(Measured::Other(Box::new(timing?)));
    }
    let Some(workload) = workload::by_name(name) else {
        let known: Vec<_> = usual().collect();
        bail!("there is no workload {name:?}; known are {}, {LARGEST} and dev-50", known.join(", "));
    };
    Ok(Measured::Fleet(Box::new(measure::measure(&*workload, how)?)))
}
