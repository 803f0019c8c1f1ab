//! The shard: it owns machines and serves clusters.
//!
//! [`control`] decides: a plain value that takes [`io::Input`] and time and gives [`io::Output`]. Everything else is
//! the thin shell around it.

pub mod control;
pub mod io;
pub mod metrics;
