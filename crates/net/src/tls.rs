//! Mutual TLS: one certificate, one key and one bundle of authorities for every edge of a process.
//!
//! Version 1.3 only. A server asks every client for a certificate of the bundle, and a client checks its server against
//! the same bundle. Who the other side is stands in its certificate ([`identity`]); what it may do is for the service to
//! say, from the [`Peer`] of each request.
//!
//! The files are read again when they change, for new connections only. What cannot be read leaves the last good pair
//! in force.

pub mod identity;
mod material;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::{ClientConfig, ServerConfig};

pub use identity::{Identity, Peer, Role};
use material::{Material, Stamp};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only a part of the three flags.
    #[error(
        "{missing} missing beside {given}: TLS needs --tls-cert, --tls-key and --tls-ca, plaintext none of them"
    )]
    Partial {
        /// The flags that are set.
        given: String,
        /// The flags that are not.
        missing: String,
    },
    /// A file cannot be read as what it should be.
    #[error("--{flag} {path}: {problem}")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The files do not fit together.
    #[error("--tls-cert {cert} and --tls-key {key} cannot be used: {problem}")]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The three files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate with its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that are trusted.
    pub ca: PathBuf,
}

impl Files {
    /// What the three flags say together: `None` when none is set.
    ///
    /// # Errors
    /// When only some are set: a typing error must not turn TLS off.
    pub fn from_flags(
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> Result<Option<Self>, Error> {
        let flags =
            [("--tls-cert", cert.is_some()), ("--tls-key", key.is_some()), ("--tls-ca", ca.is_some())];
        let named = |set| {
            let names = flags.iter().filter(|(_, is_set)| *is_set == set).map(|(name, _)| *name);
            names.collect::<Vec<_>>().join(", ")
        };
        match (cert, key, ca) {
            (None, None, None) => Ok(None),
            (Some(cert), Some(key), Some(ca)) => Ok(Some(Self { cert, key, ca })),
            _ => Err(Error::Partial { given: named(true), missing: named(false) }),
        }
    }
}

/// Certificate, key and authorities in force. Clones share them.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Files,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    material: Material,
    stamp: Stamp,
    looked: Instant,
}

/// Two are the same when they share what is in force.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Tls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// When one cannot be read, holds nothing of its kind, or the key is another certificate's.
    pub fn load(files: Files) -> Result<Self, Error> {
        let stamp = Stamp::of(&files);
        let state = State { material: Material::read(&files)?, stamp, looked: Instant::now() };
        Ok(Self { files, state: Arc::new(Mutex::new(state)) })
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().material.server)
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current().material.client)
    }

    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            let stamp = Stamp::of(&self.files);
            if stamp != state.stamp {
                // Also after a failure: the same files are not read in vain a second time.
                state.stamp = stamp;
                match Material::read(&self.files) {
                    Ok(material) => {
                        state.material = material;
                        tracing::info!(cert = %self.files.cert.display(), "TLS files changed and were read again");
                    }
                    Err(error) => tracing::warn!(%error, "TLS files changed; the old ones stay in force"),
                }
            }
        }
        state
    }
}
