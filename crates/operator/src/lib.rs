//! The cluster side of BigFleet: it states what the cluster wants and carries out what the shard decides.
//!
//! * [`aggregate`] sums up demand; [`core`] decides; [`io`] is its boundary: a plain value without I/O that any shell can drive.
//! * [`session`] keeps the stream to the shard, [`template`] makes bootstrap blobs.
//! * [`service`] drives a core over a cluster; [`memory`] is a cluster that lives in this process.

pub mod aggregate;
pub mod core;
pub mod io;
pub mod memory;
pub mod service;
pub mod session;
pub mod template;
