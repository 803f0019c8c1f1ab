//! Mutual TLS: one certificate, one key and one bundle of authorities for every edge of a process.
//!
//! Version 1.3 only. A server asks every client for a certificate of the bundle, and a client checks its server against
//! the same bundle. Who the other side is stands in its certificate ([`identity`]); what it may do is for the service to
//! say, from the [`Peer`] of each request.
//!
//! The files are read again when they change, for new connections only. What cannot be read leaves the last good pair
//! in force. Two more files take rights away, from connections that are open too: [`Guards`].

mod guard;
pub mod identity;
mod material;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use crate::metrics::{Labels, register};

pub use guard::Guards;
pub(crate) use guard::Leaf;
pub use identity::{Identity, Peer, Role};
use material::{Material, Stamp};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the end of our own certificate is warned of.
const WARN_EVERY: Duration = Duration::from_secs(60 * 60);
/// The part of a certificate's life that is left when warnings begin: one in so many.
const LAST_PART: u32 = 5;

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
    /// Plaintext, where it is not allowed.
    #[error("--require-tls: there is no TLS; give --tls-cert, --tls-key and --tls-ca")]
    Required,
    /// A flag that means something with TLS only.
    #[error("--{flag}: there is no TLS that it could guard; give --tls-cert, --tls-key and --tls-ca too")]
    Plaintext {
        /// The flag.
        flag: &'static str,
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

    /// Puts `id` in the place of every `{id}` in the paths, so that one command line serves several replicas that have a
    /// certificate each.
    #[must_use]
    pub fn of_id(self, id: &str) -> Self {
        let named = |path: PathBuf| match path.to_str() {
            Some(text) if text.contains("{id}") => text.replace("{id}", id).into(),
            _ => path,
        };
        Self { cert: named(self.cert), key: named(self.key), ca: named(self.ca) }
    }
}

/// Certificate, key and authorities in force. Clones share them.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Files,
    guards: Guards,
    state: Arc<Mutex<State>>,
    not_after: Gauge,
    reloads: Family<Labels<1>, Counter>,
}

#[derive(Debug)]
struct State {
    material: Material,
    stamp: Stamp,
    looked: Instant,
    warned: Option<Instant>,
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
        Self::guarded(files, Guards::default())
    }

    /// What all flags about TLS say together: `None` for plaintext.
    ///
    /// # Errors
    /// As [`Tls::load`]; and when plaintext is not allowed (`require`), or a file is given that would guard nothing.
    pub fn from_flags(files: Option<Files>, guards: Guards, require: bool) -> Result<Option<Self>, Error> {
        let Some(files) = files else {
            return match (require, &guards.crl, &guards.denylist) {
                (true, ..) => Err(Error::Required),
                (_, Some(_), _) => Err(Error::Plaintext { flag: "tls-crl" }),
                (_, _, Some(_)) => Err(Error::Plaintext { flag: "identity-denylist" }),
                _ => Ok(None),
            };
        };
        Self::guarded(files, guards).map(Some)
    }

    /// As [`Tls::load`], with files that take rights away.
    ///
    /// # Errors
    /// As [`Tls::load`].
    pub fn guarded(files: Files, guards: Guards) -> Result<Self, Error> {
        let stamp = Stamp::of(&files, &guards);
        let material = Material::read(&files, &guards)?;
        let state = State { material, stamp, looked: Instant::now(), warned: None };
        let state = Arc::new(Mutex::new(state));
        let tls = Self { files, guards, state, not_after: Gauge::default(), reloads: Family::default() };
        tls.tell_end(&mut tls.lock());
        Ok(tls)
    }

    /// Registers `bigfleet_tls_cert_not_after_seconds` and `bigfleet_tls_reload`.
    pub fn register(&self, registry: &mut Registry) {
        let help = "When the certificate in force ends, in seconds since 1970";
        register(registry, "bigfleet_tls_cert_not_after_seconds", help, self.not_after.clone());
        let help = "Changed TLS files by result: ok, or failed (the old ones stay in force)";
        register(registry, "bigfleet_tls_reload", help, self.reloads.clone());
    }

    /// Looks whether the files changed, and warns of the end of the certificate. Whoever serves calls it now and then;
    /// each handshake does so by itself.
    pub fn look(&self) {
        drop(self.current());
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().material.server)
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current().material.client)
    }

    /// Who the other end of a new connection counts as.
    pub(crate) fn judge(&self, leaf: &Leaf) -> Peer {
        self.current().material.guarded.judge(leaf.peer.clone())
    }

    /// Why an open connection must end now; `None` as long as it may go on.
    pub(crate) fn ends(&self, leaf: &Leaf) -> Option<&'static str> {
        self.current().material.guarded.ends(leaf, SystemTime::now())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            let stamp = Stamp::of(&self.files, &self.guards);
            if stamp != state.stamp {
                // Also after a failure: the same files are not read in vain a second time.
                state.stamp = stamp;
                let result = match Material::read(&self.files, &self.guards) {
                    Ok(material) => {
                        state.material = material;
                        tracing::info!(cert = %self.files.cert.display(), "TLS files changed and were read again");
                        "ok"
                    }
                    Err(error) => {
                        tracing::warn!(%error, "TLS files changed; the old ones stay in force");
                        "failed"
                    }
                };
                self.reloads.get_or_create(&[("result", result)]).inc();
            }
            self.tell_end(&mut state);
        }
        state
    }

    /// Shows when our certificate ends, and warns in the last part of its life.
    fn tell_end(&self, state: &mut State) {
        let Some((begin, end)) = state.material.validity else { return };
        let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.not_after.set(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX));
        let life = end.duration_since(begin).unwrap_or_default();
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        if left < life / LAST_PART && state.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            state.warned = Some(Instant::now());
            let cert = self.files.cert.display();
            tracing::warn!(%cert, ?left, "the certificate ends soon and nobody has replaced it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_line_serves_replicas_with_a_certificate_each() {
        let path = |text: &str| Some(PathBuf::from(text));
        let files =
            Files::from_flags(path("/tls/{id}/tls.crt"), path("/tls/{id}/tls.key"), path("/tls/ca.crt"));
        let files = files.unwrap().unwrap().of_id("shard-3");
        assert_eq!(files.cert, PathBuf::from("/tls/shard-3/tls.crt"));
        assert_eq!(files.key, PathBuf::from("/tls/shard-3/tls.key"));
        assert_eq!(files.ca, PathBuf::from("/tls/ca.crt"));
    }
}
