//! The cluster's own controllers: time passes, deployments get their pods, pods get their CapacityRequests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_types::UnixNanos;

use super::object::DisruptionReason;
use super::store::{PodRecord, Store};
use super::watch::Key;
use crate::io::{CapacityRequest, Input, Uid};

impl Store {
    /// Lets everything happen that is due, and gives the watch events that have arrived.
    pub fn step(&mut self, now: UnixNanos) -> Vec<Input> {
        self.end_pods(now);
        self.make_nodes_ready(now);
        self.run_deployments(now);
        self.bind_pods(now);
        self.run_pod_controller(now);
        if self.watch.mend(now) {
            self.relist(now);
        }
        self.watch.due(now)
    }

    /// When [`Store::step`] has something to do next; `None` until somebody changes something.
    #[must_use]
    pub fn next_wake(&self, now: UnixNanos) -> Option<UnixNanos> {
        let pods = self.pods.values().flat_map(|pod| [pod.gone_at, pod.runs_at]).flatten();
        let nodes = self.nodes.values().filter(|node| !node.node.ready).map(|node| node.ready_at);
        // A pod that already runs wakes nobody; one whose end is due does, whenever that was.
        let ends_due = self.pods.values().filter_map(|pod| pod.gone_at).filter(|at| *at <= now);
        let ahead = pods.filter(|at| *at > now);
        ends_due.chain(ahead).chain(nodes).chain(self.watch.next_wake()).min()
    }

    fn end_pods(&mut self, now: UnixNanos) {
        let due = self.pods.iter().filter(|(_, pod)| pod.gone_at.is_some_and(|at| at <= now));
        let due: Vec<Uid> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.drop_pod(now, &uid);
        }
    }

    fn make_nodes_ready(&mut self, now: UnixNanos) {
        let due = self.nodes.iter().filter(|(_, node)| !node.node.ready && node.ready_at <= now);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            if let Some(record) = self.nodes.get_mut(&name) {
                record.node.ready = true;
            }
            self.publish_node(now, &name);
        }
    }

    /// A pod that is on its way out counts no longer, so its replacement is made at once.
    fn run_deployments(&mut self, now: UnixNanos) {
        let mut live: BTreeMap<&str, Vec<&Uid>> = BTreeMap::new();
        for (uid, pod) in self.pods.iter().filter(|(_, pod)| pod.gone_at.is_none()) {
            live.entry(&pod.deployment).or_default().push(uid);
        }
        let mut missing: Vec<(String, Option<String>)> = Vec::new();
        let mut surplus: Vec<Uid> = Vec::new();
        for (name, (deployment, ..)) in &self.deployments {
            let mut have = live.remove(name.as_str()).unwrap_or_default();
            if deployment.daemon_set {
                for node in self.nodes.keys() {
                    let there =
                        |uid: &&Uid| self.pods.get(*uid).is_some_and(|pod| pod.node.as_ref() == Some(node));
                    if !have.iter().any(there) {
                        missing.push((name.clone(), Some(node.clone())));
                    }
                }
                continue;
            }
            let want = usize::try_from(deployment.replicas).unwrap_or(usize::MAX);
            for _ in have.len()..want {
                missing.push((name.clone(), None));
            }
            // Pods that wait go first, then the youngest.
            have.sort_by_key(|uid| (self.pods.get(*uid).is_some_and(|pod| pod.node.is_none()), *uid));
            surplus.extend(have.drain(have.len().min(want)..).cloned());
        }
        for (name, node) in missing {
            self.make_pod(now, &name, node);
        }
        for uid in surplus {
            let grace = self.pods.get(&uid).map(|pod| pod.spec.termination_grace).unwrap_or_default();
            self.end_pod(now, &uid, grace, DisruptionReason::ScaledDown);
        }
        // Those that were never bound end at once.
        self.end_pods(now);
    }

    fn make_pod(&mut self, now: UnixNanos, deployment: &str, node: Option<String>) {
        let uid = self.fresh_uid("pod");
        let Some((owner, spec, requests)) = self.deployments.get(deployment) else { return };
        let suffix = uid.trim_start_matches("pod-").trim_start_matches('0');
        let record = PodRecord {
            namespace: owner.namespace.clone(),
            name: format!("{deployment}-{suffix}"),
            deployment: deployment.to_owned(),
            daemon_set: owner.daemon_set,
            spec: Arc::clone(spec),
            requests: requests.clone(),
            runs_at: node.is_some().then(|| now.after(self.config.pod_start)),
            node,
            gone_at: None,
        };
        self.pods.insert(uid.clone(), record);
        self.publish_pod(now, &uid);
    }

    /// One CapacityRequest a pod, bound or not, while the pod exists. DaemonSet pods have none: their demand would
    /// grow with every node that it buys.
    fn run_pod_controller(&mut self, now: UnixNanos) {
        let mut stale: Vec<Uid> = Vec::new();
        for pod in self.requests.keys() {
            if !self.pods.contains_key(pod) {
                stale.push(pod.clone());
            }
        }
        for pod in stale {
            if let Some(request) = self.requests.remove(&pod) {
                self.watch.publish_gone(now, Key::Request(request.uid.clone()));
            }
        }
        let wanted = |(uid, pod): &(&Uid, &PodRecord)| {
            !pod.daemon_set && pod.gone_at.is_none() && !self.requests.contains_key(*uid)
        };
        let new: Vec<Uid> = self.pods.iter().filter(wanted).map(|(uid, _)| uid.clone()).collect();
        for pod_uid in new {
            let uid = self.fresh_uid("request");
            let Some(pod) = self.pods.get(&pod_uid) else { continue };
            let request = Arc::new(request_of(uid.clone(), pod));
            self.requests.insert(pod_uid, Arc::clone(&request));
            self.watch.publish(now, Key::Request(uid), Input::Request(request));
        }
    }
}

fn request_of(uid: Uid, pod: &PodRecord) -> CapacityRequest {
    let spec = &pod.spec;
    let mut requirements = spec.requirements.clone();
    if requirements.is_empty() {
        let any_type = "node.kubernetes.io/instance-type".to_owned();
        requirements.push((any_type, "Exists".to_owned(), Vec::new()));
    }
    CapacityRequest {
        uid,
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        deleting: false,
        requirements,
        resources: spec.requests.clone(),
        priority: spec.priority,
        interruption_penalty: spec.interruption_penalty.clone(),
        reclamation_penalty: spec.reclamation_penalty.clone(),
        topology_spread: spec.topology_spread.clone(),
        co_location: spec.co_location.clone(),
        acknowledged: false,
    }
}
