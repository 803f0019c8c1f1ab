//! When to try to reach the provider again.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bigfleet_net::backoff::Backoff;
use bigfleet_net::log_limit::LogLimit;
use tokio::time::Instant;
use tonic::Status;

use super::status;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

/// The pause before the next attempt to connect, shared by all calls.
#[derive(Debug)]
pub(super) struct Dial {
    addr: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    backoff: Backoff,
    /// Set while the provider cannot be reached.
    failing: Option<Failing>,
    complaints: LogLimit,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    again_at: Instant,
}

impl Dial {
    pub(super) fn new(addr: String) -> Self {
        let state = State {
            backoff: Backoff::new(FIRST_PAUSE, LAST_PAUSE),
            failing: None,
            complaints: LogLimit::every(COMPLAINT_PAUSE),
        };
        Self { addr, state: Mutex::new(state) }
    }

    /// Waits until connecting is worth another attempt; not at all while the provider answers.
    pub(super) async fn pause(&self) {
        while let Some(again_at) = self.again_at() {
            if again_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(again_at).await;
        }
    }

    /// Takes note of what a call that began at `dialled` came to.
    pub(super) fn learn(&self, dialled: Instant, error: Option<&Status>) {
        let mut state = self.state();
        let Some(status) = error.filter(|status| status.source().is_some()) else {
            if let Some(failing) = state.failing.take() {
                state.backoff.reset();
                let seconds = failing.since.elapsed().as_secs();
                tracing::info!(provider = %self.addr, seconds, "the provider answers again");
            }
            return;
        };
        let now = Instant::now();
        // Calls that failed together count once.
        if state.failing.is_none_or(|failing| dialled >= failing.again_at) {
            let since = state.failing.map_or(now, |failing| failing.since);
            let again_at = now + state.backoff.next_delay_os();
            state.failing = Some(Failing { since, again_at });
        }
        if let Some(suppressed) = state.complaints.pass() {
            let (provider, error) = (&self.addr, status::message(status));
            tracing::warn!(%provider, %error, suppressed, "the provider cannot be reached; trying again");
        }
    }

    fn again_at(&self) -> Option<Instant> {
        self.state().failing.map(|failing| failing.again_at)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> Status {
        Status::from_error(Box::new(std::io::Error::other("refused")))
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_cap_and_end_with_an_answer() {
        let dial = Dial::new("provider:1".into());
        let mut longest = Duration::ZERO;
        for _ in 0..12 {
            let dialled = Instant::now();
            dial.learn(dialled, Some(&broken()));
            // A second call of the same moment changes nothing.
            dial.learn(dialled, Some(&broken()));
            dial.pause().await;
            longest = longest.max(dialled.elapsed());
        }
        assert!((LAST_PAUSE / 2..=LAST_PAUSE + Duration::from_millis(2)).contains(&longest), "{longest:?}");
        dial.learn(Instant::now(), Some(&Status::unavailable("said so itself")));
        let begun = Instant::now();
        dial.pause().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
