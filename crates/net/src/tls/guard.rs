//! What takes a certificate's rights away before it ends: revocation lists of its authority, and a list of identities
//! that are not to be let in.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{CertRevocationList, EndEntityCert, OwnedCertRevocationList};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Error;
use super::identity::{Identity, Peer, Unknown};
use super::material::problem;

/// How long a connection may go on after its certificate has ended.
const AFTER_END: Duration = Duration::from_secs(5 * 60);

/// Files that take rights away; both are optional, and read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guards {
    /// Revocation lists in PEM form (`--tls-crl`).
    pub crl: Option<PathBuf>,
    /// URIs `bigfleet://...`, one a line (`--identity-denylist`).
    pub denylist: Option<PathBuf>,
}

/// What the files say.
#[derive(Debug, Default)]
pub(super) struct Guarded {
    /// For the handshake.
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    denied: BTreeSet<Identity>,
}

impl Guarded {
    pub(super) fn read(guards: &Guards) -> Result<Self, Error> {
        let mut guarded = Self::default();
        if let Some(path) = &guards.crl {
            let wrong = |error: &dyn std::fmt::Display| problem("tls-crl", path, error);
            let lists = CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
            guarded.lists = lists.map_err(|error| wrong(&error))?;
            if guarded.lists.is_empty() {
                return Err(wrong(&"holds no revocation list in PEM form"));
            }
            for list in &guarded.lists {
                let parsed = OwnedCertRevocationList::from_der(list).map_err(|error| wrong(&error))?;
                guarded.revoked.push(parsed.into());
            }
        }
        if let Some(path) = &guards.denylist {
            let wrong = |error: &dyn std::fmt::Display| problem("identity-denylist", path, error);
            let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
            for (number, line) in (1..).zip(text.lines()) {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let identity = Identity::of_uri(line).ok_or_else(|| {
                    wrong(&format!("line {number}: {line:?} is no identity; write bigfleet://ROLE/ID"))
                })?;
                guarded.denied.insert(identity);
            }
        }
        Ok(guarded)
    }

    /// The peer as it counts now: nobody when it is on the list.
    pub(super) fn judge(&self, peer: Peer) -> Peer {
        match peer.0 {
            Ok(identity) if self.denied.contains(&identity) => Peer(Err(Unknown::Denied(identity.uri()))),
            other => Peer(other),
        }
    }

    /// Why a connection that is open must end now.
    pub(super) fn ends(&self, leaf: &Leaf, now: SystemTime) -> Option<&'static str> {
        if leaf.peer.0.as_ref().is_ok_and(|identity| self.denied.contains(identity)) {
            return Some("its identity is on the deny list now");
        }
        if leaf.not_after.is_some_and(|end| now > end + AFTER_END) {
            return Some("its certificate has ended");
        }
        let chain = leaf.certificate.as_ref()?;
        let leaf = EndEntityCert::try_from(chain).ok()?;
        let revoked = |list: &CertRevocationList<'_>| {
            list.issuer() == leaf.issuer()
                && list.find_serial(leaf.serial()).is_ok_and(|found| found.is_some())
        };
        self.revoked.iter().any(revoked).then_some("its certificate is revoked now")
    }
}

/// The certificate of the other end, as long as its connection lives.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Who it was when it came.
    pub(crate) peer: Peer,
    certificate: Option<CertificateDer<'static>>,
    not_after: Option<SystemTime>,
}

impl Leaf {
    /// Of a chain that was already verified.
    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        let leaf = chain.and_then(<[_]>::first);
        Self {
            peer: Peer::of(chain),
            certificate: leaf.map(|leaf| leaf.clone().into_owned()),
            not_after: leaf.and_then(validity).map(|(_, end)| end),
        }
    }
}

/// From when to when a certificate is valid; `None` for one that cannot be read.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = |seconds: i64| {
        let since = Duration::from_secs(u64::try_from(seconds).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    let validity = parsed.validity();
    Some((at(validity.not_before.timestamp())?, at(validity.not_after.timestamp())?))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn a_connection_ends_five_minutes_after_its_certificate() {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(2030, 1, 1);
        params.subject_alt_names = vec![SanType::URI("bigfleet://shard/s".try_into().unwrap())];
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let leaf = Leaf::of(Some(std::slice::from_ref(certificate.der())));
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        assert_eq!(leaf.not_after, Some(end));
        let guarded = Guarded::default();
        assert_eq!(guarded.ends(&leaf, end + AFTER_END), None);
        let late = end + AFTER_END + Duration::from_secs(1);
        assert_eq!(guarded.ends(&leaf, late), Some("its certificate has ended"));
        // Without a certificate there is nothing that could end.
        assert_eq!(guarded.ends(&Leaf::of(None), late), None);
    }
}
