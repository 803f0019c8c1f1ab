//! CapacityRequest: one pod's demand.
#![allow(unreachable_pub, reason = "the schema derive writes a second, unreachable copy of every struct")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What one pod asks of the fleet.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "bigfleet.lucy.sh",
    version = "v1alpha1",
    kind = "CapacityRequest",
    plural = "capacityrequests",
    singular = "capacityrequest",
    namespaced,
    status = "CapacityRequestStatus",
    derive = "PartialEq",
    shortname = "cr",
    shortname = "crs",
    category = "fleet",
    selectable = ".status.phase",
    doc = "One pod's demand on the fleet. It counts for as long as the object exists; deleting it withdraws the demand.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Domain",
        type_ = "string",
        json_path = ".spec.coLocation.topologyKey",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityRequestSpec {
    /// Conditions on node labels; all must hold. None means any machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "atomic"))]
    pub requirements: Vec<Requirement>,
    /// What the pod requests, quantities by resource name, indivisible. Fractions are quoted: "0.5" or 500m.
    #[schemars(schema_with = "schema::resources")]
    pub resources: BTreeMap<String, Quantity>,
    /// The value of the pod's PriorityClass; higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// How pods of this shape are spread over domains. Only DoNotSchedule has an effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub topology_spread: Vec<TopologySpread>,
    /// Which pods must share one domain with this one. Absent means that it stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_location: Option<CoLocation>,
    /// Dollars that one interruption of the workload costs. Absent means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub interruption_penalty: Option<Quantity>,
    /// Dollars that giving up this very machine costs, such as for warm caches. Absent means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub reclamation_penalty: Option<Quantity>,
}

/// A condition on one node label.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0")
        .message("In and NotIn need at least one value; Exists and DoesNotExist take none")
)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label compares.
    #[schemars(schema_with = "schema::operator")]
    pub operator: String,
    /// For In and NotIn: the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::values")]
    pub values: Vec<String>,
}

/// How pods are spread over the domains of one label.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpread {
    /// The label whose values are the domains.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// By how many pods two domains may differ.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// What to do when that cannot be kept.
    #[schemars(schema_with = "schema::when_unsatisfiable")]
    pub when_unsatisfiable: String,
}

/// Pods that must run within one domain.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CoLocation {
    /// Who belongs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// The label whose value they share.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
}

/// Whether the fleet has heard of the demand.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["phase"]))]
pub struct CapacityRequestStatus {
    /// Pending until the demand is in the shard's table, then Acknowledged for good. It does not say that a machine is
    /// on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::request_phase")]
    pub phase: Option<CapacityRequestPhase>,
    /// When it was acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub acknowledged_at: Option<Time>,
}

/// Whether the fleet has heard of the demand.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CapacityRequestPhase {
    /// Not yet.
    #[default]
    Pending,
    /// The demand is in the shard's table.
    Acknowledged,
    /// A word of a newer version. Read only, never written.
    #[serde(other)]
    Unknown,
}
