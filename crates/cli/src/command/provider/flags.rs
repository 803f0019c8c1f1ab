//! Flags that all providers have.

use crate::config::{Flag, Kind};

/// Where shards connect.
pub(super) const fn addr(default: &'static str) -> Flag {
    Flag { name: "addr", kind: Kind::AddressOrOff, default: Some(default), help: "Where shards connect" }
}

/// How many machines to begin with.
pub(super) const fn seed_count(default: &'static str, help: &'static str) -> Flag {
    Flag { name: "seed-count", kind: Kind::Count(0), default: Some(default), help }
}

/// The same for every provider.
pub(super) const COMMON: &[Flag] = &[
    Flag {
        name: "metrics-addr",
        kind: Kind::AddressOrOff,
        default: Some(":9090"),
        help: "Metrics and probes; 0 switches them off",
    },
    Flag {
        name: "state",
        kind: Kind::Path,
        default: Some(""),
        help: "Keep machines, fences and operations in this folder; without it they are gone at the end",
    },
    Flag {
        name: "provider",
        kind: Kind::Text,
        default: Some(""),
        help: "What hosts call their provider; empty is the provider's own name",
    },
    Flag {
        name: "use-fake-backend",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Only pretend to have machines; fakecloud and fault never do otherwise",
    },
    Flag {
        name: "transition-timeout",
        kind: Kind::Duration,
        default: Some("0"),
        help: "How long any transition may take; 0 is 5 min, and 10 min for a Drain",
    },
    Flag {
        name: "admin-socket",
        kind: Kind::Path,
        default: Some(""),
        help: "Socket for `bigfleet provider repair`; with --state it is admin.sock in that folder",
    },
    Flag {
        name: "tls-cert",
        kind: Kind::Path,
        default: Some(""),
        help: "Certificate chain (PEM) for mutual TLS; with --tls-key and --tls-ca, or none of them for plaintext; {id} in a path is the --provider",
    },
    Flag { name: "tls-key", kind: Kind::Path, default: Some(""), help: "Private key of --tls-cert (PEM)" },
    Flag { name: "tls-ca", kind: Kind::Path, default: Some(""), help: "Authorities that sign callers (PEM)" },
    Flag {
        name: "tls-crl",
        kind: Kind::Path,
        default: Some(""),
        help: "Revoked certificates (PEM); read again when it changes, and open connections end",
    },
    Flag {
        name: "identity-denylist",
        kind: Kind::Path,
        default: Some(""),
        help: "Identities bigfleet://ROLE/ID that are not let in, one a line; read again likewise",
    },
    Flag {
        name: "require-tls",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Refuse to start in plaintext",
    },
    Flag {
        name: "strict-epoch",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Fence a shard by its newest epoch on any machine, not only on the same one",
    },
    Flag {
        name: "reflection",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Tell the schema to whoever asks (development)",
    },
];
