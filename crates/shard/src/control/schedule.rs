//! What is due when, and which answer belongs to what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_types::{MachineId, UnixNanos};

use super::config::GETS_AT_ONCE;
use crate::io::CallId;

const MINUTE: Duration = Duration::from_secs(60);

/// Something to look at later. Timers are never cancelled: whoever looks finds out whether there is still a reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The wait of a stage is over.
    Stage(MachineId),
    /// The machine's cool-down is over.
    Cool(MachineId),
    /// The machine's transition may be stuck.
    Watchdog(MachineId),
    /// A class may have stock again.
    Stock,
    /// There may be something to decide.
    Wake,
}

/// Timers, in order of time and then of setting.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeMap<(UnixNanos, u64), Timer>,
    next: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: UnixNanos, timer: Timer) {
        self.next += 1;
        self.queue.insert((at, self.next), timer);
    }

    pub(crate) fn first(&self) -> Option<UnixNanos> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: UnixNanos) -> Option<Timer> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// What a call to the provider was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// A List, and the local generation when it was asked for.
    List { generation: u64 },
    /// The Get of a watch.
    Watch(MachineId),
    /// A Get to see for ourselves, and the local generation when it was asked for.
    Recheck { id: MachineId, generation: u64 },
    /// A lifecycle call.
    Mutate(MachineId),
}

/// Calls on their way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    open: BTreeMap<CallId, Call>,
}

impl Calls {
    pub(crate) fn open(&mut self, call: Call) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.open.insert(id, call);
        id
    }

    pub(crate) fn close(&mut self, id: CallId) -> Option<Call> {
        self.open.remove(&id)
    }
}

/// Gets that wait for their time or for a free place.
#[derive(Debug, Default)]
pub(crate) struct Gets {
    watches: BTreeSet<(UnixNanos, MachineId)>,
    rechecks: BTreeSet<MachineId>,
    under_way: usize,
}

impl Gets {
    pub(crate) fn watch(&mut self, at: UnixNanos, id: MachineId) {
        self.watches.insert((at, id));
    }

    pub(crate) fn recheck(&mut self, id: MachineId) {
        self.rechecks.insert(id);
    }

    /// A Get came back.
    pub(crate) fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// A Get is sent.
    pub(crate) fn begun(&mut self) {
        self.under_way += 1;
    }

    /// When there is something to ask, if there is a free place.
    pub(crate) fn next(&self) -> Option<UnixNanos> {
        if self.under_way >= GETS_AT_ONCE {
            return None;
        }
        let watch = self.watches.first().map(|(at, _)| *at);
        if self.rechecks.is_empty() { watch } else { Some(UnixNanos(i64::MIN)) }
    }

    /// The next one to ask, watches first. `Err` holds a recheck.
    pub(crate) fn pop(&mut self, now: UnixNanos) -> Option<Result<(UnixNanos, MachineId), MachineId>> {
        if self.under_way >= GETS_AT_ONCE {
            return None;
        }
        if self.watches.first().is_some_and(|(at, _)| *at <= now) {
            return self.watches.pop_first().map(Ok);
        }
        self.rechecks.pop_first().map(Err)
    }
}

/// Lets a repeating log line through only so often.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: BTreeMap<&'static str, UnixNanos>,
    records: BTreeMap<(Option<MachineId>, &'static str), UnixNanos>,
}

impl Seldom {
    /// Whether the line is due.
    pub(crate) fn allows(&mut self, line: &'static str, now: UnixNanos, every: Duration) -> bool {
        let due = self.last.get(line).is_none_or(|last| now.since(*last) >= every);
        if due {
            self.last.insert(line, now);
        }
        due
    }

    /// Whether the line about a bad record is due: once a minute for each machine and reason.
    pub(crate) fn allows_record(
        &mut self,
        id: Option<&MachineId>,
        reason: &'static str,
        now: UnixNanos,
    ) -> bool {
        if self.allows("records", now, MINUTE) {
            self.records.retain(|_, last| now.since(*last) < MINUTE);
        }
        let key = (id.cloned(), reason);
        let due = self.records.get(&key).is_none_or(|last| now.since(*last) >= MINUTE);
        if due {
            self.records.insert(key, now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_record_is_mentioned_once_a_minute_for_each_machine_and_reason() {
        let at = |s: u64| UnixNanos(0).after(Duration::from_secs(s));
        let (mut seldom, id) = (Seldom::default(), MachineId::trusted("m".to_owned()));
        assert!(seldom.allows_record(Some(&id), "price", at(0)));
        assert!(seldom.allows_record(Some(&id), "structural", at(0)));
        assert!(seldom.allows_record(None, "price", at(0)));
        assert!((1..60).all(|s| !seldom.allows_record(Some(&id), "price", at(s))));
        assert!(seldom.allows_record(Some(&id), "price", at(60)));
        assert_eq!(seldom.records.len(), 1, "what is long past is forgotten");
    }
}
