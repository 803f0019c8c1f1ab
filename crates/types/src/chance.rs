//! Chance comes in from outside too: logic takes a [`Chance`], tests and simulations seed one.

/// A source of random numbers.
pub trait Chance: Send {
    /// 64 uniformly distributed bits.
    fn next_u64(&mut self) -> u64;

    /// A number in `0..n`; 0 when `n` is 0.
    fn below(&mut self, n: u64) -> u64 {
        // The high half of a 128-bit product maps the bits to the range without a bias that matters here.
        u64::try_from((u128::from(self.next_u64()) * u128::from(n)) >> 64).unwrap_or(0)
    }
}

/// Puts things into a random order; every order is as likely as any other.
pub fn shuffle<T>(things: &mut [T], chance: &mut impl Chance) {
    for last in (1..things.len()).rev() {
        let bound = u64::try_from(last).unwrap_or(u64::MAX).saturating_add(1);
        things.swap(last, usize::try_from(chance.below(bound)).unwrap_or(last));
    }
}

/// The splitmix64 generator: tiny, seeded, the same everywhere. Not for secrets.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator whose whole sequence follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Chance for Seeded {
    fn next_u64(&mut self) -> u64 {
        // Constants of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
