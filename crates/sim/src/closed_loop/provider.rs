//! The provider: every transition takes its time, and Lists may be old.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bigfleet_shard::io::{Acknowledged, CallError, Mutation, Reported};
use bigfleet_types::chance::Chance;
use bigfleet_types::{Attribution, Host, Machine, MachineId, MachineState};

use super::draw;
use super::knobs::Knobs;

/// A simulated provider.
#[derive(Debug)]
pub struct Provider {
    machines: BTreeMap<MachineId, Arc<Machine>>,
    /// Transitions under way: the cycles that are left.
    under_way: BTreeMap<MachineId, u32>,
    /// How often each machine has begun a transition.
    begun: BTreeMap<MachineId, u64>,
    /// What Lists of the last cycles would have said, oldest first.
    past: VecDeque<Vec<Arc<Machine>>>,
    /// Machines that changed since the clusters looked last.
    changed: BTreeSet<MachineId>,
    /// Machines whose next transition ends in Failed.
    doomed: BTreeSet<MachineId>,
    knobs: Knobs,
}

impl Provider {
    pub(super) fn new(knobs: Knobs, machines: impl IntoIterator<Item = Machine>) -> Self {
        let machines: BTreeMap<MachineId, Arc<Machine>> =
            machines.into_iter().map(|machine| (machine.id.clone(), Arc::new(with_host(machine)))).collect();
        let changed = machines.keys().cloned().collect();
        Self {
            machines,
            under_way: BTreeMap::new(),
            begun: BTreeMap::new(),
            past: VecDeque::new(),
            changed,
            doomed: BTreeSet::new(),
            knobs,
        }
    }

    /// All machines as they truly are, by id.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values().map(|machine| &**machine)
    }

    /// One machine as it truly is.
    #[must_use]
    pub fn machine(&self, id: &MachineId) -> Option<&Machine> {
        self.machines.get(id).map(|machine| &**machine)
    }

    pub(super) fn shared(&self, id: &MachineId) -> Option<&Arc<Machine>> {
        self.machines.get(id)
    }

    /// A machine is gone, without a word.
    pub fn lose(&mut self, id: &MachineId) {
        if self.machines.remove(id).is_some() {
            self.under_way.remove(id);
            self.changed.insert(id.clone());
        }
    }

    /// A machine breaks.
    pub fn fail(&mut self, id: &MachineId) {
        self.under_way.remove(id);
        self.enter(id, MachineState::Failed);
    }

    /// The next transition of a machine ends in Failed.
    pub fn doom(&mut self, id: &MachineId) {
        self.doomed.insert(id.clone());
    }

    /// A cycle has passed: transitions come to their end.
    pub(super) fn age(&mut self) {
        if self.knobs.list_lag > 0 {
            self.past.push_back(self.machines.values().cloned().collect());
            while self.past.len() > self.knobs.list_lag {
                self.past.pop_front();
            }
        }
        let mut done = Vec::new();
        for (id, left) in &mut self.under_way {
            *left = left.saturating_sub(1);
            if *left == 0 {
                done.push(id.clone());
            }
        }
        for id in done {
            self.under_way.remove(&id);
            self.arrive(&id);
        }
    }

    /// Machines that changed since the last call, by id.
    pub(super) fn take_changed(&mut self) -> BTreeSet<MachineId> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn list(&self) -> Vec<Reported> {
        match self.past.front() {
            Some(then) => then.iter().map(reported).collect(),
            None => self.machines.values().map(reported).collect(),
        }
    }

    pub(super) fn get(&self, id: &MachineId) -> Result<Reported, CallError> {
        self.machines.get(id).map(reported).ok_or(CallError::NotFound)
    }

    pub(super) fn mutate(&mut self, id: &MachineId, mutation: &Mutation) -> Result<Acknowledged, CallError> {
        let machine = self.machines.get(id).ok_or(CallError::NotFound)?;
        let (during, dwell) = match mutation {
            Mutation::Create => (MachineState::Creating, self.knobs.creating),
            Mutation::Configure { .. } => (MachineState::Configuring, self.knobs.configuring),
            Mutation::Drain { .. } => (MachineState::Draining, self.knobs.draining),
            Mutation::Delete => (MachineState::Deleting, self.knobs.deleting),
        };
        if let Some(from) = during.origin().filter(|from| machine.state != *from) {
            return Err(CallError::Rejected(format!("{id} is {}, not {from}", machine.state)));
        }
        if let Mutation::Configure { cluster, attribution, .. } = mutation {
            let mut bound = Machine::clone(machine);
            bound.cluster = Some(cluster.clone());
            bound.attribution = attribution.clone();
            self.machines.insert(id.clone(), Arc::new(bound));
        }
        self.enter(id, during);
        let begun = self.begun.entry(id.clone()).or_default();
        *begun += 1;
        if dwell == 0 {
            self.arrive(id);
        } else {
            let more =
                draw::about(self.knobs.seed, id.as_str(), *begun).below(u64::from(self.knobs.drawn_out) + 1);
            self.under_way.insert(id.clone(), dwell.saturating_add(u32::try_from(more).unwrap_or(0)));
        }
        Ok(Acknowledged {
            operation_id: format!("op-{id}-{begun}", begun = self.begun[id]),
            machine: self.get(id)?,
        })
    }

    /// A transition is complete.
    fn arrive(&mut self, id: &MachineId) {
        let Some(target) = self.machines.get(id).and_then(|machine| machine.state.target()) else { return };
        let target = if self.doomed.remove(id) { MachineState::Failed } else { target };
        self.enter(id, target);
    }

    fn enter(&mut self, id: &MachineId, state: MachineState) {
        let Some(known) = self.machines.get_mut(id) else { return };
        let mut machine = Machine::clone(known);
        machine.state = state;
        machine.last_error = if state == MachineState::Failed { "broken".into() } else { "".into() };
        if !state.is_bound() && state != MachineState::Failed {
            machine.cluster = None;
            machine.attribution = Attribution::default();
        }
        *known = Arc::new(with_host(machine));
        self.changed.insert(id.clone());
    }
}

/// The machine with a host exactly when its state has one.
fn with_host(mut machine: Machine) -> Machine {
    match machine.state {
        MachineState::Speculative | MachineState::Creating => machine.host = None,
        _ if machine.host.is_none() => {
            let reference = format!("host-of-{}", machine.id).into();
            machine.host = Some(Host { provider: "simulated".into(), reference });
        }
        _ => {}
    }
    machine
}

fn reported(machine: &Arc<Machine>) -> Reported {
    Reported { id: Some(machine.id.clone()), record: Ok(machine.clone()), violations: Vec::new() }
}
