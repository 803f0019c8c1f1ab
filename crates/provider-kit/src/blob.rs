//! Bootstrap blobs: secrets that must not outlive their use or reach a log.

use std::fmt;

use bytes::Bytes;
use zeroize::Zeroize;

/// What a host needs to join a cluster. Printed without its content, wiped when dropped, never stored.
#[derive(Clone, Default)]
pub struct Blob(Vec<u8>);

impl Blob {
    /// Takes the bytes; without a copy where nobody else holds them.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into().into())
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes, hidden)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_prints_its_size_only() {
        assert_eq!(format!("{:?}", Blob::new(&b"token"[..])), "Blob(5 bytes, hidden)");
    }
}
