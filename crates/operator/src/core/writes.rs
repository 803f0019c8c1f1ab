//! Writes that say how one object is to look: per object at most one under way, the newest wins, failures come back.

use std::collections::{BTreeMap, HashMap};

use bigfleet_types::chance::Chance;
use bigfleet_types::{MachineId, UnixNanos};

use super::retry;
use crate::io::{Write, WriteError, WriteId};

/// Writes under way at one time.
const LIMIT: usize = 32;
/// Conflicts that are tried again quickly.
const CONFLICTS: u32 = 5;

/// What a write is about. Machines come before hints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// The UpcomingNode of a machine.
    Machine(MachineId),
    /// The cordon of a node.
    Cordon(String),
    /// The labels of a node.
    Label(String),
    /// A node whose machine left.
    Node(String),
    /// The AvailableCapacity of a key.
    Hint(String),
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Writes {
    slots: HashMap<Key, Slot>,
    queue: BTreeMap<(bool, UnixNanos, u64), Key>,
    under_way: HashMap<WriteId, Key>,
    next: u64,
}

#[derive(Debug, Default)]
struct Slot {
    wanted: Option<Write>,
    queued: Option<(bool, UnixNanos, u64)>,
    writing: Option<Write>,
    attempts: u32,
}

/// A write came back.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) key: Key,
    pub(super) write: Write,
    pub(super) result: Result<(), WriteError>,
}

impl Writes {
    /// Asks for a write. An older one of the same key that still waits is dropped.
    pub(super) fn want(&mut self, now: UnixNanos, key: Key, write: Write) {
        let slot = self.slots.entry(key.clone()).or_default();
        slot.attempts = 0;
        if slot.writing.as_ref() == Some(&write) {
            // What is under way already says so.
            slot.wanted = None;
            return;
        }
        slot.wanted = Some(write);
        self.enqueue(key, now);
    }

    /// Drops everything that waits.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.slots.retain(|_, slot| {
            slot.wanted = None;
            slot.queued = None;
            slot.writing.is_some()
        });
    }

    /// Drops what waits for `key`; gives whether a write of it is under way.
    pub(super) fn abandon(&mut self, key: &Key) -> bool {
        let Some(slot) = self.slots.get_mut(key) else {
            return false;
        };
        slot.wanted = None;
        if let Some(at) = slot.queued.take() {
            self.queue.remove(&at);
        }
        if slot.writing.is_none() {
            self.slots.remove(key);
            return false;
        }
        true
    }

    /// The newest write of `key` that has not come back, waiting or under way.
    pub(super) fn latest(&self, key: &Key) -> Option<&Write> {
        let slot = self.slots.get(key)?;
        slot.wanted.as_ref().or(slot.writing.as_ref())
    }

    /// The next write to start now.
    pub(super) fn next(&mut self, now: UnixNanos) -> Option<(Key, Write)> {
        if self.under_way.len() >= LIMIT {
            return None;
        }
        // Two look-ups: one a class, because a class that waits must not hide the other.
        let due = [false, true].into_iter().find_map(|class| {
            let first = (class, UnixNanos(i64::MIN), 0);
            self.queue.range(first..).next().map(|(at, _)| *at).filter(|at| at.0 == class && at.1 <= now)
        })?;
        let key = self.queue.remove(&due)?;
        let slot = self.slots.get_mut(&key)?;
        slot.queued = None;
        let write = slot.wanted.take()?;
        slot.writing = Some(write.clone());
        Some((key, write))
    }

    /// The write that [`Writes::next`] gave for `key` has this number.
    pub(super) fn started(&mut self, id: WriteId, key: Key) {
        self.under_way.insert(id, key);
    }

    /// A write was answered; `None` when it is none of these. What failed is tried again while `connected` and
    /// nothing newer is wanted.
    pub(super) fn done(
        &mut self,
        id: WriteId,
        result: Result<(), WriteError>,
        now: UnixNanos,
        connected: bool,
        chance: &mut dyn Chance,
    ) -> Option<Answered> {
        let key = self.under_way.remove(&id)?;
        let slot = self.slots.get_mut(&key)?;
        let write = slot.writing.take()?;
        let at = match (&result, &write) {
            _ if slot.wanted.is_some() => Some(now),
            (Ok(()), _) | (Err(WriteError::Gone), Write::Uncordon { .. } | Write::LabelNode { .. }) => None,
            (Err(WriteError::Gone), write) if deletes(write) => None,
            _ if !connected => None,
            (Err(error), _) => {
                let attempts = slot.attempts;
                slot.attempts = attempts.saturating_add(1);
                slot.wanted = Some(write.clone());
                let pause = match error {
                    WriteError::Conflict if attempts < CONFLICTS => retry::after_conflict(attempts, chance),
                    WriteError::TooMany { retry_after: Some(pause), .. } => *pause,
                    _ => retry::pause(attempts, chance),
                };
                Some(now.after(pause))
            }
        };
        match at {
            Some(at) => self.enqueue(key.clone(), at),
            None => {
                self.slots.remove(&key);
            }
        }
        Some(Answered { key, write, result })
    }

    /// When a write is due next.
    pub(super) fn next_wake(&self) -> Option<UnixNanos> {
        if self.under_way.len() >= LIMIT {
            return None;
        }
        let first = |class| self.queue.range((class, UnixNanos(i64::MIN), 0)..).next().map(|(at, _)| at.1);
        first(false).into_iter().chain(first(true)).min()
    }

    /// Puts a key into the queue, unless it is there or its write is under way.
    fn enqueue(&mut self, key: Key, at: UnixNanos) {
        let Some(slot) = self.slots.get_mut(&key).filter(|slot| slot.writing.is_none()) else {
            return;
        };
        if let Some(before) = slot.queued {
            // A retry that waits gives way to a newer write.
            self.queue.remove(&before);
        }
        self.next += 1;
        let position = (matches!(key, Key::Hint(_)), at, self.next);
        slot.queued = Some(position);
        self.queue.insert(position, key);
    }
}

fn deletes(write: &Write) -> bool {
    matches!(
        write,
        Write::DeleteUpcomingNode { .. } | Write::DeleteAvailableCapacity { .. } | Write::DeleteNode { .. }
    )
}
