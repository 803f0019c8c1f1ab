//! The wire: protobuf schema, generated code, and the gate where wire becomes domain.
//!
//! * [`v1alpha1`]: messages, clients and servers generated from `proto/`. Choices made for all of it: maps are
//!   [`BTreeMap`](std::collections::BTreeMap) (equal messages have equal bytes), `bytes` fields are
//!   [`bytes::Bytes`] (cheap to share), enum fields are open `i32` numbers as proto3 has them.
//! * [`FILE_DESCRIPTOR_SET`]: the schema itself, encoded.
//! * [`frames`]: an operator's frames with their roll-ups as bytes, for shards.
//! * [`gate`]: where wire becomes domain, with errors that name the field; and the way back.
//! * [`schema`]: the guard that keeps the schema readable for peers of yesterday.

pub mod frames;
pub mod gate;
pub mod schema;

/// Generated messages, enums, clients and servers of package `bigfleet.v1alpha1`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::large_futures,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the schema in proto/ carries the documentation"
)]
pub mod v1alpha1 {
    include!(concat!(env!("OUT_DIR"), "/bigfleet.v1alpha1.rs"));
}

/// The schema as an encoded `google.protobuf.FileDescriptorSet`, imports included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.binpb"));
