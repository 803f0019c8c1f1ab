//! A small provider for tests of the core: the contract in a few lines, with faults by the spoonful.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_shard::io::{Acknowledged, CallError, Mutation, Refused, Reported};
use bigfleet_shard::step::StepProvider;
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, Host, Machine, MachineId, MachineState, NanoDollars, Need,
    Operator, PenaltyBucket, Probability, Profile, Requirement, ResourceName, Resources, UnixNanos, keys,
};

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const RACK: &str = "example.com/rack";

/// What goes wrong with the next call.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Refused, and not done.
    Refuse(CallError),
    /// Done, but the answer is lost.
    LoseAck,
    /// Accepted; the machine is FAILED instead of where it was to go.
    Fail,
    /// Accepted; it never ends.
    Hang,
    /// Done, but acknowledged with this record.
    Answer(Reported),
}

/// Kinds of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Create,
    Configure,
    Drain,
    Delete,
}

impl Op {
    pub(crate) fn of(mutation: &Mutation) -> Self {
        match mutation {
            Mutation::Create => Self::Create,
            Mutation::Configure { .. } => Self::Configure,
            Mutation::Drain { .. } => Self::Drain,
            Mutation::Delete => Self::Delete,
        }
    }
}

/// The provider.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) machines: BTreeMap<MachineId, Machine>,
    due: BTreeMap<MachineId, (UnixNanos, MachineState)>,
    /// How long a transition takes; `None`: it is done at once.
    pub(crate) dwell: Option<Duration>,
    /// How long a Create takes, if not as long as the others.
    pub(crate) create_dwell: Option<Duration>,
    /// Faults of the next calls on one machine.
    pub(crate) faults: BTreeMap<(MachineId, Op), VecDeque<Fault>>,
    /// A fault of every call of a kind.
    pub(crate) always: BTreeMap<Op, Fault>,
    pub(crate) now: UnixNanos,
    operations: u64,
    /// Every lifecycle call, accepted or not.
    pub(crate) calls: Vec<(MachineId, Op)>,
    /// The drains among them, with the grace that each was given.
    pub(crate) drains: Vec<(MachineId, Duration)>,
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::parse(name).unwrap()
}

pub(crate) fn id(name: &str) -> MachineId {
    MachineId::parse(name).unwrap()
}

pub(crate) fn gpus(n: i64) -> Resources {
    Resources::from_amounts([(ResourceName::new(GPU), n)])
}

/// A machine with 8 GPUs.
pub(crate) fn gpu(name: &str, state: MachineState) -> Machine {
    let mut machine = Machine::new(id(name), state);
    machine.instance_type = "a3-highgpu-8g".into();
    machine.zone = "us-east-1a".into();
    machine.capacity_type = CapacityType::BareMetal;
    machine.resources = gpus(8);
    if !matches!(state, MachineState::Speculative | MachineState::Creating) {
        machine.host = Some(Host { provider: "model".into(), reference: format!("i-{name}").into() });
    }
    machine
}

pub(crate) fn priced(mut machine: Machine, kind: CapacityType, dollars: f64, chance: f64) -> Machine {
    machine.capacity_type = kind;
    machine.price = NanoDollars::from_dollars(dollars).unwrap();
    machine.interruption_probability = Probability::new(chance).unwrap();
    machine
}

/// A machine bound for a Need of `units` machines.
pub(crate) fn bound(name: &str, state: MachineState, to: &str, need: &Need) -> Machine {
    let mut machine = gpu(name, state);
    machine.cluster = Some(cluster(to));
    machine.attribution = Attribution::of(need);
    machine
}

pub(crate) fn requires(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.into(), operator, values: values.iter().map(|value| (*value).into()).collect() }
}

pub(crate) fn profile(priority: i32, interruption: i32, reclamation: PenaltyBucket) -> Arc<Profile> {
    let requirement = Requirement {
        key: keys::INSTANCE_TYPE.into(),
        operator: Operator::In,
        values: vec!["a3-highgpu-8g".into()],
    };
    let interruption = PenaltyBucket::from_wire(interruption).unwrap();
    Arc::new(Profile::new(vec![requirement], Vec::new(), priority, interruption, reclamation))
}

pub(crate) fn need_of(profile: Arc<Profile>, units: i64) -> Need {
    Need { profile, aggregate: gpus(8 * units), min_unit: gpus(8), group: Group::NONE, arrival: None }
}

/// `units` machines of 8 GPUs; $8192 and pinned.
pub(crate) fn need(priority: i32, units: i64) -> Need {
    need_of(profile(priority, 16, PenaltyBucket::PINNED), units)
}

/// `rows` rows of one machine each.
pub(crate) fn rows(rows: usize) -> Vec<Need> {
    let row = |n: usize| Need { group: Group::new(&format!("g{n:03}")), ..need(1000, 1) };
    (0..rows).map(row).collect()
}

pub(crate) fn reported(machine: Machine) -> Reported {
    Reported { id: Some(machine.id.clone()), record: Ok(Arc::new(machine)), violations: Vec::new() }
}

pub(crate) fn refused(name: Option<&str>, reason: &'static str) -> Reported {
    let message = format!("{reason}: not acceptable");
    Reported { id: name.map(id), record: Err(Refused { reason, message }), violations: Vec::new() }
}

pub(crate) fn ambiguous(deadline: bool) -> CallError {
    CallError::Ambiguous { deadline, message: "no answer".to_owned() }
}

impl Model {
    pub(crate) fn with(machines: impl IntoIterator<Item = Machine>) -> Self {
        let machines = machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
        Self { machines, ..Self::default() }
    }

    pub(crate) fn fault(&mut self, name: &str, op: Op, fault: Fault) {
        self.faults.entry((id(name), op)).or_default().push_back(fault);
    }

    /// Moves the clock and completes what is due.
    pub(crate) fn advance(&mut self, now: UnixNanos) {
        self.now = now;
        let due: Vec<_> = self.due.iter().filter(|(_, (at, _))| *at <= now).map(|(m, _)| m.clone()).collect();
        for machine in due {
            if let Some((_, state)) = self.due.remove(&machine) {
                self.arrive(&machine, state);
            }
        }
    }

    /// When the next transition completes.
    pub(crate) fn next(&self) -> Option<UnixNanos> {
        self.due.values().map(|(at, _)| *at).min()
    }

    /// The machine is in a state from now on, with all that goes with it.
    pub(crate) fn arrive(&mut self, machine: &MachineId, state: MachineState) {
        self.due.remove(machine);
        let Some(record) = self.machines.get_mut(machine) else { return };
        record.state = state;
        match state {
            MachineState::Speculative | MachineState::Creating => record.host = None,
            _ if record.host.is_none() => {
                let reference = format!("i-{machine}").into();
                record.host = Some(Host { provider: "model".into(), reference });
            }
            _ => {}
        }
        if state == MachineState::Failed {
            record.last_error = "it broke".into();
        } else {
            record.last_error = "".into();
            if !state.is_bound() {
                record.cluster = None;
                record.attribution = Attribution::default();
            }
        }
    }

    pub(crate) fn records(&self) -> Vec<Reported> {
        self.machines.values().cloned().map(reported).collect()
    }

    pub(crate) fn read(&self, machine: &MachineId) -> Result<Reported, CallError> {
        self.machines.get(machine).cloned().map(reported).ok_or(CallError::NotFound)
    }

    pub(crate) fn calls_of(&self, op: Op) -> usize {
        self.calls.iter().filter(|(_, called)| *called == op).count()
    }

    pub(crate) fn change(
        &mut self,
        machine: &MachineId,
        mutation: &Mutation,
    ) -> Result<Acknowledged, CallError> {
        let op = Op::of(mutation);
        self.calls.push((machine.clone(), op));
        if let Mutation::Drain { grace } = mutation {
            self.drains.push((machine.clone(), *grace));
        }
        let fault = self
            .faults
            .get_mut(&(machine.clone(), op))
            .and_then(VecDeque::pop_front)
            .or_else(|| self.always.get(&op).cloned());
        if let Some(Fault::Refuse(error)) = fault {
            return Err(error);
        }
        let record = self.machines.get_mut(machine).ok_or(CallError::NotFound)?;
        let (before, during) = match op {
            Op::Create => (MachineState::Speculative, MachineState::Creating),
            Op::Configure => (MachineState::Idle, MachineState::Configuring),
            Op::Drain => (MachineState::Configured, MachineState::Draining),
            Op::Delete => (MachineState::Idle, MachineState::Deleting),
        };
        let target = during.target().unwrap();
        if record.state == before {
            if let Mutation::Configure { cluster, attribution, .. } = mutation {
                record.cluster = Some(cluster.clone());
                record.attribution = attribution.clone();
            }
            self.operations += 1;
            self.arrive(machine, during);
            let to = if matches!(fault, Some(Fault::Fail)) { MachineState::Failed } else { target };
            let create = if op == Op::Create { self.create_dwell } else { None };
            match (create.or(self.dwell), &fault) {
                (_, Some(Fault::Hang)) => {}
                (None, _) => self.arrive(machine, to),
                (Some(dwell), _) => {
                    self.due.insert(machine.clone(), (self.now.after(dwell), to));
                }
            }
        } else if record.state != during && record.state != target {
            return Err(CallError::Rejected(format!("cannot {op:?} a {}", record.state)));
        }
        let ack = match fault {
            Some(Fault::LoseAck) => return Err(ambiguous(true)),
            Some(Fault::Answer(answer)) => answer,
            _ => self.read(machine)?,
        };
        Ok(Acknowledged { operation_id: format!("op-{}", self.operations), machine: ack })
    }
}

impl StepProvider for Model {
    fn list(&mut self) -> Result<Vec<Reported>, CallError> {
        Ok(self.records())
    }

    fn get(&mut self, machine: &MachineId) -> Result<Reported, CallError> {
        self.read(machine)
    }

    fn mutate(&mut self, machine: &MachineId, mutation: &Mutation) -> Result<Acknowledged, CallError> {
        self.change(machine, mutation)
    }
}
