//! The binder: pods that wait go to the fullest node that takes them, most important first.

use std::collections::BTreeMap;

use bigfleet_types::{Resources, UnixNanos};

use super::store::{NodeRecord, PodRecord, Store};
use crate::io::Uid;

/// What a node has left.
struct Room<'a> {
    record: &'a NodeRecord,
    used: Resources,
    pods: i64,
}

impl Room<'_> {
    fn takes(&self, pod: &PodRecord) -> bool {
        let allocatable = &self.record.allocatable;
        let slots = allocatable.get("pods");
        (slots == 0 || self.pods < slots)
            && allocatable.covers(&self.used.add(&pod.requests))
            && pod
                .spec
                .requirements
                .iter()
                .all(|(key, operator, values)| matches(self.record.node.labels.get(key), operator, values))
    }

    /// The share in use of the scarcest resource, in parts of a million.
    fn fullness(&self) -> i128 {
        let shares = self.record.allocatable.iter().map(|(name, whole)| {
            i128::from(self.used.get(name.as_str())) * 1_000_000 / i128::from(whole.max(1))
        });
        shares.max().unwrap_or(0)
    }
}

/// Whether a label, if there is one, meets a condition as Kubernetes reads it.
fn matches(label: Option<&String>, operator: &str, values: &[String]) -> bool {
    match operator {
        "In" => label.is_some_and(|value| values.contains(value)),
        "NotIn" => label.is_none_or(|value| !values.contains(value)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

impl Store {
    /// Binds what can be bound: higher priority first, then older first; to the fullest node, then by name.
    pub(super) fn bind_pods(&mut self, now: UnixNanos) {
        let waits = |pod: &PodRecord| pod.node.is_none() && pod.gone_at.is_none();
        let mut waiting: Vec<(&Uid, &PodRecord)> = self.pods.iter().filter(|(_, pod)| waits(pod)).collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_by_key(|(uid, pod)| (std::cmp::Reverse(pod.spec.priority), *uid));
        let open = self.nodes.iter().filter(|(_, record)| record.node.ready && !record.node.unschedulable);
        let mut rooms: BTreeMap<&str, Room<'_>> = open
            .map(|(name, record)| (name.as_str(), Room { record, used: Resources::EMPTY, pods: 0 }))
            .collect();
        for pod in self.pods.values() {
            if let Some(room) = pod.node.as_deref().and_then(|node| rooms.get_mut(node)) {
                room.used = room.used.add(&pod.requests);
                room.pods += 1;
            }
        }
        let mut bound: Vec<(Uid, String)> = Vec::new();
        for (uid, pod) in waiting {
            let takers = rooms.iter_mut().filter(|(_, room)| room.takes(pod));
            let best = takers.min_by_key(|(name, room)| (std::cmp::Reverse(room.fullness()), **name));
            if let Some((name, room)) = best {
                room.used = room.used.add(&pod.requests);
                room.pods += 1;
                bound.push((uid.clone(), (*name).to_owned()));
            }
        }
        for (uid, node) in bound {
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.node = Some(node);
                pod.runs_at = Some(now.after(self.config.pod_start));
            }
            self.publish_pod(now, &uid);
        }
    }
}
