//! Everything between a BigFleet component and a socket: listeners, gRPC servers and channels, the admin HTTP
//! listener, and the small helpers that all of them share.
//!
//! * [`listen`]: `host:port` flags become bound listeners.
//! * [`grpc`]: a server with keep-alive whose shutdown always ends.
//! * [`channel`]: lazily connected client channels.
//! * [`tls`]: certificates for both, and who stands behind them.
//! * [`admin`]: `/metrics`, `/healthz`, `/readyz`, `/buildinfo`.
//! * [`backoff`], [`limits`], [`metrics`], [`ids`], [`clock`], [`log_limit`], [`core_dump`]: delays, message sizes,
//!   histogram families, random ids, the process's clock, lines of the log that peers cause, memory that is not dumped.
//!
//! Nothing here decides anything about machines or demand.

pub mod admin;
pub mod backoff;
pub mod channel;
pub mod clock;
pub mod core_dump;
pub mod grpc;
pub mod ids;
pub mod limits;
pub mod listen;
pub mod log_limit;
pub mod metrics;
pub mod tls;
