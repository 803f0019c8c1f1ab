//! Every change of a machine goes through here: engine, operators and watchdog learn of it.

use std::sync::Arc;

use bigfleet_engine::{Eligibility, Event, Facts};
use bigfleet_proto::v1alpha1::{self as wire, ShardMessage, shard_message::Payload};
use bigfleet_types::{ClusterId, Machine, MachineId, MachineState, Need, UnixNanos, keys};

use super::Control;
use super::flight::{Operation, Stage};
use super::record::Record;
use super::schedule::Timer;
use crate::io::{Lane, Output};

/// What an operator knew before a change.
struct Told {
    machine: Arc<Machine>,
    audience: Option<ClusterId>,
}

impl Control {
    /// Changes a machine, and tells everyone whom it concerns.
    pub(super) fn change(&mut self, now: UnixNanos, id: &MachineId, edit: impl FnOnce(&mut Record)) {
        let Some(record) = self.fleet.get(id) else { return };
        let told = Told { machine: record.machine.clone(), audience: record.audience().cloned() };
        self.fleet.change(id, now, edit);
        self.changed(now, id, Some(told));
    }

    /// Adds a machine, and tells everyone whom it concerns.
    pub(super) fn insert(&mut self, now: UnixNanos, machine: Arc<Machine>) {
        let id = machine.id.clone();
        self.fleet.insert(machine, now);
        self.changed(now, &id, None);
    }

    /// Drops a machine that is no more.
    pub(super) fn remove(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.remove(id) else { return };
        self.engine.apply(Event::Removed(id.clone()));
        self.breaker.ends(id);
        if let Some(cluster) = record.audience() {
            self.end_binding(now, cluster, &record.machine, MachineState::Speculative);
        }
        self.dirty = true;
    }

    fn changed(&mut self, now: UnixNanos, id: &MachineId, before: Option<Told>) {
        self.tell_engine(now, id);
        let Some(record) = self.fleet.get(id) else { return };
        let (machine, state) = (record.machine.clone(), record.state());
        let audience = record.audience().cloned();
        let waits_for_its_cluster = state == MachineState::Idle;
        let moved = before.as_ref().is_none_or(|told| told.machine.state != state);
        if moved && state.is_transitional() {
            let patience = self.patience(record);
            self.timers.set(record.state_since.after(patience), Timer::Watchdog(id.clone()));
        }
        if let (true, Some(since)) = (moved, record.idle_since)
            && let Some(hold) = self.config.policy.idle_hold(machine.capacity_type)
        {
            self.timers.set(since.after(hold), Timer::Wake);
        }
        if let Some(cluster) = &audience
            && !waits_for_its_cluster
        {
            // After an instruction this state means that the drain is off, and nothing else may say so.
            let instructed = record
                .flight
                .as_deref()
                .is_some_and(|flight| matches!(flight.stage, Stage::Instructed { .. }));
            let news = before.as_ref().is_none_or(|told| {
                let differs = !instructed && looks_different(&told.machine, &machine);
                told.audience != audience || moved || differs
            });
            self.sessions.endings.forget(cluster, id);
            if news {
                self.send_node(cluster, &machine, state);
            }
        }
        let former = before.and_then(|told| told.audience).filter(|former| Some(former) != audience.as_ref());
        if let Some(former) = former {
            let state = match state {
                MachineState::Speculative | MachineState::Deleting | MachineState::Failed => state,
                _ => MachineState::Idle,
            };
            self.end_binding(now, &former, &machine, state);
        }
    }

    /// Hands the engine the present record.
    pub(super) fn tell_engine(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.get(id) else { return };
        let event = self.as_event(now, record);
        self.engine.apply(event);
    }

    /// A record as the engine hears of it.
    fn as_event(&self, now: UnixNanos, record: &Record) -> Event {
        let facts = Facts {
            eligibility: self.eligibility(now, record),
            idle_since: record.idle_since,
            created_for: record.created_for.clone(),
            preempted_for: record.purpose.clone(),
            excess_since: None,
        };
        Event::Machine { machine: self.shapes.believable(&record.machine), facts }
    }

    /// All that the engine knows, as events for one that knows nothing; but for arrivals that it gave itself, and for
    /// its own clock of how long machines have been excess. In no particular order: none matters. For audits.
    #[must_use]
    pub fn told(&self, now: UnixNanos) -> Vec<Event> {
        let machines = self.fleet.iter().map(|(_, record)| self.as_event(now, record));
        let demand = self.demand.iter().filter_map(|(cluster, demand)| {
            let rows = demand.needs.values().map(|need| Need::clone(need)).collect();
            Some(Event::Demand { cluster: cluster.clone(), rows, at: demand.accepted? })
        });
        let heard = self.demand.iter().filter(|(_, demand)| demand.heard);
        machines.chain(demand).chain(heard.map(|(cluster, _)| Event::Heard(cluster.clone()))).collect()
    }

    /// Hands the engine every machine for which `concerned` holds, because a judgement about it changed.
    pub(super) fn rejudge(&mut self, now: UnixNanos, concerned: impl Fn(&Record) -> bool) {
        let mut ids: Vec<MachineId> =
            self.fleet.iter().filter(|(_, record)| concerned(record)).map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        for id in &ids {
            self.tell_engine(now, id);
        }
        self.dirty |= !ids.is_empty();
    }

    /// What the engine may do with a machine.
    fn eligibility(&self, now: UnixNanos, record: &Record) -> Eligibility {
        let capacity = record.machine.capacity_type;
        let has = |operation| !self.cool.is_lacking(operation, capacity);
        let cooling = record.is_cooling(now);
        match record.state() {
            _ if record.withheld => Eligibility::WITHHELD,
            MachineState::Speculative
                if cooling
                    || !has(Operation::Create)
                    || self.cool.is_out_of_stock(&record.stock_class(), now) =>
            {
                Eligibility::WITHHELD
            }
            MachineState::Idle if cooling => Eligibility::WITHHELD,
            MachineState::Idle => Eligibility {
                acquirable: has(Operation::Configure),
                releasable: has(Operation::Delete),
                ..Eligibility::ALL
            },
            MachineState::Configured => {
                let may_leave = !cooling && has(Operation::Drain);
                Eligibility { preemptible: may_leave, releasable: may_leave, ..Eligibility::ALL }
            }
            _ => Eligibility::ALL,
        }
    }

    fn end_binding(
        &mut self,
        now: UnixNanos,
        cluster: &ClusterId,
        machine: &Arc<Machine>,
        state: MachineState,
    ) {
        let opened = self.sessions.opened(cluster);
        let lost = self.sessions.endings.remember(now, opened, cluster, machine.clone(), state);
        self.metrics.endings_dropped.inc_by(u64::try_from(lost).unwrap_or(u64::MAX));
        self.send_node(cluster, machine, state);
    }

    /// Tells an operator that it is to undo what an instruction made it begin. In the lane of instructions, so that it
    /// comes behind the one that it calls off, whatever else waits.
    pub(super) fn send_drain_is_off(&mut self, id: &MachineId) {
        let Some(machine) = self.fleet.get(id).map(|record| record.machine.clone()) else { return };
        let Some(cluster) = &machine.cluster else { return };
        let Some(session) = self.sessions.of(cluster) else { return };
        self.send(session, Payload::NodeStateUpdate(node_update(cluster, &machine, machine.state)));
    }

    /// Tells a cluster about a machine, if its operator is there.
    pub(super) fn send_node(&mut self, cluster: &ClusterId, machine: &Machine, state: MachineState) {
        let Some(session) = self.sessions.of(cluster) else { return };
        let update = node_update(cluster, machine, state);
        let lane = Lane::Coalescing(update.supersedes_key.clone());
        let message = Box::new(ShardMessage { payload: Some(Payload::NodeStateUpdate(update)) });
        self.outputs.push_back(Output::Send { session, lane, message });
    }
}

/// Whether a same-state change matters to an operator.
fn looks_different(before: &Machine, after: &Machine) -> bool {
    before.labels != after.labels
        || before.capacity() != after.capacity()
        || before.host != after.host
        || before.last_error != after.last_error
        || before.instance_type != after.instance_type
        || before.zone != after.zone
}

/// The labels that the machine's node will carry.
pub(super) fn node_labels(machine: &Machine) -> std::collections::BTreeMap<String, String> {
    let mut labels: std::collections::BTreeMap<String, String> =
        machine.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    for (key, value) in [(keys::INSTANCE_TYPE, &machine.instance_type), (keys::ZONE, &machine.zone)] {
        if !value.is_empty() {
            labels.insert(key.to_owned(), value.to_string());
        }
    }
    labels
}

/// The key under which the frames of a machine's state replace each other.
pub(super) fn node_key(id: &MachineId) -> String {
    format!("node:{id}")
}

fn node_update(cluster: &ClusterId, machine: &Machine, state: MachineState) -> wire::NodeStateUpdate {
    let failed = state == MachineState::Failed;
    wire::NodeStateUpdate {
        supersedes_key: node_key(&machine.id),
        machine_id: machine.id.to_string(),
        cluster_id: cluster.to_string(),
        state: i32::from(state.number()),
        provider_id: machine.host.as_ref().map(|host| host.reference.to_string()).unwrap_or_default(),
        last_error: if failed { machine.last_error.to_string() } else { String::new() },
        labels: node_labels(machine),
        resources: Some(machine.capacity().into()),
        ..wire::NodeStateUpdate::default()
    }
}
