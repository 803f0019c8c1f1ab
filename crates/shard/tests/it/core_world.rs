//! A whole shard core in a bottle: a provider model, operators that answer, and a clock that is moved by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::{NodeStateUpdate, shard_message::Payload};
use bigfleet_shard::control::{Config, Control};
use bigfleet_shard::decision_audit::Divergence;
use bigfleet_shard::io::{
    AuditRecord, Blob, CallError, CallId, CloseReason, Input, Lane, Mutation, Output, Published, Reported,
    SessionId,
};
use bigfleet_shard::metrics::Metrics;
use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, Need, UnixNanos};
use bytes::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::core_model::{Model, Op, cluster, id};

/// How an operator answers a bootstrap request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blobs {
    Give,
    GiveFor(Duration),
    Refuse,
    Silent,
}

/// How Lists are answered.
pub(crate) enum Lists {
    Truth,
    /// As the fleet was so long ago.
    Lag(Duration),
    /// With these records.
    Fixed(Vec<Reported>),
    Fail,
}

pub(crate) struct World {
    pub(crate) core: Control,
    pub(crate) now: UnixNanos,
    pub(crate) model: Model,
    registry: Registry,
    pub(crate) lists: Lists,
    /// Gets fail.
    pub(crate) gets_fail: bool,
    /// So many of the next Gets know nothing of their machine.
    pub(crate) gets_unknown: usize,
    history: Vec<(UnixNanos, Vec<Machine>)>,
    pub(crate) blobs: BTreeMap<ClusterId, Blobs>,
    /// Operators acknowledge reclaim instructions.
    pub(crate) acks_reclaims: bool,
    pub(crate) sessions: BTreeMap<ClusterId, SessionId>,
    next_session: u64,
    pub(crate) audit: Vec<AuditRecord>,
    pub(crate) frames: Vec<(SessionId, Payload)>,
    /// Node updates by key, and whether each travelled in the lane in which nothing is lost.
    pub(crate) lanes: Vec<(String, bool)>,
    pub(crate) published: Option<Arc<Published>>,
    pub(crate) closed: Vec<(SessionId, CloseReason)>,
    pub(crate) epoch_checks: usize,
    /// Decisions may be wrong.
    pub(crate) faulty: bool,
    pub(crate) divergences: Vec<Divergence>,
    /// Lifecycle calls that are not answered yet: set `hold` to collect them.
    pub(crate) hold: bool,
    pub(crate) held: Vec<(CallId, MachineId, Mutation)>,
    /// Random delays and losses of answers.
    pub(crate) chaos: Option<Seeded>,
    later: BTreeMap<(UnixNanos, u64), Input>,
    sequence: u64,
    /// Lifecycle calls on their way, by machine: never more than one.
    open: BTreeMap<MachineId, CallId>,
    /// As of the last look.
    states: BTreeMap<MachineId, MachineState>,
}

pub(crate) fn start() -> UnixNanos {
    UnixNanos(0).after(Duration::from_secs(1_000_000))
}

/// The shard's defaults, with Reclaims at once and an audit of every decision.
pub(crate) fn config() -> Config {
    let mut config = Config { decision_audit_cycles: 1, ..Config::default() };
    config.policy.reclaim_after = Duration::ZERO;
    config
}

impl World {
    pub(crate) fn new(config: Config, model: Model) -> Self {
        Self::at(start(), config, model)
    }

    pub(crate) fn at(now: UnixNanos, config: Config, model: Model) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        Self {
            core: Control::new(config, Box::new(Seeded::new(7)), metrics),
            now,
            model,
            registry,
            lists: Lists::Truth,
            gets_fail: false,
            gets_unknown: 0,
            history: Vec::new(),
            blobs: BTreeMap::new(),
            acks_reclaims: true,
            sessions: BTreeMap::new(),
            next_session: 0,
            audit: Vec::new(),
            frames: Vec::new(),
            lanes: Vec::new(),
            published: None,
            closed: Vec::new(),
            epoch_checks: 0,
            faulty: false,
            divergences: Vec::new(),
            hold: false,
            held: Vec::new(),
            chaos: None,
            later: BTreeMap::new(),
            sequence: 0,
            open: BTreeMap::new(),
            states: BTreeMap::new(),
        }
    }

    /// Kills the core and starts a new one over the same provider. Answers on their way are lost.
    pub(crate) fn restart(self, config: Config) -> Self {
        let mut model = self.model;
        model.calls.clear();
        let mut world = Self::at(self.now, config, model);
        world.blobs = self.blobs;
        world
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.core.handle(self.now, input);
    }

    pub(crate) fn connect(&mut self, name: &str) -> SessionId {
        self.next_session += 1;
        let session = SessionId(self.next_session);
        self.sessions.insert(cluster(name), session);
        self.handle(Input::SessionOpened { session, cluster: cluster(name) });
        self.settle();
        session
    }

    pub(crate) fn disconnect(&mut self, name: &str) {
        let session = self.sessions.remove(&cluster(name)).unwrap();
        self.handle(Input::SessionClosed { session });
        self.settle();
    }

    pub(crate) fn rollup(&mut self, name: &str, rows: Vec<Need>) {
        let known = self.sessions.get(&cluster(name)).copied();
        let session = known.unwrap_or_else(|| self.connect(name));
        // So that the cycle that it causes runs at once.
        self.run(Duration::from_millis(100));
        self.handle(Input::Rollup { session, timestamp_unix_nanos: self.now.0, rows: Ok(rows.into()) });
        self.settle();
    }

    pub(crate) fn seconds(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    /// Lets time pass, waking the core whenever it asked for it.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            self.settle();
            let wakes =
                [self.core.next_wake(self.now), self.model.next(), self.later.keys().next().map(|k| k.0)];
            let next = wakes.into_iter().flatten().min().unwrap_or(end);
            if next >= end {
                break;
            }
            self.now = self.now.after(Duration::from_millis(1)).max(next);
            self.model.advance(self.now);
            let machines = self.model.machines.values().cloned().collect();
            if matches!(self.lists, Lists::Lag(_)) {
                self.history.push((self.now, machines));
            }
        }
        self.now = end;
        self.model.advance(end);
        self.settle();
    }

    /// Carries out everything until the core wants nothing more at this time.
    pub(crate) fn settle(&mut self) {
        loop {
            while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let input = entry.remove();
                self.deliver(input);
            }
            self.core.poll(self.now);
            self.follow();
            let outputs: Vec<Output> = self.core.drain_outputs().collect();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                self.carry_out(output);
            }
        }
        self.check();
    }

    fn deliver(&mut self, input: Input) {
        if let Input::Acked { call, .. } = &input {
            self.open.retain(|_, open| open != call);
        }
        self.core.handle(self.now, input);
        self.follow();
    }

    /// Looks at every change of state since the last look (I3): it is an edge that may be commanded, a step back from
    /// one that was not accepted, or what the provider has meanwhile.
    fn follow(&mut self) {
        let states: BTreeMap<MachineId, MachineState> =
            self.core.machines().map(|machine| (machine.id.clone(), machine.state)).collect();
        let lists_are_true = matches!(self.lists, Lists::Truth | Lists::Fail) && self.chaos.is_none();
        for (machine, to) in states.iter().filter(|_| lists_are_true) {
            let Some(from) = self.states.get(machine).filter(|from| *from != to) else { continue };
            let has = self.model.machines.get(machine).map(|machine| machine.state);
            let edge = |from: MachineState| from.command(*to).is_ok() || from.origin() == Some(*to);
            // One event may end a transition and begin the next.
            let legal = has == Some(*to) || edge(*from) || has.is_some_and(edge);
            assert!(legal, "{machine} went from {from} to {to}; the provider has it {has:?}");
        }
        self.states = states;
    }

    fn answer(&mut self, input: Input) {
        if let Some(chaos) = &mut self.chaos {
            let delay = match chaos.below(4) {
                0 => 0,
                1 => chaos.below(50),
                2 => chaos.below(2_000),
                _ => chaos.below(20_000),
            };
            self.sequence += 1;
            self.later.insert((self.now.after(Duration::from_millis(delay)), self.sequence), input);
        } else {
            self.deliver(input);
        }
    }

    fn carry_out(&mut self, output: Output) {
        self.model.advance(self.now);
        match output {
            Output::List { call, known } => {
                let result = match &self.lists {
                    Lists::Truth => Ok(self.model.records()),
                    Lists::Fixed(records) => Ok(records.clone()),
                    Lists::Fail => Err(crate::core_model::ambiguous(true)),
                    Lists::Lag(lag) => {
                        let then = self.history.iter().rev().find(|(at, _)| self.now.since(*at) >= *lag);
                        let then = then.or(self.history.first()).map(|(_, machines)| machines.clone());
                        let machines =
                            then.unwrap_or_else(|| self.model.machines.values().cloned().collect());
                        Ok(machines.into_iter().map(crate::core_model::reported).collect())
                    }
                };
                self.answer(Input::listed(call, known, result));
            }
            Output::Get { call, machine } => {
                let result = if self.gets_fail {
                    Err(crate::core_model::ambiguous(true))
                } else if self.gets_unknown > 0 {
                    self.gets_unknown -= 1;
                    Err(CallError::NotFound)
                } else {
                    self.model.read(&machine)
                };
                self.answer(Input::Got { call, result });
            }
            Output::Mutate { call, machine, mutation } => {
                let before = self.open.insert(machine.clone(), call);
                assert_eq!(before, None, "two lifecycle calls on {machine} at once");
                if self.hold {
                    return self.held.push((call, machine, mutation));
                }
                let result = self.model.change(&machine, &mutation);
                self.answer(Input::Acked { call, result });
            }
            Output::Send { session, lane, message } => {
                if let Some(Payload::NodeStateUpdate(update)) = &message.payload {
                    self.lanes.push((update.supersedes_key.clone(), lane == Lane::Fifo));
                }
                self.receive(session, message.payload.unwrap());
            }
            Output::Close { session, reason } => self.closed.push((session, reason)),
            Output::Audit(record) => self.audit.push(*record),
            Output::Publish(published) => self.published = Some(published),
            Output::CheckEpoch => self.epoch_checks += 1,
            Output::AuditDecision(audit) => {
                let divergence = audit.check();
                self.divergences.extend(divergence.clone());
                assert!(self.faulty || divergence.is_none(), "{divergence:#?}");
                self.answer(Input::DecisionAudited { cycle: audit.cycle, result: Ok(divergence) });
            }
        }
    }

    fn receive(&mut self, session: SessionId, payload: Payload) {
        let speaker =
            self.sessions.iter().find(|(_, known)| **known == session).map(|(name, _)| name.clone());
        match (&payload, &speaker) {
            (Payload::BootstrapRequest(request), Some(speaker)) => {
                let request_id = request.request_id.clone();
                let blob = |ttl| Ok(Blob { user_data: Bytes::from_static(b"secret").into(), ttl });
                let answer = match self.blobs.get(speaker).copied().unwrap_or(Blobs::Give) {
                    Blobs::Give => Some(blob(Duration::from_secs(600))),
                    Blobs::GiveFor(ttl) => Some(blob(ttl)),
                    Blobs::Refuse => Some(Err("the template does not render".to_owned())),
                    Blobs::Silent => None,
                };
                if let Some(answer) = answer {
                    self.answer(Input::Blob { session, request_id, answer });
                }
            }
            (Payload::ReclaimInstruction(instruction), Some(_)) if self.acks_reclaims => {
                let instruction_id = instruction.instruction_id.clone();
                self.answer(Input::ReclaimAcked { session, instruction_id });
            }
            _ => {}
        }
        self.frames.push((session, payload));
    }

    /// Answers the held lifecycle calls.
    pub(crate) fn release(&mut self) {
        self.hold = false;
        for (call, machine, mutation) in std::mem::take(&mut self.held) {
            self.model.advance(self.now);
            let result = self.model.change(&machine, &mutation);
            self.deliver(Input::Acked { call, result });
        }
        self.settle();
    }

    /// Answers one held call with an error that the provider never saw.
    pub(crate) fn fail_held(&mut self, error: &CallError) {
        self.hold = false;
        for (call, _, _) in std::mem::take(&mut self.held) {
            self.deliver(Input::Acked { call, result: Err(error.clone()) });
        }
        self.settle();
    }

    /// What must hold at any time.
    pub(crate) fn check(&self) {
        let flying: Vec<&MachineId> = self.core.in_flight().collect();
        assert!(self.core.questions() <= flying.len(), "questions of actions that are over are kept");
        for machine in self.core.machines() {
            let name = &machine.id;
            let state = machine.state;
            if state != MachineState::Failed {
                assert_eq!(state.is_bound(), machine.cluster.is_some(), "{name} is {state}");
                if !state.is_bound() {
                    assert!(machine.attribution.is_empty(), "{name} is {state}");
                }
            }
            if matches!(state, MachineState::Speculative | MachineState::Creating) {
                assert_eq!(machine.host, None, "{name} is {state}");
            } else {
                assert!(machine.host.is_some() || state == MachineState::Failed, "{name} is {state}");
            }
            if state.is_transitional() {
                assert!(flying.contains(&name), "nobody watches {name}, which is {state}");
            }
        }
    }

    pub(crate) fn state(&self, name: &str) -> MachineState {
        self.core.machine(&id(name)).unwrap_or_else(|| panic!("{name} is gone")).state
    }

    pub(crate) fn count(&self, state: MachineState) -> usize {
        self.core.machines().filter(|machine| machine.state == state).count()
    }

    pub(crate) fn calls(&self, op: Op) -> usize {
        self.model.calls_of(op)
    }

    /// All metric lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    /// The value of a metric line, 0 when it is not there.
    pub(crate) fn metric(&self, line: &str) -> f64 {
        let prefix = format!("bigfleet_shard_{line} ");
        let value = self.lines().find_map(|line| Some(line.strip_prefix(&prefix)?.to_owned()));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) fn outcomes(&self) -> Vec<(&'static str, String, &'static str)> {
        self.audit.iter().map(|r| (r.kind, r.machine.clone(), r.outcome)).collect()
    }

    /// The node updates of a machine, in order.
    pub(crate) fn updates(&self, name: &str) -> Vec<&NodeStateUpdate> {
        let update = |(_, payload): &'_ (SessionId, Payload)| match payload {
            Payload::NodeStateUpdate(update) if update.machine_id == name => Some(()),
            _ => None,
        };
        let frames = self.frames.iter().filter(|frame| update(frame).is_some());
        frames
            .map(|(_, payload)| match payload {
                Payload::NodeStateUpdate(update) => update,
                _ => unreachable!(),
            })
            .collect()
    }

    pub(crate) fn update_states(&self, name: &str) -> Vec<i32> {
        self.updates(name).iter().map(|update| update.state).collect()
    }

    /// The acknowledgements that operators got: echo and reason.
    pub(crate) fn acks(&self) -> Vec<(String, String)> {
        let ack = |payload: &Payload| match payload {
            Payload::Ack(ack) => Some((ack.echo.clone(), ack.reason.clone())),
            _ => None,
        };
        self.frames.iter().filter_map(|(_, payload)| ack(payload)).collect()
    }
}
