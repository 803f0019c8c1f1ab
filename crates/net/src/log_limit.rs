//! Log lines that somebody else could cause without end are written once in a while, with a count of the others.

use std::time::{Duration, Instant};

/// Lets one line through, then none for a while.
#[derive(Debug)]
pub struct LogLimit {
    pause: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// At most one line in each `pause`.
    #[must_use]
    pub fn every(pause: Duration) -> Self {
        Self { pause, last: None, suppressed: 0 }
    }

    /// Whether to write now: `Some` with how many lines were left out since the last one.
    pub fn pass(&mut self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.pause) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// At most one line a minute.
impl Default for LogLimit {
    fn default() -> Self {
        Self::every(Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_pause_with_a_count_of_the_others() {
        let (mut limit, start) = (LogLimit::every(Duration::from_secs(60)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limit.pass_at(at(0)), Some(0));
        assert_eq!(limit.pass_at(at(1)), None);
        assert_eq!(limit.pass_at(at(59)), None);
        assert_eq!(limit.pass_at(at(60)), Some(2));
        assert_eq!(limit.pass_at(at(61)), None);
    }

    #[test]
    fn one_line_a_minute_is_let_through_and_the_others_are_counted() {
        let (mut said, start) = (LogLimit::default(), Instant::now());
        let passes: Vec<_> = (0..=120).map(|n| said.pass_at(start + Duration::from_secs(n))).collect();
        let expected = |n| if n % 60 == 0 { Some(if n == 0 { 0 } else { 59 }) } else { None };
        assert_eq!(passes, (0..=120).map(expected).collect::<Vec<_>>());
    }
}
