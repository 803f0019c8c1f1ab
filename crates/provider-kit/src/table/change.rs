//! What stores keep: one message per change. Fields are only ever added.

use bytes::Bytes;

/// One step in the life of a provider.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Change {
    /// A machine's new version.
    #[prost(message, optional, tag = "1")]
    pub machine: Option<StoredMachine>,
    /// Id of a machine that is gone; empty for none.
    #[prost(string, tag = "2")]
    pub removed: String,
    /// A fencing mark that moved.
    #[prost(message, optional, tag = "3")]
    pub mark: Option<Mark>,
    /// The revision after the change; 0 when it shows in no list.
    #[prost(uint64, tag = "4")]
    pub revision: u64,
    /// Operation numbers used up.
    #[prost(uint64, tag = "5")]
    pub operations: u64,
    /// Removals up to this revision are forgotten.
    #[prost(uint64, tag = "6")]
    pub horizon: u64,
    /// What tells the cursors of this table from those of others; 0 for no news.
    #[prost(uint64, tag = "7")]
    pub identity: u64,
}

/// A machine and what the kit remembers of its operations.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredMachine {
    /// What callers see: the encoding of a `Machine` of the wire.
    #[prost(bytes = "bytes", tag = "1")]
    pub machine: Bytes,
    /// The revision at which it last changed.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// The operations whose repeat gets the same answer.
    #[prost(message, repeated, tag = "3")]
    pub operations: Vec<StoredOperation>,
    /// The grace of the latest Drain, in seconds.
    #[prost(int64, tag = "4")]
    pub grace_seconds: i64,
    /// Whether it failed in a Create that made nothing.
    #[prost(bool, tag = "5")]
    pub untouched: bool,
}

/// An operation id.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredOperation {
    /// The number of a [`crate::Kind`].
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The id.
    #[prost(string, tag = "2")]
    pub id: String,
}

/// The highest token of a shard that was accepted for a machine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mark {
    /// The shard.
    #[prost(string, tag = "1")]
    pub shard_id: String,
    /// The machine, known or not.
    #[prost(string, tag = "2")]
    pub machine_id: String,
    /// The shard's epoch.
    #[prost(int64, tag = "3")]
    pub epoch: i64,
    /// The sequence number within it.
    #[prost(int64, tag = "4")]
    pub sequence: i64,
}
