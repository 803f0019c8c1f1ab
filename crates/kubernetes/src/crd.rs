//! The custom resources of `bigfleet.lucy.sh/v1alpha1`.
//!
//! | Kind | Scope | Who writes | Means |
//! |---|---|---|---|
//! | [`CapacityRequest`] | namespace | users and the pod controller; the operator its status | one pod's demand |
//! | [`UpcomingNode`] | cluster | the operator | a machine on its way into, in, or out of this cluster |
//! | [`AvailableCapacity`] | cluster | the operator | a hint of what the fleet could provide |
//!
//! The types read generously (unknown fields and unknown words of newer versions do not fail) and their schema admits
//! strictly. [`manifest`] makes the CustomResourceDefinitions, [`install`] brings them into a cluster, [`names`] and
//! [`convert`] lead to and from the operator core.

#![allow(
    clippy::duplicated_attributes,
    reason = "the derive takes one `printcolumn` with equal keys for each column"
)]

mod available_capacity;
mod capacity_request;
pub mod convert;
pub mod install;
pub mod manifest;
pub mod names;
mod schema;
mod upcoming_node;

pub use available_capacity::{
    Availability, AvailableCapacity, AvailableCapacitySpec, AvailableCapacityStatus,
};
pub use capacity_request::{
    CapacityRequest, CapacityRequestPhase, CapacityRequestSpec, CapacityRequestStatus, CoLocation,
    Requirement, TopologySpread,
};
pub use upcoming_node::{UpcomingNode, UpcomingNodePhase, UpcomingNodeSpec, UpcomingNodeStatus};

/// The API group of all three kinds.
pub const GROUP: &str = "bigfleet.lucy.sh";
/// The only version so far.
pub const VERSION: &str = "v1alpha1";
/// Field manager of the operator: status and read-backs.
pub const OPERATOR: &str = "bigfleet-operator";
/// Field manager of the pod controller: the spec of CapacityRequests.
pub const POD_CONTROLLER: &str = "bigfleet-unschedulable-pod-controller";
