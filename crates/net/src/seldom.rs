//! Lines of a log that peers can cause as often as they like, said once a minute.

use std::time::{Duration, Instant};

/// How often one is let through.
const EVERY: Duration = Duration::from_secs(60);

/// Lets one line a minute through.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Whether to say it now: how often it was not said since the last time.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_is_let_through_and_the_others_are_counted() {
        let (mut said, start) = (Seldom::default(), Instant::now());
        let passes: Vec<_> = (0..=120).map(|n| said.pass(start + Duration::from_secs(n))).collect();
        let expected = |n| if n % 60 == 0 { Some(if n == 0 { 0 } else { 59 }) } else { None };
        assert_eq!(passes, (0..=120).map(expected).collect::<Vec<_>>());
    }
}
