//! The frames of an operator as a shard reads them: a roll-up stays the bytes that came.
//!
//! On the wire nothing differs from `OperatorMessage`: a message and bytes are written alike. Who only reads what changed need not
//! decode all of it, and the gate judges the rest.

use bytes::Bytes;

use crate::v1alpha1::{BootstrapBlobResponse, Hello, NodeObservation, ReclaimAck};

/// `OperatorMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OperatorFrame {
    /// What it says; `None` for what is not known here.
    #[prost(oneof = "Payload", tags = "1, 2, 3, 4, 100")]
    pub payload: Option<Payload>,
}

/// `OperatorMessage.payload`.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Payload {
    /// The first frame of a session.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// A `ClusterCapacityNeeds`.
    #[prost(bytes = "bytes", tag = "2")]
    Rollup(Bytes),
    /// A bootstrap blob, or why there is none.
    #[prost(message, tag = "3")]
    BootstrapResponse(BootstrapBlobResponse),
    /// A drain has begun.
    #[prost(message, tag = "4")]
    ReclaimAck(ReclaimAck),
    /// What the cluster sees of a node.
    #[prost(message, tag = "100")]
    NodeObservation(NodeObservation),
}

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/bigfleet.v1alpha1.Shard.rs"));
}

pub use generated::shard_server;
