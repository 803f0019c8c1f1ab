//! The process's clock: the wall clock once, then a monotonic one.

use std::time::{Instant, SystemTime};

use bigfleet_types::{Clock, UnixNanos};

/// Starts at the wall clock and follows the monotonic clock from there, so that a step of the wall clock moves
/// nothing. Copies share one start and agree.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    wall: UnixNanos,
    started: Instant,
}

impl SystemClock {
    /// A clock that agrees with the wall clock now. A wall clock before 1970 counts as 1970.
    #[must_use]
    pub fn start() -> Self {
        let started = Instant::now();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { wall: UnixNanos(0).after(wall), started }
    }

    /// The monotonic instant of a point of this clock, for timers. A point before the start is the start.
    #[must_use]
    pub fn instant(&self, at: UnixNanos) -> Option<Instant> {
        self.started.checked_add(at.since(self.wall))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixNanos {
        self.wall.after(self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_starts_at_the_wall_clock_and_never_goes_back() {
        let clock = SystemClock::start();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let first = clock.now();
        assert!(first.since(UnixNanos(0)).abs_diff(wall) < Duration::from_secs(5));
        assert!(clock.now() >= first);
        let copy = clock;
        assert!(copy.now() >= first);
    }

    #[test]
    fn a_point_of_the_clock_is_an_instant() {
        let clock = SystemClock::start();
        let later = clock.instant(clock.wall.after(Duration::from_secs(60))).unwrap();
        assert_eq!(later.duration_since(clock.started), Duration::from_secs(60));
        assert_eq!(clock.instant(UnixNanos(0)), Some(clock.started));
    }
}
