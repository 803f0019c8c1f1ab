//! AvailableCapacity: a hint of what the fleet could provide for one demanded profile.
#![allow(unreachable_pub, reason = "the schema derive writes a second, unreachable copy of every struct")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Requirement;
use super::schema;

/// What could come.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "bigfleet.lucy.sh",
    version = "v1alpha1",
    kind = "AvailableCapacity",
    plural = "availablecapacities",
    singular = "availablecapacity",
    status = "AvailableCapacityStatus",
    derive = "PartialEq",
    shortname = "avc",
    category = "fleet",
    doc = "What the fleet could provide for one profile that this cluster demands. A hint, never a reservation.",
    printcolumn(name = "Availability", type_ = "string", json_path = ".spec.availability"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".spec.availableCount"),
    printcolumn(name = "Cost", type_ = "string", json_path = ".spec.cost"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", priority = "1")
)]
#[serde(rename_all = "camelCase")]
pub struct AvailableCapacitySpec {
    /// The profile's conditions on node labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "atomic"))]
    pub requirements: Vec<Requirement>,
    /// What one machine offers, when all that match are alike; empty otherwise.
    #[schemars(schema_with = "schema::resources")]
    pub resources: BTreeMap<String, Quantity>,
    /// How many machines match: idle ones, and ones that could be made.
    #[schemars(range(min = 0))]
    pub available_count: i32,
    /// High: one is idle. Medium: one could be made. None: neither. Low is reserved.
    #[schemars(schema_with = "schema::availability")]
    pub availability: Availability,
    /// Dollars for one machine and hour, of the cheapest that matches.
    #[schemars(schema_with = "schema::quantity")]
    pub cost: Quantity,
}

/// Nothing in this version.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct AvailableCapacityStatus {}

/// How near capacity is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// Nothing matches.
    None,
    /// Reserved.
    Low,
    /// One could be made.
    Medium,
    /// One is idle.
    High,
    /// A word of a newer version. Read only, never written.
    #[serde(other)]
    Unknown,
}
