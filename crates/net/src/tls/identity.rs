//! Who stands behind a certificate: the one URI of the scheme `bigfleet` among its alternative names.

use std::fmt;

use rustls_pki_types::CertificateDer;

const SCHEME: &str = "bigfleet";
/// Longest id, in bytes.
const MAX_ID: usize = 253;

/// What a certificate's owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The operator of a cluster; the id is the cluster's.
    Cluster,
    /// A shard.
    Shard,
    /// A coordinator replica.
    Coordinator,
    /// A provider.
    Provider,
    /// People and programs that may change things; has no id.
    Admin,
    /// People and programs that may look; has no id.
    Readonly,
}

impl Role {
    const NAMED: [(Self, &'static str); 4] = [
        (Self::Cluster, "cluster"),
        (Self::Shard, "shard"),
        (Self::Coordinator, "coordinator"),
        (Self::Provider, "provider"),
    ];
}

/// A role with its id, such as `shard/shard-0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// What it is.
    pub role: Role,
    /// Which one; empty for roles that have no id.
    pub id: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Admin => f.write_str("admin"),
            Role::Readonly => f.write_str("readonly"),
            role => {
                let name = Role::NAMED.iter().find(|(named, _)| *named == role).map_or("", |(_, name)| name);
                write!(f, "{name}/{}", self.id)
            }
        }
    }
}

impl Identity {
    /// The URI that stands for it in a certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{SCHEME}://{self}")
    }

    /// What a whole URI names, if it names a role and follows the rules for ids.
    #[must_use]
    pub fn of_uri(uri: &str) -> Option<Self> {
        Self::parse(uri.strip_prefix("bigfleet://")?)
    }

    /// Reads the part after `bigfleet://`, without any decoding: ids have no characters that would need one.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "admin" => return Some(Self { role: Role::Admin, id: String::new() }),
            "readonly" => return Some(Self { role: Role::Readonly, id: String::new() }),
            _ => {}
        }
        let (name, id) = text.split_once('/')?;
        let (role, _) = Role::NAMED.into_iter().find(|(_, named)| *named == name)?;
        is_id(id).then(|| Self { role, id: id.to_owned() })
    }
}

fn is_id(id: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let bytes = id.as_bytes();
    bytes.len() <= MAX_ID && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

/// Why a certificate says nothing about who owns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such name.
    #[error("no URI bigfleet://... in the certificate")]
    None,
    /// There is more than one, and nobody can tell which counts.
    #[error("{0} URIs bigfleet://... in the certificate, must be one")]
    Several(usize),
    /// It follows no rule.
    #[error("the URI {0:?} in the certificate names no role of BigFleet")]
    Malformed(String),
    /// The certificate cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    /// There is no certificate.
    #[error("no certificate")]
    NoCertificate,
    /// Its owner is on the deny list.
    #[error("{0} is on the deny list (--identity-denylist)")]
    Denied(String),
}

impl Unknown {
    /// The reason as a metric's label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::None | Self::NoCertificate => "none",
            Self::Several(_) => "ambiguous",
            Self::Malformed(_) => "malformed",
            Self::Unreadable(_) => "unreadable",
            Self::Denied(_) => "denied",
        }
    }
}

/// The other end of a connection under TLS, found out once per connection and put beside each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer(pub Result<Identity, Unknown>);

impl Peer {
    /// Who stands behind a chain that was already verified.
    #[must_use]
    pub fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        Self(chain.and_then(<[_]>::first).ok_or(Unknown::NoCertificate).and_then(identity))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(identity) => identity.fmt(f),
            Err(unknown) => unknown.fmt(f),
        }
    }
}

fn identity(leaf: &CertificateDer<'_>) -> Result<Identity, Unknown> {
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|e| Unknown::Unreadable(e.to_string()))?;
    let ours: Vec<&str> = leaf.valid_uri_names().filter(|uri| has_scheme(uri)).collect();
    match ours.as_slice() {
        [] => Err(Unknown::None),
        [uri] => Identity::of_uri(uri).ok_or_else(|| Unknown::Malformed((*uri).to_owned())),
        several => Err(Unknown::Several(several.len())),
    }
}

/// Whether a URI is of our scheme, in any case: a second one in capitals must not hide.
fn has_scheme(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn of(uris: &[&str]) -> Result<Identity, Unknown> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        let cert = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        identity(cert.der())
    }

    #[test]
    fn exactly_one_uri_of_ours_counts() {
        for (text, role, id) in [
            ("bigfleet://shard/shard-0", Role::Shard, "shard-0"),
            ("bigfleet://cluster/a.b-c", Role::Cluster, "a.b-c"),
            ("bigfleet://coordinator/1", Role::Coordinator, "1"),
            ("bigfleet://provider/x", Role::Provider, "x"),
            ("bigfleet://admin", Role::Admin, ""),
            ("bigfleet://readonly", Role::Readonly, ""),
        ] {
            let identity = of(&["spiffe://other/thing", text]).unwrap();
            assert_eq!((identity.role, identity.id.as_str()), (role, id));
            assert_eq!(identity.uri(), text);
        }
        assert_eq!(of(&[]), Err(Unknown::None));
        assert_eq!(of(&["spiffe://shard/x"]), Err(Unknown::None));
        assert_eq!(of(&["bigfleet://admin", "bigfleet://admin"]), Err(Unknown::Several(2)));
        assert_eq!(of(&["BIGFLEET://shard/x", "bigfleet://shard/x"]), Err(Unknown::Several(2)));
    }

    #[test]
    fn whatever_follows_no_rule_is_nobody() {
        for uri in [
            "BIGFLEET://shard/x",
            "bigfleet://shard/",
            "bigfleet://shard/x/",
            "bigfleet://shard/X",
            "bigfleet://shard/a%20b",
            "bigfleet://shard/-a",
            "bigfleet://shard",
            "bigfleet://admin/x",
            "bigfleet://Shard/x",
            "bigfleet:shard/x",
            "bigfleet://king/x",
        ] {
            assert_eq!(of(&[uri]), Err(Unknown::Malformed(uri.into())), "{uri}");
        }
    }
}
