//! Leader election over a Lease of `coordination.k8s.io/v1`.
//!
//! * [`record`]: the rules as a plain value, without clock or network.
//! * [`Elector`]: runs them against an API server; [`Leadership`] is what it wins.
//!
//! A lease has expired when this process has seen no change of it for the lease's duration by its own clock; the
//! time stamps in it are for people. A leader gives up before anybody else may take over.

mod elector;
pub mod record;

use std::time::Duration;

pub use elector::{Elector, Leadership};

/// How an election runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the Lease is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are, different for every process.
    pub identity: String,
    /// How long a lease holds after its last renewal.
    pub duration: Duration,
    /// How long a leader tries to renew before it gives up; shorter than `duration`.
    pub renew_deadline: Duration,
    /// How long between two tries.
    pub retry: Duration,
}

impl Options {
    /// The usual timing: 15 s, 10 s, 2 s.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// An identity that no other process has: `prefix` (a pod's or host's name) and random digits.
#[must_use]
pub fn identity(prefix: &str) -> String {
    match bigfleet_net::ids::random_u64() {
        Ok(random) => format!("{prefix}_{random:016x}"),
        // Without random bytes the process id still tells this run from the one before it.
        Err(_) => format!("{prefix}_{}", std::process::id()),
    }
}
