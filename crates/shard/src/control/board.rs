//! Actions that are decided and not yet started. Every cycle replaces them all, so nothing stale ever runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bigfleet_engine::ActionKind;
use bigfleet_types::{ClusterId, MachineId};

use super::flight::Work;

/// The board.
#[derive(Debug, Default)]
pub(super) struct Board {
    preempts: VecDeque<Work>,
    acquisitions: VecDeque<Work>,
    releases: VecDeque<Work>,
    /// Whether the action before was a release: releases and others take turns.
    turn: bool,
}

/// What is busy now.
pub(super) struct Busy {
    pub(super) slots: usize,
    pub(super) releases: usize,
    /// Blobs asked for, by cluster.
    pub(super) fetching: BTreeMap<ClusterId, usize>,
}

/// What may be busy.
pub(super) struct Limits {
    pub(super) slots: usize,
    pub(super) fetching: usize,
}

/// Names an action across cycles.
pub type WorkKey = (MachineId, ActionKind, Option<ClusterId>);

fn key(work: &Work) -> WorkKey {
    (work.action.machine.clone(), work.kind(), work.action.cluster.clone())
}

impl Board {
    /// Puts up a cycle's actions in its order. Gives the keys of those that wait from before.
    pub(super) fn replace(&mut self, works: Vec<Work>) -> BTreeSet<WorkKey> {
        let before = self.all().map(key).collect();
        self.clear();
        for work in works {
            let queue = match work.kind() {
                ActionKind::Preempt => &mut self.preempts,
                ActionKind::Bootstrap | ActionKind::Provision => &mut self.acquisitions,
                ActionKind::Reclaim | ActionKind::Delete => &mut self.releases,
            };
            queue.push_back(work);
        }
        before
    }

    pub(super) fn clear(&mut self) {
        self.preempts.clear();
        self.acquisitions.clear();
        self.releases.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.preempts.len() + self.acquisitions.len() + self.releases.len()
    }

    fn all(&self) -> impl Iterator<Item = &Work> {
        self.preempts.iter().chain(&self.acquisitions).chain(&self.releases)
    }

    /// The next action for a free worker: Preempts, then acquisitions in the order of their Needs, with an eighth of
    /// the workers kept for releases as long as there are any.
    pub(super) fn next(&mut self, busy: &Busy, limits: &Limits) -> Option<Work> {
        if busy.slots >= limits.slots {
            return None;
        }
        let share = (limits.slots / 8).max(1);
        let others = !self.preempts.is_empty() || !self.acquisitions.is_empty();
        if busy.releases < share
            && !(others && self.turn)
            && let Some(release) = self.releases.pop_front()
        {
            self.turn = true;
            return Some(release);
        }
        self.turn = false;
        if let Some(preempt) = self.preempts.pop_front() {
            return Some(preempt);
        }
        let open = |work: &Work| {
            let busy = work.action.cluster.as_ref().and_then(|cluster| busy.fetching.get(cluster));
            work.kind() != ActionKind::Bootstrap || busy.is_none_or(|n| *n < limits.fetching)
        };
        match self.acquisitions.iter().position(open) {
            Some(i) => self.acquisitions.remove(i),
            None => self.releases.pop_front(),
        }
    }
}
