//! `bigfleet decide`: a saved fleet and its demand in, what the engine decides out.
//!
//! [`read`] takes a `bigfleet.decide/v1` file, strictly: whatever it does not know, it refuses by the path of the field.
//! [`decide`] runs the engine on the content once, and [`Report::to_json`] prints the answer as `bigfleet.decision/v1`.
//! The same content gives the same bytes, in whatever order it is written. [`explain`] says why, for people.
//! [`Input::write`] is the way back: the file of an input, and beside it what the format cannot say.
//!
//! Other formats share its rules: [`json`] is the strict reader, [`of_format`], [`record`], [`rollup`] and [`PolicyFile`]
//! are the parts that they have in common.

mod cap;
mod explain;
mod input;
pub mod json;
mod print;
mod report;
mod run;
mod write;

pub use cap::{Allowance, ReclaimCap};
pub use explain::{NotThere, explain};
pub use input::{Input, PolicyFile, of_format, read, record, rollup};
pub use json::Refused;
pub use report::{Action, Report};
pub use run::decide;
pub use write::{Beside, EligibilityBeside, MachineBeside};
