//! Which requests are to be marked as acknowledged: those that were in a roll-up that the shard confirmed.

use std::collections::{BTreeMap, HashMap};

use bigfleet_types::UnixNanos;
use bigfleet_types::chance::Chance;

use super::retry;
use crate::io::{CapacityRequest, Uid, Write, WriteError, WriteId};

/// Requests that their status does not yet call acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acks {
    entries: HashMap<Uid, Entry>,
    /// Counted, but in no confirmed roll-up. By the number of the event that counted them.
    waiting: BTreeMap<u64, Uid>,
    /// To be written, by when and in which order.
    ready: BTreeMap<(UnixNanos, u64), Uid>,
    writing: HashMap<WriteId, Uid>,
    /// How many entries have been written: those whose state [`State::is_written`].
    written: usize,
}

#[derive(Debug)]
struct Entry {
    namespace: String,
    name: String,
    counted: u64,
    attempts: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Ready(UnixNanos),
    Writing,
    /// Written; the watch has not shown it yet.
    Written,
    /// Written before the newest list of all requests began: that list shows whether it is still true.
    Doubtful,
}

impl State {
    fn is_written(self) -> bool {
        matches!(self, Self::Written | Self::Doubtful)
    }
}

impl Acks {
    /// A request contributes and is not acknowledged. `counted` numbers the event and grows; `changed` says that its
    /// contribution is another than before.
    pub(super) fn want(&mut self, request: &CapacityRequest, counted: u64, changed: bool) {
        if request.acknowledged {
            return self.forget(&request.uid);
        }
        match self.entries.get_mut(&request.uid) {
            None => {
                let entry = Entry {
                    namespace: request.namespace.clone(),
                    name: request.name.clone(),
                    counted,
                    attempts: 0,
                    state: State::Waiting,
                };
                self.entries.insert(request.uid.clone(), entry);
                self.waiting.insert(counted, request.uid.clone());
            }
            // Written and taken back, as by a restored backup: the request waits like a new one.
            Some(entry) if entry.state == State::Doubtful => {
                entry.state = State::Waiting;
                self.written -= 1;
                entry.counted = counted;
                entry.attempts = 0;
                self.waiting.insert(counted, request.uid.clone());
            }
            Some(entry) if changed && entry.state == State::Waiting => {
                self.waiting.remove(&entry.counted);
                entry.counted = counted;
                self.waiting.insert(counted, request.uid.clone());
            }
            Some(_) => {}
        }
    }

    /// A list of all requests begins. What was written so far, it has to show.
    pub(super) fn listing(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Written) {
            entry.state = State::Doubtful;
        }
    }

    /// A request is gone, contributes nothing, or is acknowledged.
    pub(super) fn forget(&mut self, uid: &Uid) {
        if let Some(entry) = self.entries.remove(uid) {
            self.written -= usize::from(entry.state.is_written());
            self.waiting.remove(&entry.counted);
            if let State::Ready(at) = entry.state {
                self.ready.remove(&(at, entry.counted));
            }
        }
    }

    /// Keeps only the requests that `stay` names.
    pub(super) fn retain(&mut self, stay: impl Fn(&str) -> bool) {
        let gone: Vec<Uid> = self.entries.keys().filter(|uid| !stay(uid)).cloned().collect();
        gone.iter().for_each(|uid| self.forget(uid));
    }

    /// The shard has everything that was counted up to event `counted`.
    pub(super) fn confirm(&mut self, counted: u64, now: UnixNanos) {
        let later = self.waiting.split_off(&counted.saturating_add(1));
        for (counted, uid) in std::mem::replace(&mut self.waiting, later) {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.state = State::Ready(now);
                self.ready.insert((now, counted), uid);
            }
        }
    }

    /// What the shard knew, it may not know in the next session.
    pub(super) fn disconnected(&mut self) {
        for ((_, counted), uid) in std::mem::take(&mut self.ready) {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.state = State::Waiting;
                self.waiting.insert(counted, uid);
            }
        }
    }

    /// The next write that is due, if fewer than `limit` are under way.
    pub(super) fn next(&mut self, now: UnixNanos, limit: usize) -> Option<(Uid, Write)> {
        if self.writing.len() >= limit {
            return None;
        }
        let (&(at, counted), _) = self.ready.first_key_value().filter(|((at, _), _)| *at <= now)?;
        let uid = self.ready.remove(&(at, counted))?;
        let entry = self.entries.get_mut(&uid)?;
        entry.state = State::Writing;
        let write = Write::AcknowledgeRequest {
            uid: uid.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
        };
        Some((uid, write))
    }

    /// The write that [`Acks::next`] gave has this number.
    pub(super) fn writing(&mut self, id: WriteId, uid: Uid) {
        self.writing.insert(id, uid);
    }

    /// A write was answered. `None` when it is none of these, else whether the request is acknowledged now.
    pub(super) fn done(
        &mut self,
        id: WriteId,
        result: &Result<(), WriteError>,
        now: UnixNanos,
        connected: bool,
        chance: &mut dyn Chance,
    ) -> Option<bool> {
        let uid = self.writing.remove(&id)?;
        // It may have been forgotten and wanted anew since: then this answer is none to what waits now.
        let Some(entry) = self.entries.get_mut(&uid).filter(|entry| entry.state == State::Writing) else {
            return Some(result.is_ok());
        };
        match result {
            Ok(()) => {
                entry.state = State::Written;
                self.written += 1;
            }
            Err(WriteError::Gone) => {
                self.entries.remove(&uid);
            }
            Err(_) if connected => {
                let at = now.after(retry::pause(entry.attempts, chance));
                entry.attempts = entry.attempts.saturating_add(1);
                entry.state = State::Ready(at);
                self.ready.insert((at, entry.counted), uid);
            }
            Err(_) => {
                entry.state = State::Waiting;
                self.waiting.insert(entry.counted, uid);
            }
        }
        Some(result.is_ok())
    }

    /// When a write is due next.
    pub(super) fn next_wake(&self, limit: usize) -> Option<UnixNanos> {
        let free = self.writing.len() < limit;
        self.ready.first_key_value().filter(|_| free).map(|((at, _), _)| *at)
    }

    /// How many requests are not known to be acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.entries.len() - self.written
    }

    /// How many requests wait for a write or its answer.
    pub(super) fn depth(&self) -> usize {
        self.ready.len() + self.writing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigfleet_types::chance::Seeded;

    const NOW: UnixNanos = UnixNanos(0);

    fn wanted(uid: &str, acknowledged: bool) -> CapacityRequest {
        CapacityRequest { uid: uid.into(), acknowledged, ..Default::default() }
    }

    fn write(acks: &mut Acks, id: u64) -> WriteId {
        let (uid, _) = acks.next(NOW, 16).unwrap_or_else(|| panic!("a write is due"));
        acks.writing(WriteId(id), uid);
        WriteId(id)
    }

    #[test]
    fn the_count_of_what_is_pending_follows_every_change() {
        let (mut acks, mut chance) = (Acks::default(), Seeded::new(1));
        acks.want(&wanted("a", false), 1, true);
        acks.want(&wanted("b", false), 2, true);
        assert_eq!(acks.pending(), 2);
        acks.confirm(2, NOW);
        let (first, second) = (write(&mut acks, 1), write(&mut acks, 2));
        acks.done(first, &Ok(()), NOW, true, &mut chance);
        assert_eq!(acks.pending(), 1);
        acks.listing();
        assert_eq!(acks.pending(), 1, "in doubt, it still counts as written");
        acks.want(&wanted("a", false), 3, true);
        assert_eq!(acks.pending(), 2, "the list has shown that it is not");
        acks.done(second, &Err(WriteError::Gone), NOW, true, &mut chance);
        assert_eq!(acks.pending(), 1);
        acks.confirm(3, NOW);
        let third = write(&mut acks, 3);
        acks.done(third, &Ok(()), NOW, true, &mut chance);
        assert_eq!(acks.pending(), 0);
        acks.want(&wanted("a", true), 4, false);
        acks.retain(|_| false);
        assert_eq!((acks.pending(), acks.entries.len()), (0, 0));
    }

    #[test]
    fn an_answer_to_a_write_that_is_out_of_date_changes_nothing() {
        let (mut acks, mut chance) = (Acks::default(), Seeded::new(1));
        acks.want(&wanted("a", false), 1, true);
        acks.confirm(1, NOW);
        let old = write(&mut acks, 1);
        // The watch shows our own write, then that somebody took it back, and only then comes the answer.
        acks.want(&wanted("a", true), 2, false);
        acks.want(&wanted("a", false), 3, false);
        acks.done(old, &Ok(()), NOW, true, &mut chance);
        assert_eq!(acks.pending(), 1, "it waits for the next roll-up");
        acks.confirm(3, NOW);
        assert!(acks.next(NOW, 16).is_some());
    }
}
