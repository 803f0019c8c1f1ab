//! Chance that depends on what it is about, never on how much was drawn before.

use bigfleet_types::chance::Seeded;

/// A generator of its own for one thing at one time.
pub(super) fn about(seed: u64, what: &str, when: u64) -> Seeded {
    // FNV-1a: spreads the text over all bits; the generator does the rest.
    let hash = what.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Seeded::new(seed ^ hash ^ when.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
