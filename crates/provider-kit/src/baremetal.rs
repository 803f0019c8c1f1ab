//! Machines that somebody owns: an inventory in YAML, and local programs that switch them on and make them join.
//!
//! | Call | Hook | Standard input |
//! |---|---|---|
//! | Create | `power_on` | |
//! | Configure | `boot`, then `ready` if there is one | the bootstrap blob, for `boot` only |
//! | Drain | `release` | |
//! | Delete | `power_off`; without one Delete is `UNIMPLEMENTED` | |
//!
//! A hook learns its machine through `BIGFLEET_OPERATION` (the hook's name), `BIGFLEET_OPERATION_ID` (the same when it
//! runs again), `BIGFLEET_MACHINE_ID`, `BIGFLEET_ADDRESS`, `BIGFLEET_INSTANCE_TYPE`, `BIGFLEET_ZONE`,
//! `BIGFLEET_CLUSTER`, and `release` also `BIGFLEET_GRACE_SECONDS`. It ends with status 0 when the work is done; any
//! other status fails the machine, with the hook's last line on standard error as the reason. At its time limit it is
//! killed with its whole process group. After a restart of the provider an interrupted hook runs again, all but
//! `boot`, whose blob is gone.

mod inventory;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineId;
use tokio::time::timeout;

use crate::backend::{Backend, Created, Error, Operation};
use crate::blob::Blob;
use crate::instance::Instance;
use crate::kind::Kind;
use crate::program::{Run, environment};
use crate::table::{Outcome, Work};
use inventory::Hook;

pub use inventory::{Broken, Inventory};

/// The provider's name in hosts, where the inventory does not give one.
pub const PROVIDER: &str = "baremetal";

/// The back end.
#[derive(Debug)]
pub struct BareMetal {
    path: PathBuf,
    label: Option<String>,
    known: Mutex<Arc<Inventory>>,
}

impl BareMetal {
    /// The machines of an inventory. It is read again at every look: machines come and go with it. `label` is what hosts
    /// call their provider, if the inventory is not to say.
    ///
    /// # Errors
    /// When the file cannot be read or breaks a rule; the text names file, line and field.
    pub fn open(path: impl Into<PathBuf>, label: Option<String>) -> Result<Self, Broken> {
        let path = path.into();
        let known = Mutex::new(Arc::new(Inventory::read(&path)?));
        Ok(Self { path, label, known })
    }

    fn known(&self) -> Arc<Inventory> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn label(&self, inventory: &Inventory) -> String {
        let named = || inventory.provider().map(str::to_owned);
        self.label.clone().or_else(named).unwrap_or_else(|| PROVIDER.to_owned())
    }

    fn created(&self, id: &MachineId) -> Created {
        let inventory = self.known();
        let address = inventory.address(id).filter(|address| !address.is_empty());
        Created::host(self.label(&inventory), address.unwrap_or(id.as_str()))
    }

    /// Runs a hook; one that is not there has nothing to do.
    async fn run(
        &self,
        name: &'static str,
        pick: impl Fn(&Inventory) -> Option<&Hook> + Send,
        operation: Operation<'_>,
        input: Option<&[u8]>,
    ) -> Result<(), Error> {
        let inventory = self.known();
        let Some(hook) = pick(&inventory) else { return Ok(()) };
        let mut environment = environment(name, &operation);
        environment
            .push(("BIGFLEET_ADDRESS", inventory.address(operation.id).unwrap_or_default().to_owned()));
        if name == "release" {
            environment.push(("BIGFLEET_GRACE_SECONDS", operation.grace_seconds.to_string()));
        }
        let what = "hook";
        let running = hook.program.run(Run { what, environment, input, output: 0 });
        let ended = match hook.timeout {
            None => running.await?,
            Some(limit) => timeout(limit, running).await.map_err(|_| {
                Error::new(format!("timeout: hook {name} took longer than {limit:?} and was killed"))
            })??,
        };
        ended.check(what, name)
    }
}

#[async_trait]
impl Backend for BareMetal {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || Inventory::read(&path)).await;
        let read = read.map_err(|e| Error::new(format!("cannot read the inventory: {e}")))?;
        let inventory = Arc::new(read.map_err(|e| Error::new(e.to_string()))?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&inventory);
        let label = self.label(&inventory);
        Ok(inventory.instances(&label).collect())
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        self.run("power_on", Inventory::power_on, operation, None).await?;
        Ok(self.created(operation.id))
    }

    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        self.run("boot", Inventory::boot, operation, Some(blob.expose())).await
    }

    async fn confirm_node_ready(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.run("ready", Inventory::ready, operation, None).await
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.run("release", Inventory::release, operation, None).await
    }

    fn can_delete(&self, _machine: &pb::Machine) -> bool {
        self.known().power_off().is_some()
    }

    async fn delete(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.run("power_off", Inventory::power_off, operation, None).await
    }

    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        let operation = work.operation();
        match work.kind {
            Kind::Create => Ok(self.create(operation).await?.into()),
            Kind::Drain => self.drain(operation).await.map(|()| Outcome::Drained),
            Kind::Delete => self.delete(operation).await.map(|()| Outcome::Deleted),
            Kind::Configure => Err(Error::new("a Configure cannot be resumed")),
        }
    }

    /// An inventory says which machines there are, but not which of them are switched on.
    fn knows_hosts(&self) -> bool {
        false
    }
}
