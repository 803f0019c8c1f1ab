//! The cluster side of BigFleet: it states what the cluster wants and carries out what the shard decides.
//!
//! [`io`] is the boundary of the core, a plain value without I/O that any shell can drive.

pub mod core;
pub mod io;
