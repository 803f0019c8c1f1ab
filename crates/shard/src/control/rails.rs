//! Rails: they change how fast an answer of the engine is carried out, never what it is.

use std::collections::{BTreeMap, VecDeque};

use bigfleet_engine::{Action, ActionKind};
use bigfleet_types::{ClusterId, UnixNanos};

use super::config::RECLAIM_WINDOW;

/// Counts Reclaims in wall-clock time.
#[derive(Debug, Default)]
pub(super) struct Rails {
    started: BTreeMap<ClusterId, VecDeque<UnixNanos>>,
}

/// How many Reclaims a cluster with so many Configured machines may see in one window; `None`: any number.
fn cap(fraction: f64, configured: usize) -> Option<usize> {
    // Parts per million, so that 0.05 of 20 is 1 and not a hair less.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float to integer `as` saturates; negative fractions disable the rail as zero does"
    )]
    let ppm = (fraction * 1e6 + 0.5).floor() as u64;
    if ppm == 0 {
        return None;
    }
    let cap = u128::from(ppm) * u128::try_from(configured).unwrap_or(u128::MAX) / 1_000_000;
    Some(usize::try_from(cap).unwrap_or(usize::MAX).max(1))
}

impl Rails {
    /// A Reclaim of the cluster began.
    pub(super) fn reclaimed(&mut self, now: UnixNanos, cluster: &ClusterId) {
        self.started.entry(cluster.clone()).or_default().push_back(now);
    }

    fn spent(&mut self, now: UnixNanos, cluster: &ClusterId) -> usize {
        let Some(started) = self.started.get_mut(cluster) else { return 0 };
        while started.front().is_some_and(|at| now.since(*at) >= RECLAIM_WINDOW) {
            started.pop_front();
        }
        if started.is_empty() {
            self.started.remove(cluster);
            return 0;
        }
        started.len()
    }

    /// Keeps the head of each cluster's Reclaims. Gives how many were put off.
    pub(super) fn cap_reclaims(
        &mut self,
        now: UnixNanos,
        fraction: f64,
        actions: &mut Vec<&Action>,
        configured: impl Fn(&ClusterId) -> usize,
    ) -> usize {
        let mut left: BTreeMap<&ClusterId, Option<usize>> = BTreeMap::new();
        let before = actions.len();
        actions.retain(|action| {
            let Some(cluster) = action.cluster.as_ref().filter(|_| action.kind == ActionKind::Reclaim) else {
                return true;
            };
            let left = left.entry(cluster).or_insert_with(|| {
                cap(fraction, configured(cluster)).map(|cap| cap.saturating_sub(self.spent(now, cluster)))
            });
            match left {
                None => true,
                Some(0) => false,
                Some(n) => {
                    *n -= 1;
                    true
                }
            }
        });
        before - actions.len()
    }
}

/// Keeps at most `limit` actions (0: all): Preempts first, at least a tenth for Reclaims and Deletes if there are any,
/// then acquisitions, then what else fits. Gives how many were put off.
pub(super) fn cap_actions(limit: usize, actions: &mut Vec<&Action>) -> usize {
    if limit == 0 || actions.len() <= limit {
        return 0;
    }
    let count = |wanted: fn(ActionKind) -> bool| actions.iter().filter(|a| wanted(a.kind)).count();
    let releases = count(is_release);
    let mut preempts = count(|kind| kind == ActionKind::Preempt).min(limit);
    let reserve = releases.min(limit.div_ceil(10));
    preempts = preempts.min(limit - reserve);
    let mut acquisitions = count(is_acquisition).min(limit - reserve - preempts);
    let mut releases = releases.min(limit - preempts - acquisitions);
    let before = actions.len();
    actions.retain(|action| {
        let left = match action.kind {
            ActionKind::Preempt => &mut preempts,
            kind if is_acquisition(kind) => &mut acquisitions,
            _ => &mut releases,
        };
        let keep = *left > 0;
        *left = left.saturating_sub(1);
        keep
    });
    before - actions.len()
}

fn is_release(kind: ActionKind) -> bool {
    matches!(kind, ActionKind::Reclaim | ActionKind::Delete)
}

fn is_acquisition(kind: ActionKind) -> bool {
    matches!(kind, ActionKind::Bootstrap | ActionKind::Provision)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bigfleet_types::MachineId;

    use super::*;

    fn action(kind: ActionKind, n: usize) -> Action {
        Action {
            kind,
            machine: MachineId::trusted(format!("m{n}")),
            cluster: Some(ClusterId::trusted("a")),
            need: None,
            need_key: None,
            grace: Duration::ZERO,
            preemptor_priority: 0,
        }
    }

    #[test]
    fn ex53_reclaim_cap() {
        assert_eq!([100, 95, 20, 19, 5, 0].map(|n| cap(0.05, n)), [5, 4, 1, 1, 1, 1].map(Some));
        assert_eq!(cap(0.29, 100), Some(29));
        assert_eq!([cap(0.0, 100), cap(-1.0, 100)], [None, None]);

        let all: Vec<Action> = (0..100)
            .map(|n| action(ActionKind::Reclaim, n))
            .chain((100..103).map(|n| action(ActionKind::Preempt, n)))
            .collect();
        let cluster = ClusterId::trusted("a");
        let mut rails = Rails::default();
        let at = |s: u64| UnixNanos(0).after(Duration::from_secs(s));
        let mut run = |now, configured| {
            let mut actions: Vec<&Action> = all.iter().collect();
            let put_off = rails.cap_reclaims(now, 0.05, &mut actions, |_| configured);
            assert_eq!(actions.iter().filter(|a| a.kind == ActionKind::Preempt).count(), 3);
            let kept: Vec<&str> = actions
                .iter()
                .filter(|a| a.kind == ActionKind::Reclaim)
                .map(|a| a.machine.as_str())
                .collect();
            assert_eq!(kept, (0..100 - put_off).map(|n| format!("m{n}")).collect::<Vec<_>>());
            kept.iter().for_each(|_| rails.reclaimed(now, &cluster));
            kept.len()
        };
        assert_eq!(run(at(0), 100), 5);
        assert_eq!(run(at(1), 95), 0, "the cap is per 10 s of time, not per cycle");
        assert_eq!(run(at(10), 95), 4);
    }

    #[test]
    fn the_limit_starves_no_phase() {
        let all: Vec<Action> = (0..50)
            .map(|n| action(ActionKind::Bootstrap, n))
            .chain((50..53).map(|n| action(ActionKind::Preempt, n)))
            .chain((53..70).map(|n| action(ActionKind::Delete, n)))
            .collect();
        let kept = |limit| {
            let mut actions: Vec<&Action> = all.iter().collect();
            let put_off = cap_actions(limit, &mut actions);
            assert_eq!(actions.len() + put_off, all.len());
            [is_acquisition, (|kind| kind == ActionKind::Preempt) as fn(ActionKind) -> bool, is_release]
                .map(|wanted| actions.iter().filter(|a| wanted(a.kind)).count())
        };
        assert_eq!(kept(0), [50, 3, 17]);
        assert_eq!(kept(20), [15, 3, 2]);
        assert_eq!(kept(60), [50, 3, 7]);
        assert_eq!(kept(1), [0, 0, 1]);
    }
}
