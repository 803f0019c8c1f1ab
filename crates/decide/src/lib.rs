//! `bigfleet decide`: a saved fleet and its demand in, what the engine decides out.
//!
//! [`read`] takes a `bigfleet.decide/v1` file, strictly: whatever it does not know, it refuses by the path of the field.
//! [`decide`] runs the engine on the content once, and [`Report::to_json`] prints the answer as `bigfleet.decision/v1`.
//! The same content gives the same bytes, in whatever order it is written.
//!
//! Other formats share its rules: [`json`] is the strict reader, [`of_format`], [`record`], [`rollup`] and [`PolicyFile`]
//! are the parts that they have in common.

mod cap;
mod input;
pub mod json;
mod print;
mod report;
mod run;

pub use cap::{Allowance, ReclaimCap};
pub use input::{Input, PolicyFile, VictimRules, of_format, read, record, rollup};
pub use json::Refused;
pub use report::{
    Action, Answer, Candidate, Decided, MemberVerdict, Preemption, Report, SameVerdict, Shortfall, Verdict,
};
pub use run::decide;
