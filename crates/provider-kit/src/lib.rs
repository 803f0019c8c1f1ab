//! The provider author's side of BigFleet: the [`Backend`] trait, the server around it, stores, and the fakecloud
//! provider.
//!
//! An author implements [`Backend`], which really moves hosts. [`Provider::start`] serves it: the kit keeps the
//! states, fences superseded shards, answers repeats alike, makes every step durable before it is acknowledged, runs
//! the work in the background under time-outs, and takes it up again after a restart.
//!
//! * [`table`]: the rules, as a plain value.
//! * [`store`]: [`MemStore`] and the durable [`FileStore`].
//! * [`server`]: journal, background work, the wire.
//! * [`fakecloud`]: a cloud that is not there, with knobs for every fault worth a test.
//! * [`baremetal`]: machines of an inventory, moved by local hooks.
//! * [`exec`]: any program as a back end.
//! * [`pretend`]: the back end of `--use-fake-backend`.
//! * [`standard`]: flags and life of a provider that is a program of its own.
//! * [`fault`]: a provider whose work fails when the wire asks for it.
//!
//! A double for a test:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use bigfleet_provider_kit::fakecloud::{self, FakeCloud};
//! let options = fakecloud::Options { instant: true, ..fakecloud::Options::default() };
//! let listener = bigfleet_net::listen::bind("127.0.0.1:0").await?;
//! let cloud = FakeCloud::new(options)?.start(listener).await?;
//! cloud.control().fail_machine("idle-0", "disk died").await?;
//! cloud.shutdown().await?;
//! # Ok(()) }
//! ```

pub mod backend;
pub mod baremetal;
pub mod blob;
pub mod defects;
pub mod exec;
pub mod fakecloud;
pub mod fault;
pub mod faults;
pub mod instance;
pub mod kind;
pub mod pretend;
pub mod program;
pub mod scrub;
pub mod seeds;
pub mod server;
pub mod shape;
pub mod standard;
pub mod store;
pub mod table;

pub use async_trait::async_trait;
pub use bigfleet_proto::v1alpha1 as pb;
pub use bigfleet_types::{CapacityType, MachineId};

pub use backend::{Backend, Created, Operation};
pub use blob::Blob;
pub use faults::{Faults, Method, NoFaults};
pub use instance::{Host, Instance, Invalid};
pub use kind::Kind;
pub use server::{Handle, Options, Provider, StartError, Timeouts};
pub use store::{FileStore, MemStore, Store};
pub use table::{Binding, Outcome, Work};
