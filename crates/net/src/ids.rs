//! Random ids for things that must be told apart across processes and restarts.

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system's random generator failed: {source}; nothing was created")]
pub struct Error {
    #[from]
    source: getrandom::Error,
}

/// Eight bytes of the operating system's generator as a number, for jitter and ids.
///
/// # Errors
/// When the generator cannot be read.
pub fn random_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// An id of 16 lower-case hexadecimal digits, from eight bytes of the operating system's generator.
///
/// # Errors
/// When the generator cannot be read.
pub fn random_hex16() -> Result<String, Error> {
    Ok(format!("{:016x}", random_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_sixteen_lower_case_digits_and_differ() {
        let ids: std::collections::BTreeSet<String> = (0..200).map(|_| random_hex16().unwrap()).collect();
        assert_eq!(ids.len(), 200);
        for id in ids {
            assert_eq!(id.len(), 16);
            assert!(id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{id}");
        }
    }
}
