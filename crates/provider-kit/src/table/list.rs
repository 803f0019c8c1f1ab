//! Lists, whole or since a cursor.
//!
//! Both go in the order of revisions, so that a capped answer ends with a cursor from which the next one goes on, and a
//! walk meets every machine exactly once although machines change meanwhile: a machine that changes during a walk
//! moves behind the revision at which the walk began, and what comes after the walk's end finds it there.
//!
//! A capped list without a cursor does not begin with the same machine each time: a caller that wants any machine of a
//! kind would be given one that another caller is about to take.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineState;

use super::Encoded;
use super::cursor::Cursor;
use super::{Table, Touched};
use crate::defects::Defect;

/// One answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// Machines in the order of their latest change, in a capped whole list from somewhere in the middle.
    pub machines: Vec<Encoded>,
    /// The cursor for the next call.
    pub cursor: Vec<u8>,
    /// Machines that are gone since the cursor that was given; empty in a whole list.
    pub removed: Vec<String>,
    /// The revision of the last machine, 0 without one: where the next capped list without a cursor begins.
    pub last: u64,
}

impl Page {
    /// Some other machines than a table's, without a cursor.
    pub(crate) fn of_past(past: &[Arc<pb::Machine>], states: &BTreeSet<MachineState>, limit: usize) -> Self {
        let wanted = |machine: &&Arc<pb::Machine>| {
            states.is_empty() || states.iter().any(|state| i32::from(state.number()) == machine.state)
        };
        let limit = if limit == 0 { usize::MAX } else { limit };
        let machines = past.iter().filter(wanted).take(limit).map(|machine| Encoded::of(machine));
        Self { machines: machines.collect(), ..Self::default() }
    }
}

impl Table {
    /// Machines in one of `states` (empty: any) that changed since `cursor`, at most `limit` of them (0: all). A
    /// cursor that this table did not give, or one too old to know all removals, means everything, which then begins
    /// after the revision `start` when it is capped.
    #[must_use]
    pub fn list(&self, states: &BTreeSet<MachineState>, limit: usize, cursor: &[u8], start: u64) -> Page {
        match self.parse_cursor(cursor) {
            Some(Cursor::Since(since)) => {
                let mut page = self.delta(states, limit, since);
                if self.switch.is(Defect::DeltaLacksNewest) {
                    page.machines.pop();
                }
                page
            }
            Some(Cursor::Walk { head, start, at }) => self.walk(states, limit, head, start, at),
            None => {
                let start = if limit == 0 { 0 } else { start.min(self.head) };
                self.walk(states, limit, self.head, start, start)
            }
        }
    }

    /// Whether these bytes are an error where a rule is broken on purpose; they never are otherwise.
    pub(crate) fn refuses_cursor(&self, cursor: &[u8]) -> bool {
        self.switch.is(Defect::GarbageCursorIsAnError)
            && !cursor.is_empty()
            && self.parse_cursor(cursor).is_none()
    }

    fn parse_cursor(&self, bytes: &[u8]) -> Option<Cursor> {
        let cursor = Cursor::read(bytes, self.identity)?;
        let (Cursor::Since(seen) | Cursor::Walk { head: seen, .. }) = cursor;
        (self.horizon..=self.head).contains(&seen).then_some(cursor)
    }

    fn delta(&self, states: &BTreeSet<MachineState>, limit: usize, since: u64) -> Page {
        let mut page = Page::default();
        let mut seen = self.head;
        for (revision, touched) in self.revisions.range((Bound::Excluded(since), Bound::Included(self.head)))
        {
            match touched {
                Touched::Removed(id) => page.removed.push(id.clone()),
                Touched::Changed { state, machine, .. } => {
                    if states.is_empty() || states.contains(state) {
                        if limit > 0 && page.machines.len() == limit {
                            seen = page.last;
                            break;
                        }
                        page.machines.push(machine.clone());
                        page.last = *revision;
                    }
                }
            }
        }
        page.cursor = Cursor::Since(seen).write(self.identity);
        page
    }

    /// Pages of a whole list: `(start, head]` and then `(0, start]`, from after `at`.
    fn walk(&self, states: &BTreeSet<MachineState>, limit: usize, head: u64, start: u64, at: u64) -> Page {
        let range = |from, to| self.revisions.range((Bound::Excluded(from), Bound::Included(to)));
        let (first, second) =
            if at >= start { ((at, head), (0, start)) } else { ((at, start), (start, start)) };
        // An excluded and an included bound that are equal are a panic of the map.
        let first = (first.0 < first.1).then(|| range(first.0, first.1)).into_iter().flatten();
        let second = (second.0 < second.1).then(|| range(second.0, second.1)).into_iter().flatten();
        let mut page = Page::default();
        let mut end = Cursor::Since(head);
        for (revision, touched) in first.chain(second) {
            let Touched::Changed { state, machine, .. } = touched else { continue };
            if states.is_empty() || states.contains(state) {
                if limit > 0 && page.machines.len() == limit {
                    end = Cursor::Walk { head, start, at: page.last };
                    break;
                }
                page.machines.push(machine.clone());
                page.last = *revision;
            }
        }
        page.cursor = end.write(self.identity);
        page
    }
}
