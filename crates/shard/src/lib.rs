//! The shard: it owns machines and serves clusters.
//!
//! [`control`] decides: a plain value that takes [`io::Input`] and time and gives [`io::Output`]. Everything else is
//! the thin shell around it.

pub mod audit;
pub mod control;
pub mod decision_audit;
pub mod epoch;
pub mod inspect;
pub mod io;
pub mod metrics;
pub mod options;
pub mod outbox;
pub mod provider_client;
mod secret;
pub mod service;
mod session;
pub mod step;
