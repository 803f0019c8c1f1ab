//! Transitions that do not end.

use std::time::Duration;

use bigfleet_types::{MachineId, MachineState, UnixNanos};
use tracing::warn;

use super::Control;
use super::flight::{Flight, Operation, Stage, Work};
use super::record::Record;
use super::schedule::Timer;
use crate::io::Mutation;
use bigfleet_engine::{Action, ActionKind};

/// How often a stuck machine is mentioned.
const REMIND: Duration = Duration::from_secs(300);
const LEAST_DRAIN: Duration = Duration::from_secs(900);

impl Control {
    /// How long the machine may stay in its transition.
    pub(super) fn patience(&self, record: &Record) -> Duration {
        let stuck = &self.config.stuck;
        match record.state() {
            MachineState::Creating => stuck.create,
            MachineState::Configuring => stuck.configure,
            MachineState::Deleting => stuck.delete,
            _ => self.grace(record.flight.as_deref()).saturating_add(stuck.drain).max(LEAST_DRAIN),
        }
    }

    fn grace(&self, flight: Option<&Flight>) -> Duration {
        let given = flight.and_then(|flight| flight.work.as_ref()).map(|work| work.action.grace);
        given.unwrap_or(self.config.policy.reclaim_grace)
    }

    /// Looks at a transition that may have lasted too long. Its watch has been asking all the time.
    pub(super) fn look_after(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.get(id) else { return };
        let (state, since) = (record.state(), record.state_since);
        let patience = self.patience(record);
        let lasted = now.since(since);
        if !state.is_transitional() || lasted < patience {
            return;
        }
        let watched = record.flight.as_deref().is_some_and(|flight| matches!(flight.stage, Stage::Watch(_)));
        let operation_id = record.flight.as_deref().map(|f| f.operation_id.clone()).unwrap_or_default();
        let hopeless = lasted >= patience.saturating_mul(3);
        warn!(
            machine = %id, %state, seconds = lasted.as_secs(), operation_id, withheld = hopeless,
            "a transition does not end"
        );
        if !record.stuck || (hopeless && !record.withheld) {
            self.change(now, id, |record| {
                record.stuck = true;
                record.withheld |= hopeless;
            });
            self.dirty |= hopeless;
        }
        let mut next = now.after(REMIND);
        if !hopeless {
            next = next.min(since.after(patience.saturating_mul(3)));
        }
        self.timers.set(next, Timer::Watchdog(id.clone()));
        if watched && !self.is_halted() && self.breaker.allows(id, now) {
            self.reissue(now, id);
        }
    }

    /// Sends the call of a stuck transition once more: a provider that lost the work begins again, any other one
    /// takes it for what it is.
    fn reissue(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.get(id) else { return };
        let Some(flight) = record.flight.as_deref().filter(|flight| !flight.reissued) else { return };
        let operation = flight.operation;
        let mutation = match operation {
            Operation::Create => Mutation::Create,
            Operation::Delete => Mutation::Delete,
            Operation::Drain => Mutation::Drain { grace: self.grace(Some(flight)) },
            Operation::Configure => return self.reconfigure(now, id),
        };
        if let Some(flight) = self.fleet.flight_mut(id) {
            flight.reissued = true;
        }
        self.call(now, id, mutation);
    }

    /// A Configure needs a fresh blob.
    fn reconfigure(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(machine) = self.fleet.get(id).map(|record| record.machine.clone()) else { return };
        let Some(cluster) = machine.cluster.clone() else { return };
        let Some(session) = self.sessions.of(&cluster) else { return };
        let known = self.fleet.get(id).and_then(|record| record.flight.as_ref()?.work.clone());
        let work = known.or_else(|| {
            let stamp = machine.attribution.fingerprint.as_deref()?;
            let need = self
                .demand
                .get(&cluster)?
                .needs
                .values()
                .find(|need| need.profile.fingerprint().to_string() == *stamp)?;
            let action = Action {
                kind: ActionKind::Bootstrap,
                machine: id.clone(),
                cluster: Some(cluster.clone()),
                need: Some(need.clone()),
                need_key: Some(need.key(&cluster)),
                grace: Duration::ZERO,
                preemptor_priority: 0,
            };
            Some(Box::new(Work { action, decided_cycle: self.cycle }))
        });
        let Some(flight) = self.fleet.flight_mut(id).filter(|_| work.is_some()) else { return };
        flight.work = work;
        flight.reissued = true;
        flight.began = now;
        self.ask_for_blob(now, id, session, false);
    }
}
