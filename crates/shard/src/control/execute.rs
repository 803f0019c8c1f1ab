//! From the board to the provider: each action goes through its stages, one call at a time and one action a machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{ActionKind, PreemptedFor, Purpose};
use bigfleet_proto::v1alpha1::{self as wire, ShardMessage, shard_message::Payload};
use bigfleet_types::{Attribution, Machine, MachineId, MachineState, Rollback, UnixNanos};
use bytes::Bytes;

use super::Control;
use super::board::{Busy, Limits};
use super::config::{BLOB_SAFETY, RECLAIM_ACK_WAIT};
use super::flight::{Flight, Operation, Stage, Work};
use super::notify::{node_key, node_labels};
use super::record::Record;
use super::schedule::{Call, Timer};
use crate::io::{Blob, Lane, Mutation, Output, Secret, SessionId};

impl Control {
    /// Whether nothing new may begin.
    pub(super) fn is_halted(&self) -> bool {
        self.is_paused() || self.stopping || self.config.dry_run || self.fence.is_latched()
    }

    /// Gives free workers something to do.
    pub(super) fn fill(&mut self, now: UnixNanos) {
        if self.is_halted() || self.board.len() == 0 {
            return;
        }
        let mut busy = Busy { slots: 0, releases: 0, waiting: BTreeMap::new() };
        for (_, flight) in self.fleet.in_flight().filter(|(_, flight)| flight.holds_slot()) {
            busy.slots += 1;
            busy.releases += usize::from(flight.is_release());
            if let Some(cluster) = flight.waits_for() {
                *busy.waiting.entry(cluster.clone()).or_default() += 1;
            }
        }
        let limits = Limits {
            slots: usize::try_from(self.config.execute_concurrency.max(1)).unwrap_or(usize::MAX),
            waiting: self.config.waits_per_cluster(),
        };
        loop {
            if self.breaker.is_open() && self.breaker.until().is_none_or(|until| until > now) {
                return;
            }
            // While a probe is under way nothing else begins, and nothing is taken from the board for it.
            if self.breaker.is_probing() {
                return;
            }
            let Some(work) = self.board.next(&busy, &limits) else { return };
            let id = work.action.machine.clone();
            self.breaker.begins(&id);
            self.start(now, work);
            match self.fleet.get(&id).and_then(|record| record.flight.as_deref()) {
                Some(flight) if flight.holds_slot() => {
                    busy.slots += 1;
                    busy.releases += usize::from(flight.is_release());
                    if let Some(cluster) = flight.waits_for() {
                        *busy.waiting.entry(cluster.clone()).or_default() += 1;
                    }
                }
                _ => self.breaker.ends(&id),
            }
        }
    }

    /// Begins one action, if its machine still is what the engine saw.
    fn start(&mut self, now: UnixNanos, work: Work) {
        let id = work.action.machine.clone();
        let Some(record) = self.fleet.get(&id) else {
            return self.conclude(&work, "transition_error", "inventory_miss", "");
        };
        if record.flight.is_some() {
            self.metrics.actions_deduped.inc();
            return;
        }
        if self.is_withheld(now, record, work.kind()) {
            return;
        }
        let machine = record.machine.clone();
        match work.kind() {
            ActionKind::Provision => self.start_create(now, work, &machine),
            ActionKind::Bootstrap => self.start_bootstrap(now, work, &machine),
            ActionKind::Reclaim | ActionKind::Preempt => self.start_drain(now, work, &machine),
            ActionKind::Delete => {
                if machine.state != MachineState::Idle {
                    return self.conclude(&work, "success", "", "");
                }
                self.take_off(now, &id, Operation::Delete, work);
                self.enter(now, &id, MachineState::Deleting);
                self.call(now, &id, Mutation::Delete);
            }
        }
    }

    /// Whether something happened since the decision that keeps the machine from the engine.
    fn is_withheld(&self, now: UnixNanos, record: &Record, kind: ActionKind) -> bool {
        let operation = match kind {
            ActionKind::Provision => Operation::Create,
            ActionKind::Bootstrap => Operation::Configure,
            ActionKind::Reclaim | ActionKind::Preempt => Operation::Drain,
            ActionKind::Delete => Operation::Delete,
        };
        let out_of_stock =
            || operation == Operation::Create && self.cool.is_out_of_stock(&record.stock_class(), now);
        record.is_cooling(now)
            || self.cool.is_lacking(operation, record.machine.capacity_type)
            || out_of_stock()
    }

    fn start_create(&mut self, now: UnixNanos, work: Work, machine: &Arc<Machine>) {
        let Some((_, _, key)) = work.target() else {
            return self.conclude(&work, "transition_error", "missing_profile", "");
        };
        if machine.state != MachineState::Speculative {
            return self.conclude(&work, "transition_error", "stale_state", "");
        }
        let key = key.clone();
        self.take_off(now, &machine.id, Operation::Create, work);
        let promised = machine.capacity().clone();
        self.change(now, &machine.id, |record| {
            let mut machine = Machine::clone(&record.machine);
            machine.state = MachineState::Creating;
            machine.last_error = "".into();
            record.machine = Arc::new(machine);
            record.created_for = Some(key);
            record.advertised = Some(promised);
        });
        self.call(now, &machine.id, Mutation::Create);
    }

    /// Takes an Idle machine for a cluster and asks the operator for its blob.
    pub(super) fn start_bootstrap(&mut self, now: UnixNanos, work: Work, machine: &Arc<Machine>) {
        let Some((cluster, need, _)) = work.target() else {
            return self.conclude(&work, "transition_error", "missing_profile", "");
        };
        let attribution = Attribution::of(need);
        let there = machine.state == MachineState::Configured
            && machine.cluster.as_ref() == Some(cluster)
            && machine.attribution.fingerprint == attribution.fingerprint;
        if there {
            return self.conclude(&work, "success", "", "");
        }
        if machine.state != MachineState::Idle {
            return self.conclude(&work, "transition_error", "stale_state", "");
        }
        let session = self.sessions.of(cluster);
        if session.is_none() && !self.config.local_bootstrap {
            return self.conclude(&work, "no_session", "", "");
        }
        let cluster = cluster.clone();
        self.take_off(now, &machine.id, Operation::Configure, work);
        self.change(now, &machine.id, |record| {
            let mut machine = Machine::clone(&record.machine);
            machine.state = MachineState::Configuring;
            machine.cluster = Some(cluster);
            machine.attribution = attribution;
            record.machine = Arc::new(machine);
        });
        match session {
            Some(session) => self.ask_for_blob(now, &machine.id, session, false),
            None => self.configure(now, &machine.id, Bytes::from_static(b"local").into()),
        }
    }

    /// Asks the operator for the blob of a Configuring machine.
    pub(super) fn ask_for_blob(&mut self, now: UnixNanos, id: &MachineId, session: SessionId, again: bool) {
        let request = self.fresh_id();
        let Some(machine) = self.fleet.get(id).map(|record| record.machine.clone()) else { return };
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        let Some((cluster, need, _)) = flight.work.as_ref().and_then(|work| work.target()) else { return };
        let message = wire::BootstrapRequest {
            request_id: request.clone(),
            requirements: need.profile.requirements().iter().map(Into::into).collect(),
            cluster_id: cluster.to_string(),
            machine_id: id.to_string(),
            labels: node_labels(&machine),
            taints: Vec::new(),
        };
        let ceiling = flight.began.after(self.config.execute_timeout);
        flight.deadline = now.after(self.config.bootstrap_timeout).min(ceiling);
        flight.stage = Stage::Blob { request: request.clone(), asked: now, again };
        self.timers.set(flight.deadline, Timer::Stage(id.clone()));
        self.sessions.requests.insert(request, id.clone());
        self.send(session, Payload::BootstrapRequest(message));
    }

    /// The operator answered a bootstrap request.
    pub(super) fn blob(
        &mut self,
        now: UnixNanos,
        session: SessionId,
        request_id: &str,
        answer: Result<Blob, String>,
    ) {
        let Some(cluster) = self.sessions.cluster_of(session).cloned() else { return };
        let Some(id) = self.sessions.requests.get(request_id).cloned() else { return };
        let Some(flight) = self.fleet.flight_mut(&id) else { return };
        let Stage::Blob { request, asked, again } = &flight.stage else { return };
        let ours = request == request_id
            && flight.work.as_ref().and_then(|w| w.action.cluster.as_ref()) == Some(&cluster);
        if !ours {
            return;
        }
        let (asked, again, reissued) = (*asked, *again, flight.reissued);
        let fingerprint = flight.work.as_ref().and_then(|w| Some(w.action.need_key.as_ref()?.fingerprint));
        self.sessions.requests.remove(request_id);
        match answer {
            Ok(blob) => {
                self.bootstraps.answered(&cluster);
                self.metrics.request_bootstrap_seconds.observe(now.since(asked).as_secs_f64());
                if let Some(fingerprint) = fingerprint {
                    self.bootstraps.accepted(&cluster, fingerprint);
                }
                if blob.ttl > BLOB_SAFETY {
                    self.configure(now, &id, blob.user_data);
                } else if again && reissued {
                    self.start_watch(&id, now, None);
                } else if again {
                    self.abandon(now, &id, "blob_error", "the blob expires before it can be used");
                } else {
                    self.ask_for_blob(now, &id, session, true);
                }
            }
            Err(message) => {
                self.bootstraps.answered(&cluster);
                self.refused_blob(now, &id, &message);
            }
        }
    }

    fn configure(&mut self, now: UnixNanos, id: &MachineId, blob: Secret) {
        let Some(machine) = self.fleet.get(id).map(|record| record.machine.clone()) else { return };
        let Some(cluster) = machine.cluster.clone() else { return };
        let mutation = Mutation::Configure { cluster, blob, attribution: machine.attribution.clone() };
        self.call(now, id, mutation);
    }

    /// Tells the operator to begin a drain, or drains at once when it is away and the matter is urgent.
    fn start_drain(&mut self, now: UnixNanos, work: Work, machine: &Arc<Machine>) {
        if machine.state != MachineState::Configured {
            return self.conclude(&work, "success", "", "");
        }
        let Some(cluster) = work.action.cluster.clone().filter(|c| machine.cluster.as_ref() == Some(c))
        else {
            return self.conclude(&work, "transition_error", "stale_state", "");
        };
        let id = &machine.id;
        let reclaim = work.kind() == ActionKind::Reclaim;
        let session = self.sessions.of(&cluster);
        if reclaim && session.is_none() {
            self.metrics.reclaims_deferred_no_session.inc();
            return self.conclude(&work, "no_session", "", "");
        }
        if reclaim {
            self.rails.reclaimed(now, &cluster);
        }
        let (grace, priority) = (work.action.grace, work.action.preemptor_priority);
        self.take_off(now, id, Operation::Drain, work);
        let Some(session) = session else { return self.drain(now, id) };
        let instruction = self.fresh_id();
        let message = wire::ReclaimInstruction {
            instruction_id: instruction.clone(),
            nodes: vec![id.to_string()],
            grace_period_seconds: seconds(grace),
            preemptor_priority: priority,
            machine_ids: vec![id.to_string()],
        };
        let deadline = now.after(RECLAIM_ACK_WAIT);
        if let Some(flight) = self.fleet.flight_mut(id) {
            flight.deadline = deadline;
            flight.stage = Stage::Instructed { instruction: instruction.clone() };
        }
        self.timers.set(deadline, Timer::Stage(id.clone()));
        self.sessions.instructions.insert(instruction, id.clone());
        // A state told before must not be heard after it: CONFIGURED behind an instruction calls it off.
        let lane = Lane::Behind(node_key(id));
        let message = Box::new(ShardMessage { payload: Some(Payload::ReclaimInstruction(message)) });
        self.outputs.push_back(Output::Send { session, lane, message });
    }

    /// The operator began a drain.
    pub(super) fn reclaim_acked(&mut self, now: UnixNanos, session: SessionId, instruction_id: &str) {
        let Some(cluster) = self.sessions.cluster_of(session) else { return };
        let Some(id) = self.sessions.instructions.get(instruction_id).cloned() else { return };
        let ours = self.fleet.get(&id).is_some_and(|record| {
            let awaited = record.flight.as_deref().map(|flight| &flight.stage);
            record.machine.cluster.as_ref() == Some(cluster)
                && matches!(awaited, Some(Stage::Instructed { instruction }) if instruction == instruction_id)
        });
        if ours {
            self.drain(now, &id);
        }
    }

    /// Cordoned, or not in time: the provider's turn.
    pub(super) fn drain(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        self.sessions.forget_question(&flight.stage);
        let Some(work) = flight.work.as_deref().cloned() else { return };
        let live = self.fleet.get(id).is_some_and(|record| record.state() == MachineState::Configured);
        if !live || !self.breaker.allows(id, now) {
            return self.abandon(
                now,
                id,
                "transition_error",
                if live { "breaker_open" } else { "stale_state" },
            );
        }
        let purpose = match (&work.action.need_key, work.kind()) {
            (Some(need), ActionKind::Preempt) => Purpose::Preemption(PreemptedFor {
                need: need.clone(),
                priority: work.action.preemptor_priority,
            }),
            _ => Purpose::None,
        };
        self.change(now, id, |record| {
            record.machine = with_state(&record.machine, MachineState::Draining);
            record.purpose = purpose;
        });
        self.call(now, id, Mutation::Drain { grace: work.action.grace });
    }

    /// The wait of a stage is over.
    pub(super) fn stage_timed_out(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        if flight.deadline > now {
            return;
        }
        match &flight.stage {
            Stage::Blob { .. } => self.lost_blob(now, id, "the operator did not answer in time"),
            Stage::Instructed { .. } => self.drain(now, id),
            Stage::Call { .. } | Stage::Watch(_) => {}
        }
    }

    /// Sends a lifecycle call.
    pub(super) fn call(&mut self, now: UnixNanos, id: &MachineId, mutation: Mutation) {
        let halted = self.is_halted() || !self.breaker.allows(id, now);
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        let first = !flight.reissued;
        if now.since(flight.began) > self.config.execute_timeout && first {
            return self.abandon(now, id, "ctx_canceled", "the action took too long");
        }
        if halted && first {
            return self.abandon(now, id, "ctx_canceled", "halted");
        }
        let call = self.calls.open(Call::Mutate(id.clone()));
        flight.stage = Stage::Call { call };
        self.outputs.push_back(Output::Mutate { call, machine: id.clone(), mutation });
    }

    /// Gives up an action before the provider heard of it: the machine is again what it was.
    pub(super) fn abandon(&mut self, now: UnixNanos, id: &MachineId, outcome: &'static str, detail: &str) {
        let Some(flight) = self.fleet.land(id, now) else { return };
        self.sessions.forget_question(&flight.stage);
        // The operator has cordoned its node, or is about to. One that comes after it hears of every machine.
        if matches!(flight.stage, Stage::Instructed { .. }) && outcome != "no_session" {
            self.send_drain_is_off(id);
        }
        self.step_back(now, id);
        self.breaker.ends(id);
        self.dirty = true;
        if let Some(work) = &flight.work {
            self.conclude(work, outcome, detail, &flight.operation_id);
        }
    }

    /// Undoes a transition that the provider is known not to have taken.
    pub(super) fn step_back(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.get(id) else { return };
        let Ok(origin) = record.state().roll_back(Rollback) else { return };
        self.change(now, id, |record| record.machine = with_state(&record.machine, origin));
    }

    fn take_off(&mut self, now: UnixNanos, id: &MachineId, operation: Operation, work: Work) {
        // Replaced before anyone looks: every path sends a call or asks an operator next.
        let stage = Stage::Instructed { instruction: String::new() };
        self.fleet.take_off(
            id,
            Flight {
                operation,
                work: Some(Box::new(work)),
                stage,
                began: now,
                deadline: now,
                operation_id: String::new(),
                reissued: false,
            },
        );
    }

    fn enter(&mut self, now: UnixNanos, id: &MachineId, state: MachineState) {
        self.change(now, id, |record| record.machine = with_state(&record.machine, state));
    }

    fn fresh_id(&mut self) -> String {
        format!("{:016x}", self.chance.next_u64())
    }

    /// Sends a frame that must not get lost.
    pub(super) fn send(&mut self, session: SessionId, payload: Payload) {
        let message = Box::new(ShardMessage { payload: Some(payload) });
        self.outputs.push_back(Output::Send { session, lane: Lane::Fifo, message });
    }
}

/// The machine in another state; what the state cannot have is gone.
pub(super) fn with_state(machine: &Arc<Machine>, state: MachineState) -> Arc<Machine> {
    let mut machine = Machine::clone(machine);
    machine.state = state;
    if !state.is_bound() && state != MachineState::Failed {
        machine.cluster = None;
        machine.attribution = Attribution::default();
        machine.last_error = "".into();
    }
    if matches!(state, MachineState::Speculative | MachineState::Creating) {
        machine.host = None;
    }
    Arc::new(machine)
}

pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
