//! The messages between the kit and a program that is a back end. Fields are only ever added; a change that an old
//! program would misunderstand gets a new [`VERSION`].

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::CapacityType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::instance::{Host, Instance};

/// The version of these messages.
pub const VERSION: u32 = 1;

type Amounts = BTreeMap<String, String>;

/// A request, what describe is answered with, and what everything else is answered with.
#[derive(Debug, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct Protocol {
    /// On the program's standard input.
    request: Request,
    /// On its standard output, for the operation `describe`.
    described: Described,
    /// On its standard output, for every other operation, and for `describe` when it fails.
    answer: Answer,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Say which machines and slots there are. Asked at the start and then once a minute.
    Describe,
    /// Make the host of `machine`.
    Create,
    /// Make its host join `machine.cluster` by means of `blob_base64`.
    Configure,
    /// Return when the node of `machine` is Ready in its cluster. Only asked of programs that say `confirms_ready`.
    ConfirmReady,
    /// Make its host leave its cluster.
    Drain,
    /// Give its host back. Only asked of programs that say `can_delete`.
    Delete,
}

impl Task {
    /// The name in requests and in `BIGFLEET_OPERATION`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Create => "create",
            Self::Configure => "configure",
            Self::ConfirmReady => "confirm_ready",
            Self::Drain => "drain",
            Self::Delete => "delete",
        }
    }
}

/// One request.
#[derive(Clone, Serialize, JsonSchema)]
pub struct Request {
    /// The version of these messages: 1. A program that does not know it answers with an error.
    pub version: u32,
    /// What is to be done.
    pub operation: Task,
    /// The same when the same work is asked for again, also after a restart: hand it to the cloud as its idempotency
    /// key, so that nothing is made twice. Empty for describe.
    pub operation_id: String,
    /// A restart of the provider interrupted this work: find out by the operation id how far it came. Only sent to
    /// programs that say `resumes`, never for configure.
    pub resumed: bool,
    /// The machine, in its transitional state. Absent for describe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Drain: the time that pods get, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<i64>,
    /// Configure: what the host needs to join, in Base64. A secret: never log it, never pass it as an argument.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "secret")]
    #[schemars(with = "Option<String>")]
    pub blob_base64: Option<Zeroizing<String>>,
    /// Describe: how many slots a program that can pretend is asked for (`--seed-count`); 0 for no wish.
    pub seed_count: u64,
    /// Whether the program is to pretend only (`--use-fake-backend`).
    pub fake: bool,
}

/// Printed without its secret.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.operation)
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}

#[allow(clippy::ref_option, reason = "the signature is serde's")]
fn secret<S: serde::Serializer>(blob: &Option<Zeroizing<String>>, out: S) -> Result<S::Ok, S::Error> {
    blob.as_deref().map(String::as_str).serialize(out)
}

/// The host behind a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostName {
    /// The provider's name; by default that of `--provider`.
    #[serde(default)]
    pub provider: String,
    /// The provider's reference, such as an instance id.
    pub reference: String,
}

impl HostName {
    pub(super) fn named(self, label: &str) -> Host {
        let provider = if self.provider.is_empty() { label.to_owned() } else { self.provider };
        Host { provider, reference: self.reference }
    }
}

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Payment {
    /// Somebody owns it.
    BareMetal,
    /// Paid for in any case.
    Reserved,
    /// By the hour.
    OnDemand,
    /// By the hour, and may be taken away.
    Spot,
}

impl From<Payment> for CapacityType {
    fn from(payment: Payment) -> Self {
        match payment {
            Payment::BareMetal => Self::BareMetal,
            Payment::Reserved => Self::Reserved,
            Payment::OnDemand => Self::OnDemand,
            Payment::Spot => Self::Spot,
        }
    }
}

/// A machine in a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// Its host, once it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Its type.
    pub instance_type: String,
    /// Its zone; may be empty.
    pub zone: String,
    /// Its labels.
    pub labels: Amounts,
    /// The cluster that it joins, serves or leaves; empty for create and delete.
    pub cluster: String,
    /// The shard's notes; to be left alone.
    pub shard_metadata: Amounts,
}

impl Machine {
    pub(super) fn of(machine: &pb::Machine) -> Self {
        let host = machine.host.as_ref();
        Self {
            id: machine.id.clone(),
            host: host.map(|h| HostName { provider: h.provider.clone(), reference: h.r#ref.clone() }),
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
            labels: machine.labels.clone(),
            cluster: machine.cluster.clone(),
            shard_metadata: machine.shard_metadata.clone(),
        }
    }
}

/// The answer to describe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// All machines and slots. What is left out is gone: a slot disappears, a host fails.
    pub machines: Vec<DescribedMachine>,
    /// Whether hosts can be given back; otherwise Delete is answered with UNIMPLEMENTED.
    #[serde(default)]
    pub can_delete: bool,
    /// Whether the program answers `confirm_ready`; otherwise configure ends when the node is Ready.
    #[serde(default)]
    pub confirms_ready: bool,
    /// Whether work that a restart of the provider interrupted can be asked for again; otherwise its machines fail.
    #[serde(default)]
    pub resumes: bool,
}

/// One machine or slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedMachine {
    /// Its id, for the life of the slot.
    pub id: String,
    /// Its host, if one exists; without one it is a slot.
    #[serde(default)]
    pub host: Option<HostName>,
    /// Its type; never empty.
    pub instance_type: String,
    /// Its zone.
    #[serde(default)]
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: Payment,
    /// Dollars an hour, not negative.
    #[serde(default)]
    pub price_per_hour: f64,
    /// Chance of being taken away within an hour, 0 to 1; above 0 for spot.
    #[serde(default)]
    pub interruption_probability: f64,
    /// What the hardware has: resource name to Kubernetes quantity.
    #[serde(default)]
    pub resources: Amounts,
    /// What pods can use of it; by default all of `resources`.
    #[serde(default)]
    pub allocatable: Amounts,
    /// Its labels.
    #[serde(default)]
    pub labels: Amounts,
}

impl DescribedMachine {
    pub(super) fn instance(self, label: &str) -> Instance {
        Instance {
            id: self.id,
            host: self.host.map(|host| host.named(label)),
            instance_type: self.instance_type,
            zone: self.zone,
            capacity_type: self.capacity_type.into(),
            price_per_hour: self.price_per_hour,
            interruption_probability: self.interruption_probability,
            resources: self.resources,
            allocatable: self.allocatable,
            labels: self.labels,
        }
    }
}

/// The answer to everything but describe: `{}` when the work is done and there is nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Create: the host that was made; must be there.
    #[serde(default)]
    pub host: Option<HostName>,
    /// Create: what the hardware has, where it is known better now.
    #[serde(default)]
    pub resources: Option<Amounts>,
    /// Create: what pods can use of it, likewise.
    #[serde(default)]
    pub allocatable: Option<Amounts>,
    /// Why the work failed. Counts whatever the exit status.
    #[serde(default)]
    pub error: Option<String>,
    /// With `error`, for create: nothing was made, so that the slot may be tried again.
    #[serde(default)]
    pub untouched: bool,
}
