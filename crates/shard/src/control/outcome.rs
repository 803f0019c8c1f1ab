//! What becomes of a lifecycle call: the whole table of answers.

use std::sync::Arc;

use bigfleet_engine::ActionKind;
use bigfleet_types::{Machine, MachineId, MachineState, UnixNanos};
use tracing::{error, info, warn};

use super::Control;
use super::config::{FENCED_COOL_DOWN, WATCH_FIRST};
use super::flight::{Doubt, Operation, Stage, Work};
use super::schedule::Timer;
use crate::io::{Acknowledged, AuditRecord, CallError, CallId, Output, Refused};

impl Control {
    /// A lifecycle call was answered, or was not.
    pub(super) fn acked(
        &mut self,
        now: UnixNanos,
        call: CallId,
        id: &MachineId,
        result: Result<Acknowledged, CallError>,
    ) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        if flight.stage != (Stage::Call { call }) {
            return;
        }
        self.note_answer(now, id, &result);
        match result {
            Ok(ack) => self.accepted(now, id, &ack),
            Err(error) => self.failed(now, id, &error),
        }
    }

    /// The circuit breaker learns whether the provider answers at all.
    fn note_answer(&mut self, now: UnixNanos, id: &MachineId, result: &Result<Acknowledged, CallError>) {
        let opened = match result {
            Err(CallError::Ambiguous { .. }) => self.breaker.silent(id, now),
            Err(CallError::Denied(_)) => Some(self.breaker.trip(now)),
            Ok(_) | Err(_) => {
                if self.breaker.answered() {
                    info!("the provider answers again");
                    self.dirty = true;
                }
                None
            }
        };
        if let Some(until) = opened {
            error!("no lifecycle calls until the provider is probed again");
            self.timers.set(until, Timer::Wake);
        }
    }

    fn accepted(&mut self, now: UnixNanos, id: &MachineId, ack: &Acknowledged) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        flight.operation_id.clone_from(&ack.operation_id);
        let (operation, work, reissued) = (flight.operation, flight.work.clone(), flight.reissued);
        self.count_violations(&ack.machine.violations);
        let machine = match self.check_ack(id, operation, ack) {
            Ok(machine) => machine,
            Err(refused) => {
                self.refuse(now, Some(id), &refused);
                if !reissued {
                    self.strike(now, id);
                    self.report(work.as_deref(), Self::error_outcome(operation), &refused.message, ack);
                }
                return self.start_watch(id, now, (!reissued).then_some(Doubt::Refused));
            }
        };
        self.fence.accepted();
        if operation == Operation::Create
            && let Some(record) = self.fleet.get(id)
        {
            self.cool.in_stock(&record.stock_class());
        }
        if operation == Operation::Delete && !reissued && machine.state != MachineState::Failed {
            self.metrics.idle_releases.inc();
        }
        let failed = machine.state == MachineState::Failed;
        let goes_on = machine.state == MachineState::Idle
            && operation == Operation::Create
            && !self.is_halted()
            && self.sessions_allow(work.as_deref());
        // From here on the watch has it; a machine that has arrived ends it at once.
        self.start_watch(id, now.after(WATCH_FIRST), None);
        self.adopt(now, &machine);
        if let (true, Some(work)) = (goes_on, work.as_deref())
            && let Some(idle) = self.fleet.get(id).map(|record| record.machine.clone())
            && idle.state == MachineState::Idle
        {
            // One action from slot to node: its outcome is that of its last stage.
            return self.start_bootstrap(now, work.clone(), &idle);
        }
        if !reissued {
            let outcome = if failed { Self::error_outcome(operation) } else { "success" };
            let detail = if failed { machine.last_error.to_string() } else { String::new() };
            self.report(work.as_deref(), outcome, &detail, ack);
        }
    }

    fn sessions_allow(&self, work: Option<&Work>) -> bool {
        let cluster = work.and_then(|work| work.action.cluster.as_ref());
        cluster.is_some_and(|cluster| self.config.local_bootstrap || self.sessions.of(cluster).is_some())
    }

    /// Whether an acknowledgement is about our operation on our machine.
    fn check_ack(
        &self,
        id: &MachineId,
        operation: Operation,
        ack: &Acknowledged,
    ) -> Result<Arc<Machine>, Refused> {
        let machine = ack.machine.record.clone()?;
        let structural = |message| Err(Refused { reason: "structural", message });
        if machine.id != *id {
            return structural(format!("machine.id: is {}, not {id}", machine.id));
        }
        let state = machine.state;
        let during = operation.state();
        if state != during && during.target() != Some(state) && state != MachineState::Failed {
            return structural(format!("machine.state: {state} has nothing to do with a {operation:?}"));
        }
        let ours = self.fleet.get(id).and_then(|record| record.machine.cluster.clone());
        let named = machine.cluster.is_some() && state.is_bound();
        if named && machine.cluster != ours {
            return structural("machine.cluster: another one than asked for".to_owned());
        }
        Ok(machine)
    }

    fn failed(&mut self, now: UnixNanos, id: &MachineId, error: &CallError) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        let (operation, reissued) = (flight.operation, flight.reissued);
        let work = flight.work.clone();
        let (outcome, detail) = match error {
            CallError::Fenced(message) => ("fenced", message.clone()),
            CallError::Ambiguous { deadline: true, message } => ("ctx_canceled", message.clone()),
            CallError::Ambiguous { message, .. } => (Self::error_outcome(operation), message.clone()),
            CallError::NotFound => (Self::error_outcome(operation), "not_found".to_owned()),
            CallError::Unimplemented => (Self::error_outcome(operation), "unimplemented".to_owned()),
            CallError::Exhausted(message) | CallError::Denied(message) | CallError::Rejected(message) => {
                (Self::error_outcome(operation), message.clone())
            }
        };
        warn!(machine = %id, operation = ?operation, outcome, "lifecycle call failed: {detail}");
        if let Some(work) = work.as_deref().filter(|_| !reissued) {
            self.conclude(work, outcome, &detail, "");
        }
        if let CallError::Fenced(_) = error {
            self.fenced(now, id);
        }
        // A call that only repeats an accepted one says nothing against the first.
        let doubt = match error {
            CallError::Ambiguous { .. } => Doubt::Silent,
            CallError::NotFound => Doubt::Unknown,
            _ => Doubt::Refused,
        };
        let doubt = (!reissued).then_some(doubt);
        if reissued {
            return self.start_watch(id, now.after(WATCH_FIRST), doubt);
        }
        match error {
            CallError::Unimplemented => {
                self.unsupported(now, id, operation);
                return self.undo(now, id);
            }
            CallError::Denied(_) => {
                error!(machine = %id, "the provider does not let us in: {detail}");
                return self.undo(now, id);
            }
            CallError::Exhausted(_) if operation == Operation::Create => self.stock_out(now, id),
            CallError::Exhausted(_) | CallError::Rejected(_) => self.strike(now, id),
            CallError::Ambiguous { .. } | CallError::Fenced(_) | CallError::NotFound => {}
        }
        self.start_watch(id, now, doubt);
    }

    /// Another process with a newer token has this machine, or the provider misuses the code.
    fn fenced(&mut self, now: UnixNanos, id: &MachineId) {
        error!(machine = %id, "fenced: the provider has seen a newer token than ours");
        let strikes = self.fleet.get(id).map_or(0, |record| record.strikes);
        self.rest(now, id, strikes, now.after(FENCED_COOL_DOWN));
        if self.fence.fenced(id) {
            error!("three machines in a row fenced us: nothing is executed any more until a restart");
            self.metrics.self_fenced.set(1);
            self.board.clear();
            self.abandon_waiting(now, "fenced");
            self.outputs.push_back(Output::CheckEpoch);
        }
    }

    fn unsupported(&mut self, now: UnixNanos, id: &MachineId, operation: Operation) {
        let Some(capacity) = self.fleet.get(id).map(|record| record.machine.capacity_type) else { return };
        if self.cool.lacks(operation, capacity) {
            warn!(
                operation = ?operation, capacity_type = capacity.name(),
                "the provider does not implement this operation; not tried again until a restart"
            );
            self.rejudge(now, |record| record.machine.capacity_type == capacity);
        }
    }

    fn stock_out(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(class) = self.fleet.get(id).map(super::record::Record::stock_class) else { return };
        if let Some(until) = self.cool.out_of_stock(class.clone(), now) {
            warn!(instance_type = %class.0, zone = %class.1, capacity_type = class.2.name(), "out of stock");
            self.timers.set(until, Timer::Stock);
            self.rejudge(now, |record| {
                record.state() == MachineState::Speculative && record.stock_class() == class
            });
        }
    }

    /// The provider certainly did not take the operation.
    fn undo(&mut self, now: UnixNanos, id: &MachineId) {
        self.fleet.land(id, now);
        self.step_back(now, id);
        self.breaker.ends(id);
        self.dirty = true;
    }

    /// Ends every action that waits for an operator: nothing of it has reached the provider.
    pub(super) fn abandon_waiting(&mut self, now: UnixNanos, detail: &str) {
        let waiting: Vec<MachineId> = self
            .fleet
            .in_flight()
            .filter(|(_, flight)| matches!(flight.stage, Stage::Blob { .. } | Stage::Instructed { .. }))
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            if self.fleet.flight_mut(&id).is_some_and(|flight| flight.reissued) {
                self.start_watch(&id, now, None);
            } else {
                self.abandon(now, &id, "ctx_canceled", detail);
            }
        }
    }

    fn report(&mut self, work: Option<&Work>, outcome: &'static str, detail: &str, ack: &Acknowledged) {
        if let Some(work) = work {
            self.conclude(work, outcome, detail, &ack.operation_id);
        }
    }

    /// Counts and records what became of an action.
    pub(super) fn conclude(&mut self, work: &Work, outcome: &'static str, detail: &str, operation_id: &str) {
        let labels = [("kind", work.kind().name()), ("outcome", outcome)];
        self.metrics.action_execute_outcomes.get_or_create(&labels).inc();
        self.audit(work, outcome, detail, operation_id);
    }

    /// Records what became of an action.
    pub(super) fn audit(&mut self, work: &Work, outcome: &'static str, detail: &str, operation_id: &str) {
        let action = &work.action;
        let drains = matches!(action.kind, ActionKind::Reclaim | ActionKind::Preempt);
        self.outputs.push_back(Output::Audit(Box::new(AuditRecord {
            cycle: self.cycle,
            decided_cycle: work.decided_cycle,
            kind: action.kind.name(),
            machine: action.machine.to_string(),
            cluster: action.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            reason: action.kind.reason(),
            grace_seconds: if drains { action.grace.as_secs() } else { 0 },
            outcome,
            detail: detail.to_owned(),
            operation_id: operation_id.to_owned(),
        })));
    }
}
