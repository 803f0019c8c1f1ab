//! Bindings that ended, for operators that may not have heard of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, UnixNanos};

const PER_CLUSTER: usize = 10_000;
const LAST: Duration = Duration::from_secs(24 * 3600);
/// A frame that an open session has had for this long was written, or the session would have been closed.
const SURELY_WRITTEN: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Ending {
    at: UnixNanos,
    machine: Arc<Machine>,
    state: MachineState,
}

/// The endings of one cluster.
#[derive(Debug, Default)]
struct OfCluster {
    by_id: BTreeMap<MachineId, Ending>,
    by_age: BTreeSet<(UnixNanos, MachineId)>,
}

impl OfCluster {
    fn insert(&mut self, ending: Ending) {
        let id = ending.machine.id.clone();
        self.remove(&id);
        self.by_age.insert((ending.at, id.clone()));
        self.by_id.insert(id, ending);
    }

    fn remove(&mut self, id: &MachineId) {
        if let Some(ending) = self.by_id.remove(id) {
            self.by_age.remove(&(ending.at, id.clone()));
        }
    }

    /// Drops the oldest as long as `drop` holds for their age. Gives how many.
    fn drop_while(&mut self, mut drop: impl FnMut(UnixNanos, usize) -> bool) -> usize {
        let mut dropped = 0;
        while let Some((at, id)) = self.by_age.first().cloned()
            && drop(at, self.by_id.len())
        {
            self.remove(&id);
            dropped += 1;
        }
        dropped
    }
}

/// The endings of all clusters: at most 10,000 a cluster, none older than a day.
#[derive(Debug, Default)]
pub(super) struct Endings(BTreeMap<ClusterId, OfCluster>);

impl Endings {
    /// Keeps an ending. `opened`: since when the cluster's operator is connected. Gives how many endings that nobody
    /// may have heard of made room for it.
    pub(super) fn remember(
        &mut self,
        now: UnixNanos,
        opened: Option<UnixNanos>,
        cluster: &ClusterId,
        machine: Arc<Machine>,
        state: MachineState,
    ) -> usize {
        let endings = self.0.entry(cluster.clone()).or_default();
        endings.insert(Ending { at: now, machine, state });
        if endings.by_id.len() <= PER_CLUSTER {
            return 0;
        }
        endings.drop_while(|at, _| {
            let written = opened.is_some_and(|opened| now.since(at.max(opened)) >= SURELY_WRITTEN);
            written || now.since(at) >= LAST
        });
        endings.drop_while(|_, kept| kept > PER_CLUSTER)
    }

    /// The machine serves the cluster again.
    pub(super) fn forget(&mut self, cluster: &ClusterId, id: &MachineId) {
        if let Some(endings) = self.0.get_mut(cluster) {
            endings.remove(id);
        }
    }

    /// The session ended: what it had for long enough was written.
    pub(super) fn written(&mut self, now: UnixNanos, cluster: &ClusterId, opened: UnixNanos) {
        if let Some(endings) = self.0.get_mut(cluster) {
            endings.drop_while(|at, _| now.since(at.max(opened)) >= SURELY_WRITTEN);
        }
    }

    /// What an operator that comes back is told.
    pub(super) fn of(&self, now: UnixNanos, cluster: &ClusterId) -> Vec<(Arc<Machine>, MachineState)> {
        let endings = self.0.get(cluster).into_iter().flat_map(|endings| endings.by_id.values());
        let fresh = endings.filter(|ending| now.since(ending.at) < LAST);
        fresh.map(|ending| (ending.machine.clone(), ending.state)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> UnixNanos {
        UnixNanos(0).after(Duration::from_secs(seconds))
    }

    fn end(endings: &mut Endings, now: u64, opened: Option<u64>, n: usize) -> usize {
        let cluster = ClusterId::parse("a").unwrap();
        let machine = Arc::new(Machine::new(MachineId::trusted(format!("m{n:05}")), MachineState::Idle));
        endings.remember(at(now), opened.map(at), &cluster, machine, MachineState::Idle)
    }

    fn ids(endings: &Endings, now: u64) -> Vec<String> {
        let told = endings.of(at(now), &ClusterId::parse("a").unwrap());
        told.into_iter().map(|(machine, _)| machine.id.to_string()).collect()
    }

    #[test]
    fn the_oldest_ending_makes_room_and_is_counted() {
        let mut endings = Endings::default();
        assert!((0..PER_CLUSTER).all(|n| end(&mut endings, 1 + u64::from(n > 0), None, n) == 0));
        assert_eq!(end(&mut endings, 3, None, PER_CLUSTER), 1);
        let kept = ids(&endings, 3);
        assert_eq!(
            (kept.len(), kept[0].as_str(), kept[PER_CLUSTER - 1].as_str()),
            (10_000, "m00001", "m10000")
        );
    }

    #[test]
    fn endings_that_were_surely_written_make_room_uncounted() {
        let mut endings = Endings::default();
        assert!((0..PER_CLUSTER).all(|n| end(&mut endings, 1, Some(0), n) == 0));
        assert_eq!(end(&mut endings, 121, Some(0), PER_CLUSTER), 0);
        assert_eq!(ids(&endings, 121), ["m10000"]);
    }

    #[test]
    fn a_session_that_just_opened_has_written_nothing_yet() {
        let (mut endings, cluster) = (Endings::default(), ClusterId::parse("a").unwrap());
        end(&mut endings, 1, None, 7);
        endings.written(at(500), &cluster, at(490));
        assert_eq!(ids(&endings, 500), ["m00007"]);
        endings.written(at(500), &cluster, at(300));
        assert_eq!(ids(&endings, 500), Vec::<String>::new());
    }
}
