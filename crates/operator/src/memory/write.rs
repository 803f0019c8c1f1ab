//! The API server's side of the operator's writes, evictions above all.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::UnixNanos;

use super::object::DisruptionReason;
use super::store::Store;
use super::watch::Key;
use crate::io::{Input, Uid, Write, WriteError};

/// After how long a throttled eviction may be tried again.
const THROTTLED: Duration = Duration::from_millis(100);

impl Store {
    /// Carries out a write, or answers as an API server would.
    ///
    /// # Errors
    /// `Gone` for what does not exist (any more), `TooMany` when a disruption budget forbids an eviction, `Other` when
    /// several budgets cover one pod. An injected failure is a `Conflict`, or throttling for an eviction.
    pub fn write(&mut self, now: UnixNanos, write: &Write) -> Result<(), WriteError> {
        self.writes += 1;
        let unlucky = self.config.conflict_every;
        let ahead = self.conflicts_ahead > 0;
        self.conflicts_ahead = self.conflicts_ahead.saturating_sub(1);
        if ahead || (unlucky > 0 && self.writes.is_multiple_of(u64::from(unlucky))) {
            return Err(match write {
                // To an eviction a conflict would say that the pod is another one by now.
                Write::Evict { .. } => WriteError::TooMany {
                    retry_after: Some(THROTTLED),
                    message: "the server is throttling".to_owned(),
                },
                _ => WriteError::Conflict,
            });
        }
        match write {
            Write::AcknowledgeRequest { uid, .. } => {
                let request = self.requests.values_mut().find(|request| request.uid == *uid);
                let request = request.ok_or(WriteError::Gone)?;
                if !request.acknowledged {
                    Arc::make_mut(request).acknowledged = true;
                    let request = Arc::clone(request);
                    self.watch.publish(now, Key::Request(uid.clone()), Input::Request(request));
                }
                Ok(())
            }
            Write::Cordon { node, uid, annotations } => self.patch_node(now, node, uid, |node| {
                node.unschedulable = true;
                node.annotations.extend(annotations.clone());
            }),
            Write::Uncordon { node, uid, annotations } => self.patch_node(now, node, uid, |node| {
                node.unschedulable = false;
                node.annotations.retain(|key, _| !annotations.contains(key));
            }),
            Write::LabelNode { node, uid, labels } => {
                self.patch_node(now, node, uid, |node| node.labels.extend(labels.clone()))
            }
            Write::Evict { pod, grace, .. } => self.evict(now, pod, *grace),
            Write::DeletePod { pod, .. } => {
                if !self.pods.contains_key(pod) {
                    return Err(WriteError::Gone);
                }
                self.end_pod(now, pod, Duration::ZERO, DisruptionReason::Deleted);
                self.drop_pod(now, pod);
                Ok(())
            }
            Write::DeleteNode { node, uid } => {
                let record = self.nodes.get(node).filter(|record| record.node.uid == *uid);
                let machine = record.ok_or(WriteError::Gone)?.machine.clone();
                self.remove_node(now, &machine);
                Ok(())
            }
            Write::PutUpcomingNode(upcoming) => {
                let machine = upcoming.machine.clone();
                let machine = machine.ok_or_else(|| WriteError::Other("no machine is named".to_owned()))?;
                self.upcoming.insert(machine.clone(), (**upcoming).clone());
                let input = Input::UpcomingNode(upcoming.clone());
                self.watch.publish(now, Key::Upcoming(machine), input);
                Ok(())
            }
            Write::DeleteUpcomingNode { machine } => {
                self.upcoming.remove(machine).ok_or(WriteError::Gone)?;
                self.watch.publish_gone(now, Key::Upcoming(machine.clone()));
                Ok(())
            }
            Write::PutAvailableCapacity(available) => {
                self.available.insert(available.key.clone(), (**available).clone());
                Ok(())
            }
            Write::DeleteAvailableCapacity { key } => {
                self.available.remove(key).map(|_| ()).ok_or(WriteError::Gone)
            }
        }
    }

    fn patch_node(
        &mut self,
        now: UnixNanos,
        name: &str,
        uid: &Uid,
        patch: impl FnOnce(&mut crate::io::Node),
    ) -> Result<(), WriteError> {
        let record =
            self.nodes.get_mut(name).filter(|record| record.node.uid == *uid).ok_or(WriteError::Gone)?;
        let before = record.node.clone();
        patch(&mut record.node);
        if record.node != before {
            self.publish_node(now, name);
        }
        Ok(())
    }

    /// Evicts a pod unless a budget needs it. A pod that does not run yet is not healthy, so no budget holds it.
    fn evict(&mut self, now: UnixNanos, uid: &Uid, grace: Duration) -> Result<(), WriteError> {
        let pod = self.pods.get(uid).ok_or(WriteError::Gone)?;
        if pod.gone_at.is_some() {
            return Ok(());
        }
        let mut covering = self
            .budgets
            .values()
            .filter(|budget| budget.deployment == pod.deployment && budget.namespace == pod.namespace);
        if let Some(budget) = covering.next() {
            if let Some(second) = covering.next() {
                return Err(WriteError::Other(format!(
                    "PDB {0}/{1} and PDB {0}/{2} both cover the pod; eviction takes at most one",
                    budget.namespace, budget.name, second.name
                )));
            }
            let peers = self.pods.values().filter(|peer| peer.deployment == pod.deployment);
            let healthy = peers.filter(|peer| peer.is_healthy(now)).count();
            let needed = usize::try_from(budget.min_available).unwrap_or(usize::MAX);
            if pod.is_healthy(now) && healthy <= needed {
                self.counts.refused += 1;
                return Err(WriteError::TooMany {
                    retry_after: None,
                    message: format!(
                        "PDB {}/{} needs {needed} healthy pods and has {healthy}",
                        budget.namespace, budget.name
                    ),
                });
            }
        }
        self.end_pod(now, uid, grace, DisruptionReason::Evicted);
        Ok(())
    }
}
