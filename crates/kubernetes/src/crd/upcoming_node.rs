//! UpcomingNode: a machine on its way into, in, or out of this cluster.
#![allow(unreachable_pub, reason = "the schema derive writes a second, unreachable copy of every struct")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What the machine will be as a node.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "bigfleet.lucy.sh",
    version = "v1alpha1",
    kind = "UpcomingNode",
    plural = "upcomingnodes",
    singular = "upcomingnode",
    status = "UpcomingNodeStatus",
    derive = "PartialEq",
    shortname = "upn",
    category = "fleet",
    selectable = ".status.phase",
    doc = "A machine that is being brought up for, or is bound to, this cluster. Written by the operator alone; it vanishes when the machine has left.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.machineID", priority = "1"),
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = r".spec.labels.node\.kubernetes\.io/instance-type",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct UpcomingNodeSpec {
    /// Labels that the node registers with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// What the machine offers pods (its allocatable), quantities by resource name.
    #[schemars(schema_with = "schema::resources")]
    pub resources: BTreeMap<String, Quantity>,
    /// Taints that the node registers with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,
    /// The fleet's id of the machine, as it is.
    #[serde(default, rename = "machineID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub machine_id: Option<String>,
}

/// How far the machine is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["phase"]))]
pub struct UpcomingNodeStatus {
    /// How far the machine is on its way into, or out of, the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_phase")]
    pub phase: Option<UpcomingNodePhase>,
    /// The node, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_reference")]
    pub node_ref: Option<ObjectReference>,
    /// The provider's own name of the host, for looking it up there.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// When the operator first heard of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub provisioning_start_time: Option<Time>,
    /// Why it failed, while it is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
}

/// How far a machine is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpcomingNodePhase {
    /// Being made.
    Provisioning,
    /// Made, not bound.
    Launched,
    /// Joining.
    Registered,
    /// Joined.
    Ready,
    /// Leaving.
    Draining,
    /// Emptied.
    Drained,
    /// Broken, or its drain ran out of time.
    Failed,
    /// A word of a newer version. Read only, never written.
    #[serde(other)]
    Unknown,
}
