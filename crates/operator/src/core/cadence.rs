//! When a roll-up is due: at once after the hello, on a fixed period, and shortly after demand grew.

use std::time::Duration;

use bigfleet_types::UnixNanos;

/// From the first growth to the roll-up that tells of it.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Early roll-ups: one a second, and up to this many in a row.
const BURST: u32 = 5;
const REFILL: Duration = Duration::from_secs(1);
/// A shard that does not answer the hello gets its first roll-up this long after it.
const HELLO_PATIENCE: Duration = Duration::from_secs(1);

/// Why a roll-up is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The session is new.
    First,
    /// The period has passed.
    Tick,
    /// Demand grew.
    Growth,
}

/// The clockwork of one session.
#[derive(Debug)]
pub(super) struct Cadence {
    interval: Duration,
    /// When the first roll-up may go; `None` once it went.
    first: Option<UnixNanos>,
    tick: UnixNanos,
    growth: Option<UnixNanos>,
    /// When the bucket of early roll-ups would be full.
    full_at: UnixNanos,
}

impl Cadence {
    pub(super) fn new(connected: UnixNanos, interval: Duration) -> Self {
        let first = connected.after(HELLO_PATIENCE);
        Self { interval, first: Some(first), tick: connected, growth: None, full_at: connected }
    }

    /// The shard answered the hello.
    pub(super) fn hello(&mut self, now: UnixNanos) {
        if self.first.is_some() {
            self.first = Some(now);
        }
    }

    /// Demand grew.
    pub(super) fn grew(&mut self, now: UnixNanos) {
        // One token less than full is there once the bucket has less than `BURST - 1` seconds to go.
        let token = UnixNanos(self.full_at.0.saturating_sub(nanos(REFILL * (BURST - 1))));
        let at = now.after(DEBOUNCE).max(token);
        self.growth.get_or_insert(at);
    }

    /// What is due now; the caller sends a roll-up then and says so.
    pub(super) fn due(&self, now: UnixNanos) -> Option<Due> {
        match self.first {
            Some(at) => (at <= now).then_some(Due::First),
            None if self.tick <= now => Some(Due::Tick),
            None => self.growth.filter(|at| *at <= now).map(|_| Due::Growth),
        }
    }

    /// A roll-up of now went. It tells of all growth so far; missed ticks are not made up for.
    pub(super) fn went(&mut self, now: UnixNanos, due: Due) {
        self.growth = None;
        match due {
            Due::First => {
                self.first = None;
                self.tick = now.after(self.interval);
            }
            Due::Tick => {
                let late = nanos(now.since(self.tick));
                let interval = nanos(self.interval).max(1);
                self.tick = UnixNanos(self.tick.0.saturating_add(interval * (late / interval + 1)));
            }
            Due::Growth => self.full_at = self.full_at.max(now).after(REFILL),
        }
    }

    /// When something is due next.
    pub(super) fn next_wake(&self) -> UnixNanos {
        self.first.unwrap_or_else(|| self.growth.map_or(self.tick, |at| at.min(self.tick)))
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
