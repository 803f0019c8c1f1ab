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
    /// Those that wait for an operator, by cluster.
    pub(super) waiting: BTreeMap<ClusterId, usize>,
}

/// What may be busy.
pub(super) struct Limits {
    pub(super) slots: usize,
    pub(super) waiting: usize,
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
        // Whoever needs an operator that keeps others waiting does not begin.
        let open = |work: &Work| {
            let busy = work.action.cluster.as_ref().and_then(|cluster| busy.waiting.get(cluster));
            !matches!(work.kind(), ActionKind::Bootstrap | ActionKind::Reclaim)
                || busy.is_none_or(|n| *n < limits.waiting)
        };
        let take = |queue: &mut VecDeque<Work>| queue.iter().position(open).and_then(|i| queue.remove(i));
        let others = !self.preempts.is_empty() || !self.acquisitions.is_empty();
        if busy.releases < share
            && !(others && self.turn)
            && let Some(release) = take(&mut self.releases)
        {
            self.turn = true;
            return Some(release);
        }
        self.turn = false;
        if let Some(preempt) = self.preempts.pop_front() {
            return Some(preempt);
        }
        take(&mut self.acquisitions).or_else(|| take(&mut self.releases))
    }
}
