//! Capped exponential back-off with jitter. Chance is handed in, so that a simulation replays.

use std::time::Duration;

/// Delays that double from a first value to a cap; each is drawn from the upper half of its step.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    /// Steps `first`, `2 * first`, ... up to `cap`. A `first` above `cap` counts as `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        let first = first.min(cap);
        Self { first, cap, next: first }
    }

    /// The delay before the next attempt: uniform in `[step/2, step]`, chosen by `chance`, any 64 random bits.
    /// Doubles the step.
    pub fn next_delay(&mut self, chance: u64) -> Duration {
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.cap);
        let half = step / 2;
        let span = u64::try_from((step - half).as_nanos()).unwrap_or(u64::MAX);
        // Multiply-and-shift maps 64 random bits onto 0..=span without a bias that could be seen.
        let part = (u128::from(chance) * (u128::from(span) + 1)) >> 64;
        half + Duration::from_nanos(u64::try_from(part).unwrap_or(span))
    }

    /// As [`Self::next_delay`] with the operating system's chance. Without random bytes the whole step is taken.
    pub fn next_delay_os(&mut self) -> Duration {
        self.next_delay(crate::ids::random_u64().unwrap_or(u64::MAX))
    }

    /// Starts again at the first step: to be called once an attempt has lasted.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn steps_double_to_the_cap_and_reset() {
        let mut b = Backoff::new(100 * MS, 1000 * MS);
        let tops: Vec<_> = (0..6).map(|_| b.next_delay(u64::MAX)).collect();
        assert_eq!(tops, [100, 200, 400, 800, 1000, 1000].map(|n| n * MS));
        b.reset();
        assert_eq!(b.next_delay(u64::MAX), 100 * MS);
    }

    #[test]
    fn jitter_covers_exactly_the_upper_half() {
        for (chance, want) in [(0, 50), (u64::MAX / 2, 75), (u64::MAX, 100)] {
            let got = Backoff::new(100 * MS, 1000 * MS).next_delay(chance);
            assert!(got.abs_diff(want * MS) <= Duration::from_nanos(1), "{chance}: {got:?}");
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut b = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(b.next_delay(u64::MAX) >= Duration::MAX / 2);
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO).next_delay(7), Duration::ZERO);
        assert_eq!(Backoff::new(10 * MS, 2 * MS).next_delay(u64::MAX), 2 * MS);
    }

    #[test]
    fn the_shell_variant_stays_in_its_step() {
        let mut b = Backoff::new(8 * MS, 8 * MS);
        for _ in 0..50 {
            let d = b.next_delay_os();
            assert!((4 * MS..=8 * MS).contains(&d), "{d:?}");
        }
    }
}
