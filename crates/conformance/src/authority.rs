//! Certificates under TLS: one authority, a server leaf for a provider that the suite starts, and a client leaf for each
//! shard id that it speaks as.

use std::fmt;
use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bigfleet_net::tls::{self, Files, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair, SanType};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What was read is no authority, or it signs nothing.
    #[error("cannot make certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// What was written cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// A certificate authority that the provider under test trusts. For tests only: its key lies around.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    folder: PathBuf,
    issued: AtomicU64,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> AuthorityError {
    let path = path.to_owned();
    move |source| AuthorityError::Io { path, source }
}

impl Authority {
    /// A new authority; its leaves go into `folder`, which is made.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(folder: &Path) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = own.key().serialize_pem();
        Self::from_pem(own.pem(), &key, folder)
    }

    /// The authority of two PEM files; its leaves go into `folder`, which is made.
    ///
    /// # Errors
    /// When the files are no certificate and key.
    pub fn load(certificate: &Path, key: &Path, folder: &Path) -> Result<Self, AuthorityError> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(io(path));
        Self::from_pem(read(certificate)?, &read(key)?, folder)
    }

    fn from_pem(certificate: String, key: &str, folder: &Path) -> Result<Self, AuthorityError> {
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(key)?)?;
        Ok(Self { issuer, certificate, folder: folder.to_owned(), issued: AtomicU64::new(0) })
    }

    /// The files of a server on 127.0.0.1.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn server(&self) -> Result<Files, AuthorityError> {
        self.issue("bigfleet://provider/conformance")
    }

    /// TLS as a shard.
    pub(crate) fn shard(&self, id: &str) -> Result<Tls, AuthorityError> {
        Ok(Tls::load(self.issue(&format!("bigfleet://shard/{id}"))?)?)
    }

    fn issue(&self, uri: &str) -> Result<Files, AuthorityError> {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.issuer)?;
        let n = self.issued.fetch_add(1, Ordering::Relaxed);
        let dir = self.folder.join(format!("leaf-{n}"));
        std::fs::create_dir_all(&dir).map_err(io(&dir))?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            write_private(&path, text).map_err(io(&path))?;
            Ok::<_, AuthorityError>(path)
        };
        Ok(Files {
            cert: write("tls.crt", &leaf.pem())?,
            key: write("tls.key", &key.serialize_pem())?,
            ca: write("ca.crt", &self.certificate)?,
        })
    }
}

/// Keys are for their owner alone, those of a test too.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // A run before this one may have left the file with other permissions.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}
