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

/// Connections of a server at one time, where it sets no limit of its own.
pub const CONNECTIONS: usize = 10_000;
/// Connections of a provider at one time.
pub const PROVIDER_CONNECTIONS: usize = 500;
/// Calls at one time on one connection; further ones wait at the caller.
pub const STREAMS: u32 = 64;
/// Header list of one call, in bytes.
pub const HEADER_BYTES: u32 = 16 * 1024;
/// Calls that a peer may open and reset before they are looked at.
pub const RESET_STREAMS: usize = 20;
/// Flow-control window of a channel, in bytes: what a server may send before the reader took any of it. One List has
/// more than a hundred MB, and a window is filled once per round trip.
pub const WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// How old a connection under TLS may become, give or take a fifth: no peer stays for ever on a certificate of old.
pub const CONNECTION_AGE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long calls may go on on a connection that is too old.
pub const CONNECTION_AGE_GRACE: Duration = Duration::from_secs(60);

/// How long a connection may be silent before a ping is sent.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long a ping may stay unanswered before the connection is given up.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one attempt to connect may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process that was told to stop waits for calls in flight.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
