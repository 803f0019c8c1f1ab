//! Bootstrap blobs on their way from an operator to the provider: never printed, never kept, wiped behind the last use.

use std::fmt;

use bytes::Bytes;
use zeroize::Zeroize as _;

/// A credential. Its memory is wiped when the last of its bytes is let go of. What the transport holds of it on the way
/// in and out is overwritten by the frames that follow.
pub struct Secret(Bytes);

impl Secret {
    /// The credential for a message to the provider: wiped when that is gone.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for Secret {
    /// Takes the bytes over, and wipes where they were if nobody else holds them.
    fn from(bytes: Bytes) -> Self {
        let kept = Wiped(bytes.to_vec());
        if let Ok(mut source) = bytes.try_into_mut() {
            source.as_mut().zeroize();
        }
        Self(Bytes::from_owner(kept))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

/// Bytes that do not outlive their use.
struct Wiped(Vec<u8>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.as_mut_slice().zeroize();
        #[cfg(test)]
        tests::LAST_WIPED.with(|last| *last.borrow_mut() = Some(self.0.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// What was left of the last secret that was let go of.
        pub(super) static LAST_WIPED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }

    fn wiped() -> Option<Vec<u8>> {
        LAST_WIPED.take()
    }

    #[test]
    fn a_secret_is_wiped_with_the_last_of_its_bytes_and_not_before() {
        let message = Secret::from(Bytes::from_static(b"token")).into_bytes();
        assert_eq!(&*message, b"token");
        let again = message.clone();
        drop(message);
        assert_eq!((wiped(), &*again), (None, &b"token"[..]), "the message may be sent once more");
        drop(again);
        assert_eq!(wiped(), Some(vec![0; 5]));
        drop(Secret::from(Bytes::from_static(b"unused")));
        assert_eq!(wiped(), Some(vec![0; 6]));
    }

    #[test]
    fn a_secret_prints_its_size_only() {
        let secret = Secret::from(Bytes::from(vec![b'x'; 7]));
        assert_eq!(format!("{secret:?}"), "7 secret bytes");
    }
}
