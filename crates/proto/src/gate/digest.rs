//! Digests by which what was read before is known again. Their keys are the process's own and never leave it, so nobody can
//! make two things look alike on purpose.

use std::hash::{BuildHasher as _, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::{FoldHasher, SeedableRandomState};

/// A key for digests of 64 bits, for what is only compared with one other.
#[derive(Debug, Clone)]
pub(super) struct Key(SeedableRandomState);

impl Default for Key {
    fn default() -> Self {
        // The standard library's keys come from the system's source of chance.
        let seed = RandomState::new().hash_one(0_u64);
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_random()))
    }
}

impl Key {
    pub(super) fn hasher(&self) -> FoldHasher<'_> {
        self.0.build_hasher()
    }

    pub(super) fn of(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}

/// A key for digests of 128 bits, for what is looked up by its digest.
#[derive(Debug, Clone, Default)]
pub(super) struct WideKey([Key; 2]);

impl WideKey {
    pub(super) fn hasher(&self) -> Wide<'_> {
        Wide(self.0[0].hasher(), self.0[1].hasher())
    }

    pub(super) fn of(&self, bytes: &[u8]) -> u128 {
        let mut hasher = self.hasher();
        hasher.write(bytes);
        hasher.digest()
    }
}

/// Two hashers at once.
#[derive(Clone)]
pub(super) struct Wide<'a>(FoldHasher<'a>, FoldHasher<'a>);

impl Wide<'_> {
    pub(super) fn digest(&self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}

impl Hasher for Wide<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0.write_u64(number);
        self.1.write_u64(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.0.write_usize(number);
        self.1.write_usize(number);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
