//! Who may call what. Decided by the server's own settings: without TLS everybody may call everything, with TLS nobody
//! may without a certificate that says so.

use std::sync::{Mutex, PoisonError};

use bigfleet_net::grpc::Connection;
use bigfleet_net::log_limit::LogLimit;
use bigfleet_net::tls::identity::Unknown;
use bigfleet_net::tls::{Peer, Role};
use tonic::{Extensions, Status};

use super::metrics::Rejected;
use crate::faults::Method;

/// The rule of one server.
#[derive(Debug)]
pub(super) struct Policy {
    secure: bool,
    rejected: Rejected,
    /// How often refusals of each method are talked about.
    said: Mutex<[LogLimit; Method::ALL.len()]>,
}

impl Policy {
    /// The rule of a server with TLS, or of one without.
    pub(super) fn new(secure: bool, rejected: Rejected) -> Self {
        Self { secure, rejected, said: Mutex::default() }
    }

    /// Whether the caller may move machines in the name of `shard`. No other role may, not even an administrator's, and
    /// under TLS there is no caller without a name.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` with what is required and what was shown.
    pub(super) fn moves(&self, extensions: &Extensions, method: Method, shard: &str) -> Result<(), Status> {
        self.check(extensions, method, |peer| {
            let required = if shard.is_empty() {
                "a shard id in the request, which must not be empty under TLS".to_owned()
            } else {
                format!("a certificate of shard/{shard}, the shard that the request names")
            };
            let theirs = |peer: &Peer| peer.0.as_ref().is_ok_and(|i| i.role == Role::Shard && i.id == shard);
            if !shard.is_empty() && theirs(peer) { Ok(()) } else { Err(required) }
        })
    }

    /// Whether the caller may look.
    ///
    /// # Errors
    /// As [`Policy::moves`].
    pub(super) fn looks(&self, extensions: &Extensions, method: Method) -> Result<(), Status> {
        self.check(extensions, method, |peer| {
            let may = |role| matches!(role, Role::Shard | Role::Admin | Role::Readonly);
            let allowed = peer.0.as_ref().is_ok_and(|identity| may(identity.role));
            if allowed { Ok(()) } else { Err("a certificate of a shard, admin or readonly".to_owned()) }
        })
    }

    fn check(
        &self,
        extensions: &Extensions,
        method: Method,
        rule: impl FnOnce(&Peer) -> Result<(), String>,
    ) -> Result<(), Status> {
        if !self.secure {
            return Ok(());
        }
        let connection = extensions.get::<Connection>();
        // A connection that nobody asked for its certificate cannot be one of this server's: it is refused like one
        // that has none.
        let nobody = Peer::of(None);
        let peer = connection.and_then(|connection| connection.peer.as_ref()).unwrap_or(&nobody);
        rule(peer).map_err(|required| {
            let reason = peer.0.as_ref().map_or_else(Unknown::label, |_| "not_allowed");
            self.rejected.count(method, reason);
            let unsaid = {
                let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                let at = Method::ALL.iter().position(|m| *m == method).unwrap_or(0);
                said[at].pass()
            };
            if let Some(unsaid) = unsaid {
                let remote = connection.and_then(|connection| connection.remote);
                tracing::warn!(method = method.name(), %peer, ?remote, required, unsaid, "call refused");
            }
            Status::permission_denied(format!("needs {required}; the caller shows: {peer}"))
        })
    }
}
