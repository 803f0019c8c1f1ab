//! Fencing marks: the highest accepted token per shard and machine.
//!
//! Marks exist for machines that are not there (yet, or any more) too, so that a stale caller learns nothing from the
//! answer. Those are bounded per shard, the least recently used one going first.

use std::collections::{BTreeMap, HashMap};

use super::change::Mark;

/// Marks kept per shard for machines that do not exist.
pub const MAX_GHOSTS: usize = 65_536;

/// The marks of all shards.
#[derive(Debug, Default)]
pub(super) struct Marks {
    shards: BTreeMap<String, ShardMarks>,
}

#[derive(Debug, Default)]
struct ShardMarks {
    /// The highest epoch of all of them. The mark that has it is never the least recently used one while epochs are
    /// strict: whatever is used later has it too.
    newest: Option<i64>,
    marks: BTreeMap<String, (i64, i64)>,
    ghosts: Ghosts,
}

/// Ids by the time of their last use.
#[derive(Debug, Default)]
struct Ghosts {
    uses: u64,
    by_use: BTreeMap<u64, String>,
    last_use: HashMap<String, u64>,
}

impl Marks {
    /// Whether a token is newer than the mark of its pair.
    ///
    /// # Errors
    /// The mark that it is not newer than: epoch, sequence.
    pub(super) fn check(&self, shard: &str, machine: &str, token: (i64, i64)) -> Result<(), (i64, i64)> {
        match self.shards.get(shard).and_then(|s| s.marks.get(machine)) {
            Some(mark) if token <= *mark => Err(*mark),
            _ => Ok(()),
        }
    }

    /// The highest epoch of a shard on any machine.
    pub(super) fn newest_epoch(&self, shard: &str) -> Option<i64> {
        self.shards.get(shard)?.newest
    }

    /// Whether a token of this pair was accepted before.
    pub(super) fn has(&self, shard: &str, machine: &str) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.marks.contains_key(machine))
    }

    /// Moves a mark, never back. `known` says whether the machine exists.
    pub(super) fn set(&mut self, mark: Mark, known: bool) {
        let shard = self.shards.entry(mark.shard_id).or_default();
        let token = (mark.epoch, mark.sequence);
        shard.newest = shard.newest.max(Some(mark.epoch));
        let kept = shard.marks.entry(mark.machine_id.clone()).or_insert(token);
        *kept = token.max(*kept);
        if known {
            shard.ghosts.forget(&mark.machine_id);
        } else if let Some(evicted) = shard.ghosts.touch(mark.machine_id) {
            shard.marks.remove(&evicted);
        }
    }

    /// A machine came into being: its marks are kept for good.
    pub(super) fn adopt(&mut self, machine: &str) {
        for shard in self.shards.values_mut() {
            shard.ghosts.forget(machine);
        }
    }

    /// A machine is gone for good: its marks are ghosts from now on.
    pub(super) fn orphan(&mut self, machine: &str) {
        for shard in self.shards.values_mut() {
            if shard.marks.contains_key(machine)
                && let Some(evicted) = shard.ghosts.touch(machine.to_owned())
            {
                shard.marks.remove(&evicted);
            }
        }
    }

    /// All marks; those of machines that do not exist in the order of their use.
    pub(super) fn iter(&self) -> impl Iterator<Item = Mark> + '_ {
        self.shards.iter().flat_map(|(shard_id, shard)| {
            let known = shard.marks.keys().filter(|id| !shard.ghosts.last_use.contains_key(*id));
            known.chain(shard.ghosts.by_use.values()).filter_map(move |machine_id| {
                let (epoch, sequence) = *shard.marks.get(machine_id)?;
                Some(Mark { shard_id: shard_id.clone(), machine_id: machine_id.clone(), epoch, sequence })
            })
        })
    }
}

impl Ghosts {
    fn forget(&mut self, id: &str) {
        if let Some(used) = self.last_use.remove(id) {
            self.by_use.remove(&used);
        }
    }

    /// Notes a use; gives the id that is one too many.
    fn touch(&mut self, id: String) -> Option<String> {
        self.forget(&id);
        self.uses += 1;
        self.by_use.insert(self.uses, id.clone());
        self.last_use.insert(id, self.uses);
        if self.last_use.len() <= MAX_GHOSTS {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first()?;
        self.last_use.remove(&oldest);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(shard: &str, machine: &str, epoch: i64, sequence: i64) -> Mark {
        Mark { shard_id: shard.into(), machine_id: machine.into(), epoch, sequence }
    }

    #[test]
    fn tokens_compare_by_epoch_then_sequence() {
        let mut marks = Marks::default();
        marks.set(mark("s", "m", 5, 7), true);
        for (token, passes) in
            [((5, 8), true), ((6, 0), true), ((5, 7), false), ((5, 6), false), ((4, 99), false)]
        {
            assert_eq!(marks.check("s", "m", token).is_ok(), passes, "{token:?}");
        }
        assert_eq!(marks.check("other", "m", (0, 0)), Ok(()));
        assert_eq!(marks.check("s", "other", (0, 0)), Ok(()));
        marks.set(mark("s", "m", 1, 1), true);
        assert_eq!(marks.check("s", "m", (5, 7)), Err((5, 7)), "marks never go back");
    }

    #[test]
    fn ghosts_are_bounded_per_shard_and_known_machines_are_not() {
        let mut marks = Marks::default();
        marks.set(mark("s", "real", 1, 1), true);
        for n in 0..=MAX_GHOSTS {
            marks.set(mark("s", &format!("ghost-{n}"), 1, 1), false);
        }
        assert_eq!(marks.check("s", "ghost-0", (1, 1)), Ok(()), "the least recently used one went");
        assert_eq!(marks.check("s", "ghost-1", (1, 1)), Err((1, 1)));
        assert_eq!(marks.check("s", "real", (1, 1)), Err((1, 1)));
        marks.adopt("ghost-1");
        for n in 0..=MAX_GHOSTS {
            marks.set(mark("s", &format!("more-{n}"), 1, 1), false);
        }
        assert_eq!(marks.check("s", "ghost-1", (1, 1)), Err((1, 1)), "it exists now");
        assert_eq!(marks.iter().count(), MAX_GHOSTS + 2);
    }

    #[test]
    fn marks_of_removed_machines_are_bounded() {
        let mut marks = Marks::default();
        for n in 0..=MAX_GHOSTS {
            let id = format!("m-{n}");
            marks.set(mark("s", &id, 1, 1), true);
            marks.orphan(&id);
        }
        assert_eq!(marks.iter().count(), MAX_GHOSTS);
        assert_eq!(marks.check("s", "m-0", (1, 1)), Ok(()), "the one that went first");
        assert_eq!(marks.check("s", "m-1", (1, 1)), Err((1, 1)), "fenced beyond its end");
        marks.orphan("never-heard-of");
        assert_eq!(marks.iter().count(), MAX_GHOSTS);
    }
}
