//! Names of the objects that the operator keeps in the cluster.

use std::fmt::Write as _;

use bigfleet_types::MachineId;
use sha2::{Digest, Sha256};

/// Bytes of a DNS-1123 subdomain.
const MAX_NAME: usize = 253;
/// Bytes that are kept of a machine id that is no legal name.
const KEPT: usize = 240;

/// The name of a machine's UpcomingNode: `un-` and the machine's id, mended and made unique by a hash when it is no
/// legal object name.
#[must_use]
pub fn upcoming_node(machine: &MachineId) -> String {
    let plain = format!("un-{machine}");
    if is_subdomain(&plain) {
        return plain;
    }
    let mut mended = String::with_capacity(plain.len());
    for c in plain.to_ascii_lowercase().chars() {
        if c.is_ascii_alphanumeric() || c == '.' {
            mended.push(c);
        } else if !mended.ends_with('-') {
            mended.push('-');
        }
    }
    mended.truncate(KEPT);
    let kept = mended.trim_matches(|c| c == '-' || c == '.');
    // A point must stand between alphanumerics; next to a dash or another point it is not worth keeping.
    let parts: Vec<&str> =
        kept.split('.').map(|part| part.trim_matches('-')).filter(|p| !p.is_empty()).collect();
    format!("{}-{}", parts.join("."), hex(machine.as_str(), 4))
}

/// The name of an AvailableCapacity: `ac-` and a hash, because keys hold what names cannot.
#[must_use]
pub fn available_capacity(key: &str) -> String {
    format!("ac-{}", hex(key, 16))
}

/// Whether the text is a legal label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edges = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 63
        && edges(bytes.first())
        && edges(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_subdomain(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= MAX_NAME
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|b| legal(*b))
                && bytes.last().is_some_and(|b| legal(*b))
                && bytes.iter().all(|b| legal(*b) || *b == b'-')
        })
}

fn hex(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
