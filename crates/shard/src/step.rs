//! Single step: exactly one cycle at a time against a provider that answers at once and operators that always
//! deliver. What simulations and golden scenarios run.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_proto::v1alpha1::{ShardMessage, shard_message::Payload};
use bigfleet_types::chance::Seeded;
use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, Need, UnixNanos};
use bytes::Bytes;

use crate::control::{Config, Control, WorkKey};
use crate::io::{Acknowledged, Blob, CallError, Input, Mutation, Output, Reported, SessionId};
use crate::metrics::Metrics;

/// A provider that answers at once.
pub trait StepProvider {
    /// All machines.
    ///
    /// # Errors
    /// As the provider's List.
    fn list(&mut self) -> Result<Vec<Reported>, CallError>;

    /// One machine.
    ///
    /// # Errors
    /// As the provider's Get.
    fn get(&mut self, machine: &MachineId) -> Result<Reported, CallError>;

    /// Changes a machine.
    ///
    /// # Errors
    /// As the provider's lifecycle calls.
    fn mutate(&mut self, machine: &MachineId, mutation: &Mutation) -> Result<Acknowledged, CallError>;
}

/// An action that a step executed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepAction {
    /// The name of its kind.
    pub kind: &'static str,
    /// The machine.
    pub machine: MachineId,
    /// The destination, or the source of a drain; `None` for Delete.
    pub cluster: Option<ClusterId>,
}

impl From<&WorkKey> for StepAction {
    fn from((machine, kind, cluster): &WorkKey) -> Self {
        Self { kind: kind.name(), machine: machine.clone(), cluster: cluster.clone() }
    }
}

/// The fleet after a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetState {
    /// All machines.
    pub total: usize,
    /// By state; zeros are left out.
    pub by_state: BTreeMap<&'static str, usize>,
    /// Configured machines by cluster; zeros are left out.
    pub configured: BTreeMap<ClusterId, usize>,
}

impl FleetState {
    /// Counts machines.
    pub fn of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let mut state = Self::default();
        for machine in machines {
            state.total += 1;
            *state.by_state.entry(machine.state.name()).or_default() += 1;
            if let (MachineState::Configured, Some(cluster)) = (machine.state, &machine.cluster) {
                *state.configured.entry(cluster.clone()).or_default() += 1;
            }
        }
        state
    }
}

/// Drives a [`Control`] step by step.
pub struct Stepper<P> {
    control: Control,
    provider: P,
    now: UnixNanos,
    /// How far the clock moves with each cycle.
    pub step: Duration,
    sessions: BTreeMap<ClusterId, SessionId>,
    frames: Vec<(SessionId, ShardMessage)>,
}

impl<P: StepProvider> Stepper<P> {
    /// A shard at `now` that has seen nothing yet. Each cycle moves the clock by one cycle interval.
    #[must_use]
    pub fn new(mut config: Config, provider: P, metrics: Metrics, now: UnixNanos) -> Self {
        // Everything that a cycle decides is executed in it.
        config.execute_concurrency = u32::MAX;
        let step = config.cycle_interval;
        let control = Control::new(config, Box::new(Seeded::new(0x00C0_FFEE)), metrics);
        Self { control, provider, now, step, sessions: BTreeMap::new(), frames: Vec::new() }
    }

    /// The core.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The provider.
    pub fn provider(&mut self) -> &mut P {
        &mut self.provider
    }

    /// The time of the next step.
    #[must_use]
    pub fn now(&self) -> UnixNanos {
        self.now
    }

    /// Lets time pass without a cycle.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// Connects a cluster's operator, if it is not connected.
    pub fn connect(&mut self, cluster: &ClusterId) -> SessionId {
        if let Some(session) = self.sessions.get(cluster) {
            return *session;
        }
        let session = SessionId(u64::try_from(self.sessions.len()).unwrap_or(u64::MAX) + 1);
        self.sessions.insert(cluster.clone(), session);
        self.control.handle(self.now, Input::SessionOpened { session, cluster: cluster.clone() });
        self.carry_out();
        session
    }

    /// Hands in a cluster's complete demand.
    pub fn rollup(&mut self, cluster: &ClusterId, rows: Vec<Need>) {
        let session = self.connect(cluster);
        let rollup = Input::Rollup { session, timestamp_unix_nanos: self.now.0, rows: Ok(rows.into()) };
        self.control.handle(self.now, rollup);
        self.carry_out();
    }

    /// Reconciles, decides once, and executes all of it. Gives the actions sorted by kind and machine.
    pub fn cycle(&mut self) -> Vec<StepAction> {
        self.control.run_timers(self.now);
        self.carry_out();
        self.control.run_cycle(self.now);
        self.carry_out();
        let mut actions: Vec<StepAction> = self.control.posted().iter().map(StepAction::from).collect();
        actions.sort();
        self.now = self.now.after(self.step);
        actions
    }

    /// The fleet as the shard sees it.
    #[must_use]
    pub fn state(&self) -> FleetState {
        FleetState::of(self.control.machines())
    }

    /// The frames that operators were sent since the last call.
    pub fn take_frames(&mut self) -> Vec<(SessionId, ShardMessage)> {
        std::mem::take(&mut self.frames)
    }

    /// Carries out what the core wants until it wants nothing more at this time.
    fn carry_out(&mut self) {
        loop {
            self.control.run_timers(self.now);
            self.control.work(self.now);
            let outputs: Vec<Output> = self.control.drain_outputs().collect();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                if let Some(input) = self.answer(output) {
                    self.control.handle(self.now, input);
                }
            }
        }
    }

    fn answer(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::List { call, known } => Some(Input::listed(call, known, self.provider.list())),
            Output::Get { call, machine } => Some(Input::Got { call, result: self.provider.get(&machine) }),
            Output::Mutate { call, machine, mutation } => {
                Some(Input::Acked { call, result: self.provider.mutate(&machine, &mutation) })
            }
            Output::Send { session, message, .. } => {
                let input = operator_answers(session, &message);
                self.frames.push((session, *message));
                input
            }
            Output::AuditDecision(audit) => {
                Some(Input::DecisionAudited { cycle: audit.cycle, result: Ok(audit.check()) })
            }
            Output::Close { .. } | Output::Audit(_) | Output::Publish(_) | Output::CheckEpoch => None,
        }
    }
}

/// What an operator that always delivers, and at once, says to a frame: a blob, and that it follows instructions.
#[must_use]
pub fn operator_answers(session: SessionId, message: &ShardMessage) -> Option<Input> {
    match message.payload.as_ref()? {
        Payload::BootstrapRequest(request) => Some(Input::Blob {
            session,
            request_id: request.request_id.clone(),
            answer: Ok(Blob {
                user_data: Bytes::from_static(b"blob").into(),
                ttl: Duration::from_secs(3600),
            }),
        }),
        Payload::ReclaimInstruction(instruction) => {
            Some(Input::ReclaimAcked { session, instruction_id: instruction.instruction_id.clone() })
        }
        _ => None,
    }
}
