//! A cluster in memory: the first shell of the operator core, for the demo and for tests.
//!
//! * [`Store`]: the tables and their controllers, a plain value that is stepped with the time.
//! * [`MemoryCluster`]: the store behind a clock, as a [`crate::service::ClusterShell`].
//! * [`blob`]: the bootstrap blob that its nodes join with.
//!
//! It keeps what decides anything: deployments that recreate pods, disruption budgets, nodes, one CapacityRequest a
//! pod, a bin-packing binder, eviction. Like the real thing it is asynchronous, slow and rude: watch events come late
//! and out of order across objects, writes can conflict, and a broken watch swallows events until it is listed anew.
//! No container runs and no kernel boots.

mod bind;
pub mod blob;
mod control;
mod object;
mod shell;
mod store;
mod view;
mod watch;
mod write;

pub use object::{Budget, Config, Deployment, Disruption, DisruptionReason, Disruptions, EventNote, PodSpec};
pub use shell::{JoinError, MemoryCluster};
pub use store::{ApplyError, Store};
pub use view::{NodeView, PodPhase, PodView, View};
