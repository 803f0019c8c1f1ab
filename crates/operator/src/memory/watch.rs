//! Watch events on their way to the operator: late, in order for one object, out of order across objects, and lost
//! while the watch is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{MachineId, UnixNanos};

use crate::io::{CapacityRequest, Input, Uid};

/// An object that is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Request(Uid),
    Node(String),
    Pod(Uid),
    Upcoming(MachineId),
    Available(String),
    /// The version of the API server.
    Version,
    /// The end of the list of a node's pods.
    PodsListed(String),
    /// The end of the list of requests.
    Synced,
}

impl Key {
    /// The event that says that the object is gone.
    /// `None` for what nobody is told to be gone.
    pub(super) fn gone(&self) -> Option<Input> {
        match self {
            Self::Request(uid) => Some(Input::RequestGone(uid.clone())),
            Self::Node(name) => Some(Input::NodeGone(name.clone())),
            Self::Pod(uid) => Some(Input::PodGone(uid.clone())),
            Self::Upcoming(machine) => Some(Input::UpcomingNodeGone(machine.clone())),
            Self::Version | Self::Available(_) | Self::PodsListed(_) | Self::Synced => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    latency: Duration,
    jitter: Duration,
    chance: Seeded,
    /// By when it is due, then by arrival.
    queue: BTreeMap<(UnixNanos, u64), (Key, Input)>,
    arrivals: u64,
    /// When the last queued event of an object is due: nothing of it may overtake that.
    last: BTreeMap<Key, UnixNanos>,
    /// When a list that replaces what is known is due: nothing published after it may overtake it.
    floor: UnixNanos,
    /// What the operator has been told of and not been told to be gone.
    told: BTreeSet<Key>,
    broken_until: Option<UnixNanos>,
}

impl Watch {
    pub(super) fn new(latency: Duration, jitter: Duration, seed: u64) -> Self {
        Self {
            latency,
            jitter,
            chance: Seeded::new(seed),
            queue: BTreeMap::new(),
            arrivals: 0,
            last: BTreeMap::new(),
            floor: UnixNanos::default(),
            told: BTreeSet::new(),
            broken_until: None,
        }
    }

    /// Queues an event, unless the watch is broken.
    pub(super) fn publish(&mut self, now: UnixNanos, key: Key, input: Input) {
        if self.broken_until.is_some() {
            return;
        }
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let wait = self.latency + Duration::from_nanos(self.chance.below(jitter.saturating_add(1)));
        let due = now.after(wait).max(self.last.get(&key).copied().unwrap_or_default()).max(self.floor);
        self.push(due, key, input);
    }

    fn push(&mut self, due: UnixNanos, key: Key, input: Input) {
        self.last.insert(key.clone(), due);
        self.arrivals += 1;
        self.queue.insert((due, self.arrivals), (key, input));
    }

    /// Queues the end of an object, unless the watch is broken.
    pub(super) fn publish_gone(&mut self, now: UnixNanos, key: Key) {
        if let Some(gone) = key.gone() {
            self.publish(now, key, gone);
        }
    }

    /// Queues an event behind everything that is queued, unless the watch is broken.
    pub(super) fn publish_last(&mut self, now: UnixNanos, key: Key, input: Input) {
        if self.broken_until.is_none() {
            let due = self.queue.last_key_value().map_or(now, |((due, _), _)| *due).max(now);
            self.push(due, key, input);
        }
    }

    /// Queues a second list of the requests: it arrives as one piece and replaces what is known.
    pub(super) fn publish_list(&mut self, now: UnixNanos, requests: Vec<Arc<CapacityRequest>>) {
        let due = now.after(self.latency).max(self.floor);
        self.floor = due;
        self.told.retain(|key| !matches!(key, Key::Request(_)));
        self.push(due, Key::Synced, Input::Listing);
        for request in requests {
            self.push(due, Key::Request(request.uid.clone()), Input::Request(request));
        }
        self.push(due, Key::Synced, Input::Synced);
    }

    /// The events that are due.
    pub(super) fn due(&mut self, now: UnixNanos) -> Vec<Input> {
        let mut out = Vec::new();
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= now
        {
            let (due, (key, input)) = (entry.key().0, entry.remove());
            if key.gone().is_some_and(|gone| std::mem::discriminant(&gone) == std::mem::discriminant(&input))
            {
                self.told.remove(&key);
                if self.last.get(&key) == Some(&due) {
                    self.last.remove(&key);
                }
            } else {
                self.told.insert(key);
            }
            out.push(input);
        }
        out
    }

    /// Breaks the watch: queued events are lost and none is queued until [`Self::mend`] says that it is time to
    /// list anew.
    pub(super) fn break_until(&mut self, until: UnixNanos) {
        self.queue.clear();
        self.last.clear();
        self.broken_until = Some(until);
    }

    /// Whether the watch has just come back: the caller lists all objects.
    pub(super) fn mend(&mut self, now: UnixNanos) -> bool {
        let back = self.broken_until.is_some_and(|until| until <= now);
        if back {
            self.broken_until = None;
        }
        back
    }

    /// Forgets the operator: another one starts from nothing.
    pub(super) fn restart(&mut self) {
        self.queue.clear();
        self.last.clear();
        self.told.clear();
        self.floor = UnixNanos::default();
        self.broken_until = None;
    }

    /// What the operator believes to exist.
    pub(super) fn told(&self) -> Vec<Key> {
        self.told.iter().cloned().collect()
    }

    pub(super) fn next_wake(&self) -> Option<UnixNanos> {
        let due = self.queue.first_key_value().map(|((due, _), _)| *due);
        due.into_iter().chain(self.broken_until).min()
    }
}
