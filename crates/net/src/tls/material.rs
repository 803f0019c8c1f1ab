//! What the files hold, as the two configurations that a process needs.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::guard::{Guarded, Guards, validity};
use super::{Error, Files};

/// What gRPC speaks; peers of the public implementation refuse a connection without it.
const ALPN: &[u8] = b"h2";

#[derive(Debug)]
pub(super) struct Material {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
    pub(super) guarded: Guarded,
    /// When our own certificate begins and ends.
    pub(super) validity: Option<(SystemTime, SystemTime)>,
}

impl Material {
    pub(super) fn read(files: &Files, guards: &Guards) -> Result<Self, Error> {
        let guarded = Guarded::read(guards)?;
        let chain = certificates("tls-cert", &files.cert)?;
        let key = private_key(&files.key)?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("tls-ca", &files.ca)? {
            roots.add(authority).map_err(|error| problem("tls-ca", &files.ca, &error))?;
        }
        let roots = Arc::new(roots);
        let crypto: Arc<CryptoProvider> = ring::default_provider().into();
        let pair = |error: &dyn std::fmt::Display| Error::Pair {
            cert: files.cert.clone(),
            key: files.key.clone(),
            problem: error.to_string(),
        };
        // An authority without a list here has revoked nothing: lists come one by one while authorities are replaced.
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&crypto))
            .with_crls(guarded.lists.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| problem("tls-ca", &files.ca, &error))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| pair(&error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| pair(&error))?;
        // A resumed session would not have its certificate looked at again.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![ALPN.to_vec()];
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&crypto))
            .with_crls(guarded.lists.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| problem("tls-ca", &files.ca, &error))?;
        let validity = chain.first().and_then(validity);
        let mut client = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| pair(&error))?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain, key)
            .map_err(|error| pair(&error))?;
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { server: Arc::new(server), client: Arc::new(client), guarded, validity })
    }
}

pub(super) fn problem(flag: &'static str, path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::File { flag, path: path.to_owned(), problem: problem.to_string() }
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| problem(flag, path, &error))?;
    if all.is_empty() {
        return Err(problem(flag, path, &"holds no certificate in PEM form"));
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| problem("tls-key", path, &error))?;
    if std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path = %path.display(), "the private key can be read by others than its owner; chmod 600 it");
    }
    Ok(key)
}

/// What tells that a file was replaced: time, length and number, of each. A file that is not there has none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp([Option<(SystemTime, u64, u64)>; 5]);

impl Stamp {
    pub(super) fn of(files: &Files, guards: &Guards) -> Self {
        let files = [
            Some(&files.cert),
            Some(&files.key),
            Some(&files.ca),
            guards.crl.as_ref(),
            guards.denylist.as_ref(),
        ];
        Self(files.map(|path| {
            let meta = std::fs::metadata(path?).ok()?;
            Some((meta.modified().ok()?, meta.len(), meta.ino()))
        }))
    }
}
