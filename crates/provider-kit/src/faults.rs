//! Where a double may misbehave. Real providers use [`NoFaults`].

use std::sync::Arc;

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;
use tonic::Status;

use crate::kind::Kind;

/// One of the six calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Create.
    Create,
    /// Configure.
    Configure,
    /// Drain.
    Drain,
    /// Delete.
    Delete,
    /// Get.
    Get,
    /// List.
    List,
}

impl Method {
    /// All six.
    pub const ALL: [Self; 6] =
        [Self::Create, Self::Configure, Self::Drain, Self::Delete, Self::Get, Self::List];

    /// The name of the call.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Configure => "Configure",
            Self::Drain => "Drain",
            Self::Delete => "Delete",
            Self::Get => "Get",
            Self::List => "List",
        }
    }
}

impl From<Kind> for Method {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Create => Self::Create,
            Kind::Configure => Self::Configure,
            Kind::Drain => Self::Drain,
            Kind::Delete => Self::Delete,
        }
    }
}

/// Points at which a call may go wrong on its way in or out. The default of each does nothing.
#[async_trait]
pub trait Faults: Send + Sync + 'static {
    /// Before the request is looked at. May wait, for ever if it likes; an error is the answer, and the request has
    /// no effect. `machine` is empty for List.
    async fn before(&self, method: Method, machine: &str) -> Result<(), Status> {
        let _ = (method, machine);
        Ok(())
    }

    /// After the request had its effect. An error is sent in place of the answer.
    async fn after(&self, method: Method, machine: &str) -> Result<(), Status> {
        let _ = (method, machine);
        Ok(())
    }

    /// Whether answers are changed now; while they are not, lists are sent as they are stored.
    fn alters(&self) -> bool {
        true
    }

    /// Changes a machine on its way into any answer.
    fn machine(&self, machine: &mut pb::Machine) {
        let _ = machine;
    }

    /// The machines that List shows in place of the present ones, without cursors; `None` for the present ones.
    fn past(&self) -> Option<Arc<Vec<Arc<pb::Machine>>>> {
        None
    }

    /// Changes a List answer, its machines already changed one by one.
    fn list(&self, list: pb::MachineList) -> pb::MachineList {
        list
    }
}

/// No faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn alters(&self) -> bool {
        false
    }
}
