//! Lists, whole or since a cursor.
//!
//! A cursor is a revision in decimal digits. A whole list is the delta since revision 0: both go in the order of
//! revisions, so that a capped answer ends with a cursor from which the next one goes on, and a walk meets every
//! machine exactly once although machines change meanwhile.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineState;

use super::{Table, Touched};

/// One answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// Machines in the order of their latest change.
    pub machines: Vec<Arc<pb::Machine>>,
    /// The cursor for the next call.
    pub revision: u64,
    /// Machines that are gone since the cursor that was given; empty in a whole list.
    pub removed: Vec<String>,
}

impl Table {
    /// Machines in one of `states` (empty: any) that changed since `cursor`, at most `limit` of them (0: all). A
    /// cursor that this provider did not give, or one too old to know all removals, means everything.
    #[must_use]
    pub fn list(&self, states: &BTreeSet<MachineState>, limit: usize, cursor: &[u8]) -> Page {
        let since = self.parse_cursor(cursor);
        let mut page = Page { revision: self.head, ..Page::default() };
        let range = (Bound::Excluded(since.unwrap_or(0)), Bound::Included(self.head));
        for (revision, touched) in self.revisions.range(range) {
            match touched {
                Touched::Removed(id) if since.is_some() => page.removed.push(id.clone()),
                Touched::Removed(_) => {}
                Touched::Changed(id) => {
                    let Some(record) = self.records.get(id) else { continue };
                    if !states.is_empty() && !states.contains(&record.state) {
                        continue;
                    }
                    page.machines.push(Arc::clone(&record.machine));
                    if page.machines.len() == limit {
                        page.revision = *revision;
                        break;
                    }
                }
            }
        }
        page
    }

    fn parse_cursor(&self, cursor: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(cursor).ok()?;
        let revision: u64 = text.parse().ok()?;
        let ours = revision.to_string() == text && revision <= self.head && revision >= self.horizon;
        ours.then_some(revision)
    }
}
