//! The pod controller: one CapacityRequest for every pod that the fleet has to provide for.
//!
//! It counts all such pods, not only those that wait: what runs is demand as well, and without it a shard would give
//! machines back under running pods.
//!
//! * [`facts`] keeps of a pod what matters; [`requirements`], [`request`], [`co_location`] and [`penalties`] read it.
//! * [`core`] decides what a pod's CapacityRequest should be; [`table`] decides whose turn it is. Both are plain values.
//! * [`service`] watches, writes and tells people.

pub mod co_location;
pub mod core;
pub mod facts;
mod feed;
mod metrics;
mod notices;
pub mod penalties;
pub mod request;
pub mod requirements;
pub mod service;
pub mod table;
mod writes;
