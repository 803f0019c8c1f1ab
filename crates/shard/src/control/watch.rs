//! Gets: machines in flight until they have settled, and machines of which a List gave reason to doubt.

use bigfleet_types::{MachineId, UnixNanos};
use tracing::warn;

use super::Control;
use super::config::{WATCH_FIRST, WATCH_SLOWEST};
use super::flight::{Doubt, Stage, Watch};
use super::schedule::Call;
use crate::io::{CallError, CallId, Output, Reported};

impl Control {
    /// From now on the machine is watched, beginning at `due`.
    pub(super) fn start_watch(&mut self, id: &MachineId, due: UnixNanos, doubt: Option<Doubt>) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        let watch = Watch { get: None, pause: WATCH_FIRST, due, doubt, unknown: false };
        let before = std::mem::replace(&mut flight.stage, Stage::Watch(watch));
        self.sessions.forget_question(&before);
        self.gets.watch(due, id.clone());
    }

    /// Sends the Gets that are due.
    pub(super) fn send_gets(&mut self, now: UnixNanos) {
        if self.stopping {
            return;
        }
        while let Some(next) = self.gets.pop(now) {
            let (call, machine) = match next {
                Ok((due, id)) => {
                    let Some(Stage::Watch(watch)) = self.fleet.flight_mut(&id).map(|f| &mut f.stage) else {
                        continue;
                    };
                    if watch.get.is_some() || watch.due != due {
                        continue;
                    }
                    let call = self.calls.open(Call::Watch(id.clone()));
                    watch.get = Some(call);
                    (call, id)
                }
                Err(id) => {
                    if self.fleet.get(&id).is_none_or(|record| record.flight.is_some()) {
                        continue;
                    }
                    let generation = self.fleet.generation();
                    (self.calls.open(Call::Recheck { id: id.clone(), generation }), id)
                }
            };
            self.gets.begun();
            self.outputs.push_back(Output::Get { call, machine });
        }
    }

    /// The Get of a watch came back.
    pub(super) fn watched(
        &mut self,
        now: UnixNanos,
        call: CallId,
        id: &MachineId,
        result: Result<Reported, CallError>,
    ) {
        self.gets.done();
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        let Stage::Watch(watch) = &mut flight.stage else { return };
        if watch.get != Some(call) {
            return;
        }
        let unknown = matches!(result, Err(CallError::NotFound));
        // Two answers must agree, of which the call that began this may be one.
        let gone = unknown && (watch.unknown || watch.doubt == Some(Doubt::Unknown));
        watch.get = None;
        watch.unknown = if result.is_ok() { false } else { watch.unknown || unknown };
        watch.pause = if unknown { WATCH_FIRST } else { (watch.pause * 2).min(WATCH_SLOWEST) };
        watch.due = now.after(watch.pause);
        let due = watch.due;
        match result {
            Ok(reported) => self.take_answer(now, id, &reported),
            Err(_) if gone => {
                warn!(machine = %id, "the provider does not know this machine any more; removed");
                self.lists.denied.insert(id.clone(), now);
                return self.remove(now, id);
            }
            // Nothing learnt; the watchdog is there if this lasts.
            Err(_) => {}
        }
        let still_watched = self.fleet.flight_mut(id).is_some_and(
            |flight| matches!(&flight.stage, Stage::Watch(watch) if watch.due == due && watch.get.is_none()),
        );
        if still_watched {
            self.gets.watch(due, id.clone());
        }
    }

    /// A Get for our own eyes came back.
    pub(super) fn rechecked(
        &mut self,
        now: UnixNanos,
        id: &MachineId,
        generation: u64,
        result: Result<Reported, CallError>,
    ) {
        self.gets.done();
        let Some(record) = self.fleet.get(id) else { return };
        if record.flight.is_some() || record.changed > generation {
            return;
        }
        match result {
            Ok(reported) => self.take_answer(now, id, &reported),
            // It was listed a moment ago. If it is gone, so it is from the next List.
            Err(cause) => warn!(machine = %id, ?cause, "a Get failed; the next List asks again"),
        }
    }

    fn take_answer(&mut self, now: UnixNanos, id: &MachineId, reported: &Reported) {
        self.count_violations(&reported.violations);
        match &reported.record {
            Ok(machine) if machine.id == *id => {
                if let Some(flight) = self.fleet.flight_mut(id)
                    && machine.state == flight.operation.state()
                    && let Stage::Watch(watch) = &mut flight.stage
                {
                    // It was taken after all.
                    watch.doubt = None;
                }
                self.adopt(now, machine);
            }
            Ok(machine) => {
                let message = format!("id: is {} in the answer to a Get of {id}", machine.id);
                self.refuse(now, Some(id), &crate::io::Refused { reason: "structural", message });
            }
            Err(refused) => self.refuse(now, Some(id), refused),
        }
    }
}
