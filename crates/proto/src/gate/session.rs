//! Session frames that are not roll-ups.

use std::fmt;
use std::time::Duration;

use bigfleet_types::ClusterId;
use bytes::Bytes;

use super::{Error, Problem, shown};
use crate::v1alpha1::{BootstrapBlobResponse, Hello};

/// The one version of the protocol.
pub const PROTOCOL_VERSION: &str = "v1alpha1";
/// Bytes of a bootstrap blob.
pub const MAX_BLOB_BYTES: usize = 256 << 10;
/// How long a blob whose operator does not say may be used.
pub const UNKNOWN_TTL: Duration = Duration::from_secs(600);
/// Bytes of an operator's error that are kept.
const MAX_REASON_BYTES: usize = 4 << 10;

/// The cluster that says hello.
///
/// # Errors
/// `cluster_id` is no id, or `protocol_version` is one that we do not speak. A peer that states none is taken to speak
/// the only one there is.
pub fn hello(hello: &Hello) -> Result<ClusterId, Error> {
    let cluster =
        ClusterId::parse(&hello.cluster_id).map_err(|error| Error::at("cluster_id", Problem::Id(error)))?;
    match hello.protocol_version.as_str() {
        "" | PROTOCOL_VERSION => Ok(cluster),
        other => Err(Error::at("protocol_version", Problem::UnknownVersion(shown(other)))),
    }
}

/// What lets a machine join its cluster. A credential: neither printed nor kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob {
    /// The data, 1 byte to 256 KiB.
    pub user_data: Bytes,
    /// How long it may be used, from its arrival.
    pub ttl: Duration,
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} secret bytes, ttl {:?})", self.user_data.len(), self.ttl)
    }
}

/// Why there is no blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBlob {
    /// The operator could not make one and says why.
    #[error("the operator answered: {0}")]
    Operator(String),
    /// What the operator sent is no blob.
    #[error(transparent)]
    Invalid(#[from] Error),
}

/// Reads the answer to a bootstrap request. Which request it answers is for the caller to look up by `request_id`, among
/// those of the same session.
///
/// # Errors
/// [`NoBlob`]; an error of the operator wins over whatever else it sent.
pub fn blob(response: BootstrapBlobResponse) -> Result<Blob, NoBlob> {
    if !response.error.is_empty() {
        let end = response.error.floor_char_boundary(MAX_REASON_BYTES);
        return Err(NoBlob::Operator(response.error[..end].to_owned()));
    }
    let found = response.user_data.len();
    if found == 0 {
        return Err(Error::at("user_data", Problem::Empty).into());
    }
    if found > MAX_BLOB_BYTES {
        return Err(Error::at("user_data", Problem::TooLong { found, limit: MAX_BLOB_BYTES }).into());
    }
    let ttl = match u64::try_from(response.ttl_seconds) {
        Ok(0) => UNKNOWN_TTL,
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let problem = Problem::TooSmall { found: response.ttl_seconds, least: 0 };
            return Err(Error::at("ttl_seconds", problem).into());
        }
    };
    Ok(Blob { user_data: response.user_data, ttl })
}
