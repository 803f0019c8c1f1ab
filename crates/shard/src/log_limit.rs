//! Log lines that somebody else could cause without end are written once in a while, with a count of the others.

use std::time::{Duration, Instant};

/// Lets one line through, then none for a while.
#[derive(Debug)]
pub(crate) struct LogLimit {
    pause: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// At most one line in each `pause`.
    pub(crate) fn every(pause: Duration) -> Self {
        Self { pause, last: None, suppressed: 0 }
    }

    /// Whether to write now: `Some` with how many lines were left out since the last one.
    pub(crate) fn pass(&mut self) -> Option<u64> {
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
}
