//! BigFleet on a real Kubernetes: the custom resources, the shell around the operator core, the pod controller.

pub mod client;
pub mod connect;
pub mod crd;
pub mod lease;
pub mod operator;
pub mod pods;
pub mod shell;
