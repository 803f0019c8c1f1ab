//! Time comes in from outside. Logic takes a [`UnixNanos`]; shells read a [`Clock`].

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A point in time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// This point moved later, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Debug for UnixNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// Where a process gets the time from.
///
/// Implementations start from the wall clock once and then follow a monotonic clock, so that a step of the wall
/// clock neither expires a hold early nor postpones one.
pub trait Clock: Send + Sync + 'static {
    /// The time now; never earlier than an answer given before.
    fn now(&self) -> UnixNanos;
}

/// A clock that moves when told to, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: UnixNanos) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves the clock.
    pub fn advance(&self, duration: Duration) {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixNanos {
        UnixNanos(self.0.load(Ordering::SeqCst))
    }
}
