//! The contract of a capacity provider as a suite: what every provider must do, run against any address.
//!
//! [`run`] runs it and gives a [`Report`] with a [`Verdict`]. A behaviour is one row of a table in a file of its
//! family, with its clause, the usual mistake, and a small function that watches it; `behaviours` lists them all.
//!
//! * Families: `baseline` (the contract's first tests, by name), B101 to B1205 (93 that extend them), and our N-ids,
//!   which inform and decide no verdict.
//! * Lanes: a plain provider, one that breaks on demand, one that is killed and started again, one with thousands of
//!   machines. A [`Launch`] starts the last three; by address, each lane's behaviours run against what is there.
//!
//! Everything that a behaviour sends and receives is recorded, and shown when it fails.

mod authority;
mod behaviour;
mod check;
mod context;
mod family;
mod launch;
mod record;
mod report;
mod run;

pub use authority::{Authority, AuthorityError};
pub use behaviour::{Behaviour, Feature, Lane, Only, Profile, Series, UnknownProfile};
pub use context::Settings;
pub use family::all as behaviours;
pub use launch::{Launch, LaunchError, Program, Running, Spec};
pub use record::Exchange;
pub use report::{Finding, Outcome, Probes, Report, Verdict};
pub use run::{Error, Event, Options, Subject, run};
