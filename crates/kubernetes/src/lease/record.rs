//! Who may hold a lease, decided from what was read and when.

use std::time::Duration;

use bigfleet_types::UnixNanos;

use super::Options;

/// A Lease, as much of it as decides anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Changes with every write.
    pub version: String,
    /// Who holds it; empty when it was given back.
    pub holder: String,
    /// How long it holds after a renewal; zero when it does not say.
    pub duration: Duration,
    /// How often it has changed hands.
    pub transitions: i32,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It is free or has expired: take it.
    Take,
    /// Somebody else holds it: wait.
    Wait,
}

/// What one process knows of a lease.
#[derive(Debug, Clone)]
pub struct Election {
    identity: String,
    duration: Duration,
    renew_deadline: Duration,
    /// The last record that was read or written, and when it first looked like this.
    observed: Option<(Record, UnixNanos)>,
    /// When the last renewal that went through was begun.
    renewed: Option<UnixNanos>,
}

impl Election {
    /// Knows nothing yet and leads nothing.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            identity: options.identity.clone(),
            duration: options.duration,
            renew_deadline: options.renew_deadline.min(options.duration),
            observed: None,
            renewed: None,
        }
    }

    /// Takes what was read at `now` and says what to do.
    pub fn read(&mut self, now: UnixNanos, record: Option<Record>) -> Step {
        let Some(record) = record else {
            self.observed = None;
            return Step::Create;
        };
        let ours = record.holder == self.identity;
        let free = record.holder.is_empty();
        let since = match &self.observed {
            Some((known, since)) if *known == record => *since,
            _ => now,
        };
        // What the lease says of itself counts: its holder may run with longer times than ours.
        let holds = if record.duration.is_zero() { self.duration } else { record.duration };
        let expired = now.since(since) >= holds;
        self.observed = Some((record, since));
        match () {
            () if ours => Step::Renew,
            () if free || expired => Step::Take,
            () => Step::Wait,
        }
    }

    /// A write that was begun at `began` made us the holder until it expires.
    pub fn written(&mut self, began: UnixNanos, record: Record) {
        self.observed = Some((record, began));
        self.renewed = Some(began);
    }

    /// Whether we may act as the leader: the lease was renewed within the renew deadline.
    #[must_use]
    pub fn leads(&self, now: UnixNanos) -> bool {
        self.renewed.is_some_and(|renewed| now.since(renewed) < self.renew_deadline)
    }

    /// How long we may go on leading without another renewal.
    #[must_use]
    pub fn remaining(&self, now: UnixNanos) -> Duration {
        let renewed = self.renewed.map_or(self.renew_deadline, |renewed| now.since(renewed));
        self.renew_deadline.saturating_sub(renewed)
    }

    /// Leads no more.
    pub fn resign(&mut self) {
        self.renewed = None;
    }

    /// How often the lease has changed hands as far as is known: the fencing number of a leader.
    #[must_use]
    pub fn transitions(&self) -> i32 {
        self.observed.as_ref().map_or(0, |(record, _)| record.transitions)
    }

    /// The record that was seen last.
    #[must_use]
    pub fn observed(&self) -> Option<&Record> {
        self.observed.as_ref().map(|(record, _)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn election(identity: &str) -> Election {
        Election::new(&Options::new("ns", "lease", identity))
    }

    fn held(by: &str, version: u32) -> Record {
        Record { version: version.to_string(), holder: by.to_owned(), duration: 15 * S, transitions: 3 }
    }

    fn at(seconds: u64) -> UnixNanos {
        UnixNanos(0).after(Duration::from_secs(seconds))
    }

    #[test]
    fn no_lease_is_created_and_a_free_one_taken() {
        let mut a = election("a");
        assert_eq!(a.read(at(0), None), Step::Create);
        assert_eq!(a.read(at(1), Some(held("", 1))), Step::Take);
        assert!(!a.leads(at(1)));
    }

    #[test]
    fn a_live_holder_is_waited_for_whatever_its_time_stamps_say() {
        let mut a = election("a");
        for second in 0..60 {
            // The lease changes every 10 s: never unchanged for 15.
            let version = u32::try_from(second / 10).unwrap();
            assert_eq!(a.read(at(second), Some(held("b", version))), Step::Wait, "at {second}");
        }
    }

    #[test]
    fn a_dead_holder_is_replaced_after_its_duration_by_our_own_clock() {
        let mut a = election("a");
        assert_eq!(a.read(at(100), Some(held("b", 1))), Step::Wait);
        assert_eq!(a.read(at(114), Some(held("b", 1))), Step::Wait);
        assert_eq!(a.read(at(115), Some(held("b", 1))), Step::Take);
        // A longer duration in the lease is respected.
        let long = Record { duration: 60 * S, ..held("b", 2) };
        assert_eq!(a.read(at(200), Some(long.clone())), Step::Wait);
        assert_eq!(a.read(at(230), Some(long.clone())), Step::Wait);
        assert_eq!(a.read(at(260), Some(long)), Step::Take);
    }

    #[test]
    fn a_leader_gives_up_before_anybody_may_follow() {
        let (mut a, mut b) = (election("a"), election("b"));
        a.written(at(0), held("a", 1));
        // The other sees the renewal as early as it can.
        assert_eq!(b.read(at(0), Some(held("a", 1))), Step::Wait);
        let end = (0..100).find(|second| !a.leads(at(*second))).unwrap();
        let start = (0..100).find(|s| b.read(at(*s), Some(held("a", 1))) == Step::Take).unwrap();
        assert_eq!((end, start), (10, 15));
        assert_eq!(a.remaining(at(4)), 6 * S);
        assert_eq!(a.remaining(at(40)), Duration::ZERO);
    }

    #[test]
    fn our_own_lease_is_renewed_and_resigning_ends_it() {
        let mut a = election("a");
        assert_eq!(a.read(at(0), Some(held("a", 1))), Step::Renew);
        a.written(at(1), held("a", 2));
        assert!(a.leads(at(5)));
        assert_eq!(a.transitions(), 3);
        a.resign();
        assert!(!a.leads(at(5)));
    }
}
