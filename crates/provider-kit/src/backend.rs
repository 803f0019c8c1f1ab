//! What the author of a provider writes: the calls that really move hosts.

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineId;

use crate::blob::Blob;
use crate::instance::{Host, Instance};
use crate::table::{Outcome, Work};

/// Why work failed, in words for `last_error`. The kit removes secrets and cuts it to 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Error {
    reason: String,
    untouched: bool,
}

impl Error {
    /// An error that says `reason`.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), untouched: false }
    }

    /// An error of a Create that made nothing, such as a refused quota: the machine fails as after any other, and the
    /// next look at the back end that shows its slot without a host makes it Speculative again.
    #[must_use]
    pub fn untouched(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), untouched: true }
    }

    /// Whether nothing was made.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.untouched
    }
}

/// A host that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its name; must not be empty.
    pub host: Host,
    /// What the hardware has, where it is known better now than when the slot was described.
    pub resources: Option<std::collections::BTreeMap<String, String>>,
    /// What pods can use of it, likewise.
    pub allocatable: Option<std::collections::BTreeMap<String, String>>,
}

impl Created {
    /// A host as its slot described it.
    #[must_use]
    pub fn host(provider: impl Into<String>, reference: impl Into<String>) -> Self {
        let host = Host { provider: provider.into(), reference: reference.into() };
        Self { host, resources: None, allocatable: None }
    }
}

impl From<Created> for Outcome {
    fn from(created: Created) -> Self {
        let Created { host, resources, allocatable } = created;
        Self::Created { host, resources, allocatable }
    }
}

/// One machine under work. The operation id is the same after a restart: hand it to the cloud as its idempotency
/// key, so that nothing is made twice.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// The machine's id.
    pub id: &'a MachineId,
    /// The machine as it was when the work began, in its transitional state.
    pub machine: &'a pb::Machine,
    /// The operation's id.
    pub operation_id: &'a str,
    /// For a Drain: the time that pods get, in seconds.
    pub grace_seconds: i64,
}

/// The author's side of a provider. Everything else - fencing, repeats, states, time-outs, storage, the wire - is
/// the kit's.
///
/// A call returns when the work is done, however long that takes; the caller was answered long before. Its future is
/// dropped at the time-out or when the machine failed otherwise: clean up in `Drop` what must not go on.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// All machines and quota slots that this provider manages.
    async fn describe(&self) -> Result<Vec<Instance>, Error>;

    /// Makes the host of a slot.
    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error>;

    /// Makes a host join `operation.machine.cluster` by means of `blob`, a secret: never log or store it, and pass
    /// it on through standard input or a file that only its reader may read.
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error>;

    /// Makes a host leave its cluster and forget it.
    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error>;

    /// Whether the host of `machine` can be given back; where not, Delete is answered with `UNIMPLEMENTED`.
    fn can_delete(&self, machine: &pb::Machine) -> bool {
        let _ = machine;
        false
    }

    /// Gives a host back. Only called where [`Backend::can_delete`] allows it.
    async fn delete(&self, operation: Operation<'_>) -> Result<(), Error> {
        Err(Error::new(format!("{} cannot be deleted: its provider keeps its hosts", operation.id)))
    }

    /// Whether a host for the slot `machine` can be had now; where not, Create is answered with
    /// `RESOURCE_EXHAUSTED` and nothing changes. Must answer at once.
    ///
    /// # Errors
    /// Why not, in words for the caller.
    fn in_stock(&self, machine: &pb::Machine) -> Result<(), String> {
        let _ = machine;
        Ok(())
    }

    /// Waits until the cluster shows the machine's node as Ready. The machine is Configured only after that; the
    /// wait shares the time-out of the Configure before it.
    async fn confirm_node_ready(&self, operation: Operation<'_>) -> Result<(), Error> {
        let _ = operation;
        Ok(())
    }

    /// Finishes what a restart of the provider interrupted: a Create, Drain or Delete, never a Configure (its blob
    /// is gone). Must find out by the operation id how far the work came. By default the machine fails.
    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        Err(Error::new(format!("{} was interrupted by a restart of the provider", work.kind)))
    }

    /// Whether [`Backend::describe`] knows which machines have a host now: where it does, a machine whose host it no
    /// longer shows has failed. By default the same as [`Backend::is_authoritative`].
    fn knows_hosts(&self) -> bool {
        self.is_authoritative()
    }

    /// Whether a machine that [`Backend::describe`] leaves out is gone. True for everything that asks a real
    /// substrate.
    fn is_authoritative(&self) -> bool {
        true
    }
}
