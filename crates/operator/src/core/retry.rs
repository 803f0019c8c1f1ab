//! How long to wait before trying again.

use std::time::Duration;

use bigfleet_types::chance::Chance;

/// Full jitter below 250 ms, doubling with every attempt (the first is 0) up to 10 s; never less than 10 ms.
pub(super) fn pause(attempts: u32, chance: &mut dyn Chance) -> Duration {
    let cap = 250u64.saturating_mul(1 << attempts.min(6)).min(10_000);
    Duration::from_millis(10 + chance.below(cap - 10))
}

/// After a conflict: 10 ms, doubling with every attempt, between half and the whole of it.
pub(super) fn after_conflict(attempts: u32, chance: &mut dyn Chance) -> Duration {
    let whole = 10_000u64 << attempts.min(5);
    Duration::from_micros(whole / 2 + chance.below(whole / 2))
}

/// Two seconds, give or take a fifth.
pub(super) fn after_refusal(chance: &mut dyn Chance) -> Duration {
    Duration::from_millis(1_600 + chance.below(801))
}
