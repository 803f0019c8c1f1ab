//! A back end that only pretends: what `--use-fake-backend` puts in the place of a real one, to try a provider out and to
//! certify it without a cloud.

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineId;

use crate::backend::{Backend, Created, Error, Operation};
use crate::blob::Blob;
use crate::instance::Instance;
use crate::kind::Kind;
use crate::table::{Outcome, Work};

/// Machines whose every call succeeds at once.
#[derive(Debug, Clone)]
pub struct Pretend {
    provider: String,
    machines: Vec<Instance>,
    can_delete: bool,
}

impl Pretend {
    /// Pretends to have `machines`. `provider` names it in hosts; `can_delete` says whether hosts can be given back.
    #[must_use]
    pub fn new(provider: impl Into<String>, machines: Vec<Instance>, can_delete: bool) -> Self {
        Self { provider: provider.into(), machines, can_delete }
    }

    /// The host that a machine gets.
    #[must_use]
    pub fn host(&self, id: &MachineId) -> Created {
        Created::host(self.provider.clone(), format!("host-{id}"))
    }
}

#[async_trait]
impl Backend for Pretend {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        Ok(self.machines.clone())
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        Ok(self.host(operation.id))
    }

    async fn configure(&self, _operation: Operation<'_>, _blob: &Blob) -> Result<(), Error> {
        Ok(())
    }

    async fn drain(&self, _operation: Operation<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn can_delete(&self, _machine: &pb::Machine) -> bool {
        self.can_delete
    }

    async fn delete(&self, _operation: Operation<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        match work.kind {
            Kind::Create => Ok(self.host(&work.machine_id).into()),
            Kind::Drain => Ok(Outcome::Drained),
            Kind::Delete => Ok(Outcome::Deleted),
            Kind::Configure => Err(Error::new("a Configure cannot be resumed")),
        }
    }

    /// Its hosts are as lasting as the kit's own memory of them.
    fn is_authoritative(&self) -> bool {
        false
    }
}
