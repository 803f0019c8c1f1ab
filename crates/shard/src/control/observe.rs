//! The provider is the source of truth: what it reports is adopted, whatever we thought.

use std::sync::Arc;

use bigfleet_types::{Attribution, ClusterId, Machine, MachineId, MachineState, Observed, UnixNanos};
use tracing::{info, warn};

use super::Control;
use super::config::WATCH_FIRST;
use super::cooldown::after_strikes;
use super::flight::{Flight, Operation, Stage, Watch};
use super::record::StockClass;
use super::schedule::Timer;
use crate::io::Refused;

impl Control {
    /// Counts what was odd about a record.
    pub(super) fn count_violations(&self, violations: &[&'static str]) {
        for kind in violations {
            self.metrics.provider_contract_violations.get_or_create(&[("kind", *kind)]).inc();
        }
    }

    /// A record was refused: the last good one stays.
    pub(super) fn refuse(&mut self, now: UnixNanos, id: Option<&MachineId>, refused: &Refused) {
        self.metrics.machines_rejected.get_or_create(&[("reason", refused.reason)]).inc();
        if !self.seldom.allows_record(id, refused.reason, now) {
            return;
        }
        warn!(
            machine = id.map_or("", MachineId::as_str),
            reason = refused.reason,
            "provider record refused: {}; the last good one stays",
            refused.message
        );
    }

    /// Takes over what the provider says of a machine, and ends the operation that this completes.
    pub(super) fn adopt(&mut self, now: UnixNanos, reported: &Arc<Machine>) {
        let id = &reported.id;
        let Some(record) = self.fleet.get(id) else {
            let homeless = reported.state == MachineState::Configuring && reported.cluster.is_none();
            if homeless {
                return self.refuse(now, Some(id), &no_cluster());
            }
            self.insert(now, reported.clone());
            self.dirty = true;
            return self.follow(now, id, reported.state);
        };
        let before = record.machine.clone();
        let Ok(merged) = merge(&before, reported) else {
            return self.refuse(now, Some(id), &no_cluster());
        };
        if let Some(machine) = merged {
            let after = machine.state;
            self.classify(record.flight.as_deref(), &before, &machine);
            let owned = record.flight.is_some();
            let delivery = self.delivery(id, &machine);
            self.change(now, id, |record| {
                if !owned && before.state != machine.state {
                    // The provider moved it on its own: whatever ailed it may be over.
                    record.cool_until = None;
                }
                record.machine = Arc::new(machine);
            });
            self.dirty |= before.state != after || !owned;
            if let Some((class, promised, delivered)) = delivery {
                self.learn_shape(now, class, &promised, &delivered);
            }
        }
        self.follow(now, id, before.state);
    }

    fn classify(&self, flight: Option<&Flight>, before: &Machine, after: &Machine) {
        let observed = before.state.observe(after.state);
        let rebound = after.cluster != before.cluster && before.state == after.state;
        if observed == Observed::Unchanged && !rebound {
            return;
        }
        let rolls_back = observed == Observed::Regression
            && flight.is_some_and(|f| matches!(&f.stage, Stage::Watch(Watch { doubt: Some(_), .. })));
        if rolls_back {
            return;
        }
        let labels = [("from", before.state.name()), ("to", after.state.name()), ("class", observed.name())];
        self.metrics.observed_transitions.get_or_create(&labels).inc();
        if observed == Observed::Unexpected || rebound {
            warn!(
                machine = %after.id, from = %before.state, to = %after.state,
                cluster = after.cluster.as_ref().map_or("", ClusterId::as_str),
                last_error = %after.last_error,
                "the provider moved a machine on its own; adopted"
            );
        }
    }

    /// What a slot promised and its host delivers, when the host turns up.
    fn delivery(
        &self,
        id: &MachineId,
        after: &Machine,
    ) -> Option<(StockClass, bigfleet_types::Resources, bigfleet_types::Resources)> {
        let record = self.fleet.get(id)?;
        let arrives = matches!(after.state, MachineState::Idle | MachineState::Configured);
        let promised = record.advertised.as_ref().filter(|_| arrives && after.state != record.state())?;
        Some((record.stock_class(), promised.clone(), after.capacity().clone()))
    }

    fn learn_shape(
        &mut self,
        now: UnixNanos,
        class: StockClass,
        promised: &bigfleet_types::Resources,
        delivered: &bigfleet_types::Resources,
    ) {
        let known = self.shapes.len();
        if !self.shapes.delivered(class.clone(), promised, delivered) {
            return;
        }
        if self.shapes.len() > known {
            warn!(
                instance_type = %class.0, zone = %class.1, capacity_type = class.2.name(), %promised, %delivered,
                "hosts of this class offer less than their slots promise; its slots now count for the smallest host"
            );
            self.metrics.over_advertised_shapes.inc();
        }
        self.rejudge(now, |record| {
            record.state() == MachineState::Speculative && record.stock_class() == class
        });
    }

    /// Brings the operation under way in line with the machine's state.
    pub(super) fn follow(&mut self, now: UnixNanos, id: &MachineId, before: MachineState) {
        let Some(record) = self.fleet.get(id) else { return };
        let state = record.state();
        let under_way = Operation::of(state);
        if let Some(flight) = &record.flight {
            if !matches!(flight.stage, Stage::Watch(_)) || under_way == Some(flight.operation) {
                return;
            }
            self.finish(now, id, before);
        }
        if let Some(operation) = under_way {
            self.watch_found(now, id, operation);
        }
    }

    /// Watches a transition that this process did not start.
    fn watch_found(&mut self, now: UnixNanos, id: &MachineId, operation: Operation) {
        let due = now.after(WATCH_FIRST);
        let watch = Watch { get: None, pause: WATCH_FIRST, due, doubt: None, unknown: false };
        self.fleet.take_off(
            id,
            Flight {
                operation,
                work: None,
                stage: Stage::Watch(watch),
                began: now,
                deadline: now,
                operation_id: String::new(),
                reissued: false,
            },
        );
        self.gets.watch(due, id.clone());
    }

    /// The operation came to an end, good or bad.
    pub(super) fn finish(&mut self, now: UnixNanos, id: &MachineId, before: MachineState) {
        let Some(flight) = self.fleet.land(id, now) else { return };
        self.breaker.ends(id);
        self.dirty = true;
        let Some(record) = self.fleet.get(id) else { return };
        let (state, operation) = (record.state(), flight.operation);
        let doubtful = matches!(&flight.stage, Stage::Watch(Watch { doubt: Some(_), .. }));
        if operation.state().target() == Some(state) && before == operation.state() {
            self.succeeded(now, id, &flight);
        } else if state == MachineState::Failed {
            // It rests by being Failed; what matters is that the strike counts when it comes back.
            self.change(now, id, |record| record.strikes = record.strikes.saturating_add(1));
        } else if operation.state().origin() == Some(state) && !doubtful {
            info!(machine = %id, operation = ?operation, "the provider gave up an operation that it had accepted");
            self.strike(now, id);
        }
    }

    fn succeeded(&mut self, now: UnixNanos, id: &MachineId, flight: &Flight) {
        if self.fleet.get(id).is_some_and(|record| record.strikes > 0) {
            self.change(now, id, |record| {
                record.strikes = 0;
                record.cool_until = None;
            });
        }
        let took = now.since(flight.began).as_secs_f64();
        match flight.operation {
            Operation::Configure => {
                if flight.work.is_some() {
                    self.metrics.configure_phase_seconds.observe(took);
                }
                if let Some(machine) = self.fleet.get(id).map(|record| record.machine.clone())
                    && let (Some(cluster), Some(fingerprint)) =
                        (&machine.cluster, &machine.attribution.fingerprint)
                    && let Some(latency) = self.ledger.bound(now, cluster, fingerprint)
                {
                    self.metrics.provisioning_latency_seconds.observe(latency.as_secs_f64());
                }
            }
            Operation::Drain if flight.work.is_some() => self.metrics.drain_phase_seconds.observe(took),
            _ => {}
        }
    }

    /// A failed operation: the machine rests.
    pub(super) fn strike(&mut self, now: UnixNanos, id: &MachineId) {
        let Some(record) = self.fleet.get(id) else { return };
        let strikes = record.strikes.saturating_add(1);
        self.rest(now, id, strikes, now.after(after_strikes(strikes)));
    }

    /// Withholds a machine until a time.
    pub(super) fn rest(&mut self, now: UnixNanos, id: &MachineId, strikes: u32, until: UnixNanos) {
        self.change(now, id, |record| {
            record.strikes = strikes;
            record.cool_until = Some(record.cool_until.map_or(until, |known| known.max(until)));
        });
        self.timers.set(until, Timer::Cool(id.clone()));
    }

    /// A cool-down may be over.
    pub(super) fn rested(&mut self, now: UnixNanos, id: &MachineId) {
        let over = |record: &super::record::Record| record.cool_until.is_some_and(|until| until <= now);
        if self.fleet.get(id).is_some_and(over) {
            self.change(now, id, |record| record.cool_until = None);
            self.dirty = true;
        }
    }

    /// The label of an error of an operation.
    pub(super) fn error_outcome(operation: Operation) -> &'static str {
        if operation == Operation::Configure { "configure_error" } else { "transition_error" }
    }
}

fn no_cluster() -> Refused {
    Refused {
        reason: "structural",
        message: "cluster: must not be empty on a CONFIGURING machine that we are not configuring".to_owned(),
    }
}

/// A CONFIGURING record without a cluster, of a machine that we are not configuring.
pub(super) struct Homeless;

/// The record to keep: the provider's word, with our stamps where the binding is the same. `None`: nothing changed.
pub(super) fn merge(ours: &Machine, theirs: &Machine) -> Result<Option<Machine>, Homeless> {
    let failed = theirs.state == MachineState::Failed;
    let mut cluster = theirs.cluster.as_ref();
    if cluster.is_none() && (failed || theirs.state == MachineState::Configuring) {
        cluster = ours.cluster.as_ref();
    }
    if theirs.state.is_bound() && cluster.is_none() {
        return Err(Homeless);
    }
    let bound = (theirs.state.is_bound() || failed) && cluster.is_some();
    let ours_holds = bound && cluster == ours.cluster.as_ref() && !ours.attribution.is_empty();
    let none = Attribution::default();
    let attribution = match (bound, ours_holds) {
        (false, _) => &none,
        (true, true) => &ours.attribution,
        (true, false) => &theirs.attribution,
    };
    let same = ours.state == theirs.state
        && ours.price == theirs.price
        && ours.interruption_probability == theirs.interruption_probability
        && ours.cluster.as_ref() == cluster
        && ours.host == theirs.host
        && ours.capacity_type == theirs.capacity_type
        && ours.instance_type == theirs.instance_type
        && ours.zone == theirs.zone
        && ours.last_error == theirs.last_error
        && ours.attribution == *attribution
        && ours.allocatable == theirs.allocatable
        && ours.resources == theirs.resources
        && ours.labels == theirs.labels;
    if same {
        return Ok(None);
    }
    Ok(Some(Machine { cluster: cluster.cloned(), attribution: attribution.clone(), ..theirs.clone() }))
}
