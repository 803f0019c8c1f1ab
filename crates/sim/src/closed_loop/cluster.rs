//! A cluster: its pods, where they run, and what it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bigfleet_engine::matches;
use bigfleet_operator::aggregate::Aggregate;
use bigfleet_types::chance::{Chance, shuffle};
use bigfleet_types::{ClusterId, Machine, MachineId, Need, NeedKey, Resources, UnixNanos};

use super::draw;
use super::knobs::{Knobs, Requests, Through};
use super::workload::{Workload, rack_of, rows};

/// A cluster and its pods.
#[derive(Debug)]
pub struct Cluster {
    id: ClusterId,
    workloads: Vec<Running>,
    nodes: BTreeMap<MachineId, Node>,
    aggregate: Aggregate,
    /// The pods that have a request in `aggregate`.
    requested: BTreeSet<(usize, u64)>,
    next_pod: u64,
    destroyed: usize,
}

/// A workload and its pods.
#[derive(Debug)]
struct Running {
    spec: Workload,
    /// The row of one pod.
    row: Need,
    /// Pods without a place, oldest first.
    pending: Vec<u64>,
    bound: usize,
}

/// A machine that has joined the cluster.
#[derive(Debug)]
struct Node {
    machine: Arc<Machine>,
    free: Resources,
    pods: usize,
    by_workload: BTreeMap<usize, Vec<u64>>,
}

impl Cluster {
    /// A cluster whose pods all wait for a place.
    ///
    /// # Errors
    /// The request of a workload that the operator or the shard would refuse.
    pub fn new(name: &str, workloads: impl IntoIterator<Item = Workload>) -> Result<Self, String> {
        let mut cluster = Self {
            id: ClusterId::trusted(name),
            workloads: Vec::new(),
            nodes: BTreeMap::new(),
            aggregate: Aggregate::default(),
            requested: BTreeSet::new(),
            next_pod: 0,
            destroyed: 0,
        };
        for spec in workloads {
            let row = spec.row_of_one()?;
            let pods = spec.pods;
            cluster.workloads.push(Running { spec, row, pending: Vec::new(), bound: 0 });
            let added = cluster.workloads.len() - 1;
            cluster.create(added, pods);
        }
        Ok(cluster)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// Pods that live: bound and all.
    #[must_use]
    pub fn pods(&self) -> (usize, usize) {
        let bound = self.workloads.iter().map(|workload| workload.bound).sum();
        let pending: usize = self.workloads.iter().map(|workload| workload.pending.len()).sum();
        (bound, bound + pending)
    }

    /// Pods of one workload: bound and all. Nothing for a name that is not there.
    #[must_use]
    pub fn pods_of(&self, name: &str) -> (usize, usize) {
        let found = self.workloads.iter().find(|workload| workload.spec.name == name);
        found.map_or((0, 0), |workload| (workload.bound, workload.bound + workload.pending.len()))
    }

    /// Pods that were evicted and did not come back.
    #[must_use]
    pub fn destroyed(&self) -> usize {
        self.destroyed
    }

    /// Where pods of a workload run, with how many on each machine.
    pub fn places_of(&self, name: &str) -> impl Iterator<Item = (&Machine, usize)> {
        let number = self.workloads.iter().position(|workload| workload.spec.name == name);
        self.nodes.values().filter_map(move |node| {
            let pods = node.by_workload.get(&number?)?.len();
            (pods > 0).then_some((&*node.machine, pods))
        })
    }

    /// The key of a workload's row.
    #[must_use]
    pub fn key_of(&self, name: &str) -> Option<NeedKey> {
        let found = self.workloads.iter().find(|workload| workload.spec.name == name)?;
        Some(found.row.key(&self.id))
    }

    /// Adds a workload, or sets how many pods one of the same name has.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn scale(&mut self, spec: Workload) -> Result<(), String> {
        let known = self.workloads.iter().position(|known| known.spec.name == spec.name);
        let number = match known {
            Some(number) => number,
            None => {
                let row = spec.row_of_one()?;
                self.workloads.push(Running { spec: spec.clone(), row, pending: Vec::new(), bound: 0 });
                self.workloads.len() - 1
            }
        };
        let live = self.workloads[number].bound + self.workloads[number].pending.len();
        if spec.pods >= live {
            self.create(number, spec.pods - live);
        } else {
            self.stop(number, live - spec.pods);
        }
        Ok(())
    }

    /// The same by name.
    pub fn resize(&mut self, name: &str, pods: usize) {
        let known = self.workloads.iter().find(|known| known.spec.name == name);
        if let Some(mut spec) = known.map(|known| known.spec.clone()) {
            spec.pods = pods;
            // A workload that is there has been accepted before.
            let _accepted = self.scale(spec);
        }
    }

    /// All workloads as they were described.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().map(|workload| &workload.spec)
    }

    fn create(&mut self, number: usize, pods: usize) {
        for _ in 0..pods {
            self.workloads[number].pending.push(self.next_pod);
            self.next_pod += 1;
        }
    }

    /// Ends pods: those that wait first, the newest first, then where most of them are.
    fn stop(&mut self, number: usize, pods: usize) {
        for _ in 0..pods {
            if self.workloads[number].pending.pop().is_some() {
                continue;
            }
            let most = self.nodes.values_mut().filter(|node| node.by_workload.contains_key(&number));
            let Some(node) = most.max_by_key(|node| node.by_workload.get(&number).map_or(0, Vec::len)) else {
                return;
            };
            let request = &self.workloads[number].row.min_unit;
            node.take_away(number, request);
            self.workloads[number].bound -= 1;
        }
    }

    /// Takes in what became of a machine: a Configured one of ours is a node, any other is none.
    pub(super) fn look(&mut self, id: &MachineId, machine: Option<&Arc<Machine>>, managed: bool) {
        match machine {
            Some(machine) => {
                if !self.nodes.contains_key(id) {
                    let free = machine.capacity().clone();
                    let node = Node { machine: machine.clone(), free, pods: 0, by_workload: BTreeMap::new() };
                    self.nodes.insert(id.clone(), node);
                }
            }
            None => {
                let Some(node) = self.nodes.remove(id) else { return };
                for (number, pods) in node.by_workload {
                    self.workloads[number].bound -= pods.len();
                    if managed {
                        self.create(number, pods.len());
                    } else {
                        self.destroyed += pods.len();
                    }
                }
            }
        }
    }

    /// Whether the machine is a node of this cluster.
    pub(super) fn has(&self, id: &MachineId) -> bool {
        self.nodes.contains_key(id)
    }

    /// Binds what can be bound: the emptiest machine first, a gang only where its first pod is.
    pub(super) fn bind(&mut self) {
        for number in 0..self.workloads.len() {
            if self.workloads[number].pending.is_empty() {
                continue;
            }
            let workload = &self.workloads[number];
            let (profile, request) = (workload.row.profile.clone(), workload.row.min_unit.clone());
            let mut anchor: Option<Arc<str>> = None;
            let mut places: BTreeSet<(usize, MachineId)> = BTreeSet::new();
            for (id, node) in &self.nodes {
                if workload.spec.gang && node.by_workload.contains_key(&number) {
                    anchor = rack_of(&node.machine).cloned();
                }
                if node.free.covers(&request) && matches(&profile, &node.machine) {
                    places.insert((node.pods, id.clone()));
                }
            }
            let gang = workload.spec.gang;
            let mut left = std::mem::take(&mut self.workloads[number].pending).into_iter().peekable();
            while left.peek().is_some() {
                let Some((pods, id)) = places.pop_first() else { break };
                let Some(node) = self.nodes.get_mut(&id) else { continue };
                if gang && anchor.is_some() && anchor.as_ref() != rack_of(&node.machine) {
                    continue;
                }
                let Some(pod) = left.next() else { break };
                if gang && anchor.is_none() {
                    anchor = rack_of(&node.machine).cloned();
                }
                node.free = node.free.saturating_sub(&request);
                node.pods += 1;
                node.by_workload.entry(number).or_default().push(pod);
                self.workloads[number].bound += 1;
                if node.free.covers(&request) {
                    places.insert((pods + 1, id));
                }
            }
            self.workloads[number].pending = left.collect();
        }
    }

    /// The complete demand of now.
    pub(super) fn rows(&mut self, knobs: &Knobs, cycle: u32) -> Result<Vec<Need>, String> {
        let mut needs = match knobs.through {
            Through::Operator => {
                self.request(knobs.requests);
                rows(&self.id, &self.aggregate)?
            }
            Through::Multiplied => self.multiplied(knobs.requests),
        };
        if knobs.drawn_arrivals {
            for need in &mut needs {
                let key = format!("{}/{}/{}", self.id, need.profile.fingerprint(), need.group.as_str());
                let drawn = draw::about(knobs.seed, &key, 0).below(1_000_000_000);
                need.arrival = Some(UnixNanos(1 + i64::try_from(drawn).unwrap_or(0)));
            }
        }
        shuffle(&mut needs, &mut draw::about(knobs.order, self.id.as_str(), u64::from(cycle)));
        Ok(needs)
    }

    /// Brings the requests in line with the pods.
    fn request(&mut self, which: Requests) {
        let mut wanted: BTreeSet<(usize, u64)> = BTreeSet::new();
        for (number, workload) in self.workloads.iter().enumerate() {
            wanted.extend(workload.pending.iter().map(|pod| (number, *pod)));
        }
        if which == Requests::PerPod {
            for node in self.nodes.values() {
                for (number, pods) in &node.by_workload {
                    wanted.extend(pods.iter().map(|pod| (*number, *pod)));
                }
            }
        }
        for (number, pod) in self.requested.difference(&wanted) {
            self.aggregate.remove(&format!("{}-{pod}", self.workloads[*number].spec.name));
        }
        for (number, pod) in wanted.difference(&self.requested) {
            self.aggregate.apply(&self.workloads[*number].spec.request_of(*pod));
        }
        self.requested = wanted;
    }

    fn multiplied(&self, which: Requests) -> Vec<Need> {
        let mut merged: BTreeMap<NeedKey, Need> = BTreeMap::new();
        for workload in &self.workloads {
            let bound = if which == Requests::PerPod { workload.bound } else { 0 };
            let pods = i64::try_from(bound + workload.pending.len()).unwrap_or(i64::MAX);
            if pods == 0 {
                continue;
            }
            let row = Need { aggregate: workload.row.aggregate.scale(pods), ..workload.row.clone() };
            match merged.entry(row.key(&self.id)) {
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(row);
                }
                std::collections::btree_map::Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.aggregate = known.aggregate.add(&row.aggregate);
                    known.min_unit = known.min_unit.max(&row.min_unit);
                }
            }
        }
        merged.into_values().collect()
    }
}

impl Node {
    fn take_away(&mut self, number: usize, request: &Resources) {
        let Some(here) = self.by_workload.get_mut(&number) else { return };
        here.pop();
        if here.is_empty() {
            self.by_workload.remove(&number);
        }
        self.pods -= 1;
        self.free = self.free.add(request);
    }
}
