//! Measures the decision engine: generators of realistic fleets, the loop that times them, and its reports.
//!
//! Generators use index arithmetic and no chance, so that a workload is the same on every machine, and stream what
//! they make, so that nothing of a fleet of millions lives outside the engine. Each checks what it made against the
//! numbers that it must have; a wrong generator fails instead of flattering.

pub mod catalogue;
pub mod measure;
pub mod realistic;
pub mod report;
pub mod sizing;
pub mod workload;

mod aggregated;
mod factory;
