//! Message sizes and connection timings that both ends of an edge agree on.
//!
//! gRPC's own receive limit is 4 MiB; a larger message would end the stream it came on. Every client and every
//! service therefore sets `max_decoding_message_size` (and its encoding twin) to one of these constants.

use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Any call without a limit of its own, both sides, in bytes.
pub const CALL_BYTES: usize = 16 * MIB;
/// A provider's `List` answer at the shard, in bytes (default of `--max-list-bytes`).
pub const LIST_BYTES: usize = 1024 * MIB;
/// A Session frame received by the shard, in bytes (default of `--max-rollup-bytes`).
pub const ROLLUP_BYTES: usize = 64 * MIB;
/// The highest value that `--max-rollup-bytes` takes, in bytes.
pub const ROLLUP_BYTES_MAX: usize = 256 * MIB;
/// A Session frame received by the operator, in bytes.
pub const OPERATOR_FRAME_BYTES: usize = 16 * MIB;
/// A request received by a provider server, in bytes.
pub const PROVIDER_REQUEST_BYTES: usize = 8 * MIB;
/// Needs in one roll-up.
pub const ROLLUP_NEEDS: usize = 250_000;

/// How long a connection may be silent before a ping is sent.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long a ping may stay unanswered before the connection is given up.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one attempt to connect may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process that was told to stop waits for calls in flight.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
