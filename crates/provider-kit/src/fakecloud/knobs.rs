//! The faults that the fake cloud can be told to have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bigfleet_proto::v1alpha1 as pb;
use tonic::Status;

use super::control::ClassKey;
use super::options::{Latencies, Latency};
use crate::faults::Method;
use crate::kind::Kind;
use crate::table::wire_state;
use bigfleet_types::MachineState;

/// What is wrong with a machine in Get and List.
#[derive(Debug, Clone, PartialEq)]
pub enum Corruption {
    /// Its price.
    Price(f64),
    /// Its interruption probability.
    Probability(f64),
    /// The number of its state.
    State(i32),
    /// The number of its capacity type.
    CapacityType(i32),
    /// Its id is empty.
    EmptyId,
    /// Its cluster is missing.
    NoCluster,
    /// Its cluster, whatever its state.
    Cluster(String),
    /// A quantity that is none.
    Quantity(String),
}

/// What is wrong with List.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFault {
    /// It is empty.
    Empty,
    /// It ends after this many machines.
    Truncated(usize),
    /// It keeps giving its next answer.
    Stale,
}

#[derive(Debug)]
pub(super) struct Knobs {
    pub(super) broken: bool,
    pub(super) hanging: BTreeSet<Method>,
    pub(super) rpc_latency: BTreeMap<Method, Latency>,
    pub(super) fail_calls: BTreeMap<(String, Method), VecDeque<Status>>,
    pub(super) fail_work: BTreeMap<(String, Kind), VecDeque<String>>,
    pub(super) drop_answers: BTreeMap<(String, Method), u32>,
    pub(super) misused: BTreeSet<String>,
    pub(super) corrupted: BTreeMap<String, Corruption>,
    pub(super) early_configured: bool,
    pub(super) list: Option<ListFault>,
    pub(super) frozen: Option<pb::MachineList>,
    pub(super) staged: BTreeSet<Kind>,
    pub(super) released: BTreeSet<(Kind, String)>,
    pub(super) held: BTreeSet<(Kind, String)>,
    pub(super) out_of_stock: BTreeSet<ClassKey>,
    pub(super) can_delete: bool,
    pub(super) latency: Latencies,
}

impl Knobs {
    pub(super) fn new(can_delete: bool, latency: Latencies) -> Self {
        Self {
            broken: false,
            hanging: BTreeSet::new(),
            rpc_latency: BTreeMap::new(),
            fail_calls: BTreeMap::new(),
            fail_work: BTreeMap::new(),
            drop_answers: BTreeMap::new(),
            misused: BTreeSet::new(),
            corrupted: BTreeMap::new(),
            early_configured: false,
            list: None,
            frozen: None,
            staged: BTreeSet::new(),
            released: BTreeSet::new(),
            held: BTreeSet::new(),
            out_of_stock: BTreeSet::new(),
            can_delete,
            latency,
        }
    }

    /// The error that a call gets instead of being looked at.
    pub(super) fn refusal(&mut self, method: Method, machine: &str) -> Option<Status> {
        if self.broken {
            return Some(Status::unavailable("fakecloud is broken on purpose"));
        }
        let mutates = !matches!(method, Method::Get | Method::List);
        if mutates && self.misused.contains(machine) {
            return Some(Status::failed_precondition("fakecloud misuses this code on purpose"));
        }
        take_next(&mut self.fail_calls, (machine.to_owned(), method))
    }

    /// Whether the answer of a call that had its effect gets lost.
    pub(super) fn loses_answer(&mut self, method: Method, machine: &str) -> bool {
        let Some(left) = self.drop_answers.get_mut(&(machine.to_owned(), method)) else { return false };
        let lost = *left > 0;
        *left = left.saturating_sub(1);
        lost
    }

    /// Whether any answer is other than it should be.
    pub(super) fn alters(&self) -> bool {
        self.early_configured || !self.corrupted.is_empty() || self.list.is_some()
    }

    pub(super) fn corrupt(&self, machine: &mut pb::Machine) {
        if self.early_configured && machine.state == wire_state(MachineState::Configuring) {
            machine.state = wire_state(MachineState::Configured);
        }
        match self.corrupted.get(&machine.id) {
            None => {}
            Some(Corruption::Price(price)) => machine.price_per_hour = *price,
            Some(Corruption::Probability(p)) => machine.interruption_probability = *p,
            Some(Corruption::State(number)) => machine.state = *number,
            Some(Corruption::CapacityType(number)) => machine.capacity_type = *number,
            Some(Corruption::EmptyId) => machine.id.clear(),
            Some(Corruption::NoCluster) => machine.cluster.clear(),
            Some(Corruption::Cluster(cluster)) => machine.cluster.clone_from(cluster),
            Some(Corruption::Quantity(text)) => {
                let resources = &mut machine.resources.get_or_insert_default().resources;
                resources.insert("cpu".to_owned(), text.clone());
            }
        }
    }

    pub(super) fn spoil(&mut self, mut list: pb::MachineList) -> pb::MachineList {
        match self.list {
            None => list,
            Some(ListFault::Empty) => {
                list.machines.clear();
                list
            }
            Some(ListFault::Truncated(len)) => {
                list.machines.truncate(len);
                list
            }
            Some(ListFault::Stale) => self.frozen.get_or_insert(list).clone(),
        }
    }

    /// Whether work of `kind` on `machine` must wait.
    pub(super) fn holds(&mut self, kind: Kind, machine: &str) -> bool {
        let key = (kind, machine.to_owned());
        if !self.staged.contains(&kind) || self.released.remove(&key) {
            self.held.remove(&key);
            return false;
        }
        self.held.insert(key);
        true
    }
}

pub(super) fn take_next<K: Ord, V>(map: &mut BTreeMap<K, VecDeque<V>>, key: K) -> Option<V> {
    let queue = map.get_mut(&key)?;
    let next = queue.pop_front();
    if queue.is_empty() {
        map.remove(&key);
    }
    next
}
