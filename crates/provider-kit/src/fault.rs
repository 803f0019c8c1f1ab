//! A provider whose work goes wrong when a caller asks for it by the wire alone: for the suites that certify how a kit
//! bears failures, and for nothing else.
//!
//! | What the caller does | What happens |
//! |---|---|
//! | Create of a slot labelled `conformance.fault/create=error` | the Create fails |
//! | Configure for cluster `fault-error` | the Configure fails at once |
//! | Configure for cluster `fault-timeout` | the Configure never ends |
//! | Configure for cluster `fault-slow-ok` | the Configure ends well, after its time-out |
//! | Drain of a machine in cluster `fault-drain-error` | the Drain fails |
//! | Configure for cluster `fault-readiness-block` | the host joins, but its node never becomes Ready |
//!
//! Everything else succeeds at once.

use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;

use crate::backend::{Backend, Created, Error, Operation};
use crate::blob::Blob;
use crate::instance::Instance;
use crate::pretend::Pretend;
use crate::seeds;
use crate::table::{Outcome, Work};

/// The label of slots whose Create fails, and its value.
pub const CREATE_FAULT: (&str, &str) = ("conformance.fault/create", "error");
/// Slots with that label.
const FAULTY_SLOTS: u64 = 8;
/// How long after the time-out a late success comes.
const LATE: Duration = Duration::from_secs(1);

/// The back end.
#[derive(Debug)]
pub struct Fault {
    sound: Pretend,
    late: Duration,
}

impl Fault {
    /// `count` sound slots `slot-N` beside eight `faulty-N`. `provider` names it in hosts, and `timeout` is the time-out
    /// that its kit runs with: what comes late must come later.
    #[must_use]
    pub fn new(provider: impl Into<String>, count: u64, timeout: Duration) -> Self {
        let mut slots = seeds::quarters("slot", count);
        slots.extend(seeds::quarters("faulty", FAULTY_SLOTS).into_iter().map(|mut slot| {
            slot.labels.insert(CREATE_FAULT.0.to_owned(), CREATE_FAULT.1.to_owned());
            slot
        }));
        Self { sound: Pretend::new(provider, slots, true), late: timeout.saturating_add(LATE) }
    }
}

fn on_purpose(operation: &Operation<'_>) -> Error {
    Error::new(format!("{} fails on purpose", operation.id))
}

#[async_trait]
impl Backend for Fault {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        self.sound.describe().await
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        let fault = operation.machine.labels.get(CREATE_FAULT.0).is_some_and(|value| value == CREATE_FAULT.1);
        if fault { Err(on_purpose(&operation)) } else { self.sound.create(operation).await }
    }

    async fn configure(&self, operation: Operation<'_>, _blob: &Blob) -> Result<(), Error> {
        match operation.machine.cluster.as_str() {
            "fault-error" => Err(on_purpose(&operation)),
            "fault-timeout" => pending().await,
            "fault-slow-ok" => {
                tokio::time::sleep(self.late).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn confirm_node_ready(&self, operation: Operation<'_>) -> Result<(), Error> {
        if operation.machine.cluster == "fault-readiness-block" { pending().await } else { Ok(()) }
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        if operation.machine.cluster == "fault-drain-error" { Err(on_purpose(&operation)) } else { Ok(()) }
    }

    fn can_delete(&self, machine: &pb::Machine) -> bool {
        self.sound.can_delete(machine)
    }

    async fn delete(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.sound.delete(operation).await
    }

    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        self.sound.resume(work).await
    }

    fn is_authoritative(&self) -> bool {
        self.sound.is_authoritative()
    }
}
