//! One decision cycle: decide, apply the rails, hand the actions to the workers, tell readers.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Action, ActionKind, Decisions};
use bigfleet_types::{MachineState, UnixNanos};
use tracing::{info, warn};

use super::Control;
use super::flight::Work;
use super::laps::{Lap, Laps};
use super::ledger::ProfileDeficit;
use super::rails;
use crate::io::{Output, Published};

const MINUTE: Duration = Duration::from_secs(60);

/// What a cycle has to say about an action that it does not hand on.
enum Skip {
    /// Silently: something is withheld that the engine does not see.
    Quiet,
    /// The machine is in work or not what it was.
    Duplicate,
    /// The operator is away.
    NoSession,
}

impl Control {
    /// When the next cycle is due.
    pub(super) fn cycle_due(&self) -> Option<UnixNanos> {
        if !self.ready() || self.stopping {
            return None;
        }
        let Some(last) = self.last_cycle else { return Some(UnixNanos(i64::MIN)) };
        let soonest = last.after(self.config.cycle_min_gap);
        let wanted = if self.dirty { Some(soonest) } else { self.deadline.map(|at| at.max(soonest)) };
        let latest = last.after(self.config.cycle_interval);
        Some(wanted.map_or(latest, |at| at.min(latest)))
    }

    /// Runs one cycle, whether or not it is due.
    pub(crate) fn run_cycle(&mut self, now: UnixNanos) {
        let reconciled = std::mem::take(&mut self.reconcile_time);
        let mut laps = Laps::begin(self.stopwatch.as_ref(), reconciled);
        self.cycle += 1;
        self.last_cycle = Some(now);
        self.dirty = false;
        let paused = self.is_paused();
        self.metrics.actuation_paused.set(i64::from(paused));
        let copied = self.copy_for_audit(now);
        #[cfg(feature = "faults")]
        self.plant_fault();
        laps.end(Lap::Other, self.stopwatch.as_ref());

        let clock = self.stopwatch.as_ref();
        let decisions = self.engine.decide_observed(now, &mut |phase| laps.end(phase.into(), clock));
        self.deadline = self.engine.next_deadline(now).filter(|at| *at > now);
        let copied = copied.map(|copied| (copied, self.engine.marks()));

        self.open.take_in(&decisions.verdicts);
        self.fleet.sweep();
        self.send_hints(now);
        let notes = self.notes(now, &decisions);
        if paused || self.config.dry_run {
            self.withhold(&decisions, paused);
        } else {
            self.dispatch(now, &decisions);
        }
        laps.end(Lap::Emit, self.stopwatch.as_ref());

        self.fill(now);
        laps.end(Lap::Execute, self.stopwatch.as_ref());

        let interval = self.config.cycle_interval;
        let unmet_age = self.ledger.update(
            now,
            interval,
            &decisions.shortfalls,
            notes.shortfalls,
            &self.open,
            &self.fleet,
        );
        self.forget_the_long_gone(now);
        self.publish(now);
        let notes = notes.by_need;
        let published =
            Arc::new(Published { cycle: self.cycle, computed_at: now, decisions, unmet_age, notes });
        self.outputs.push_back(Output::Publish(published.clone()));
        if let Some((copied, marks)) = copied {
            self.audit_decision(now, copied, marks, published);
        }
        laps.end(Lap::Other, self.stopwatch.as_ref());
        laps.observe(&self.metrics);
    }

    /// Paused or dry run: every action is counted and recorded, none is executed.
    fn withhold(&mut self, decisions: &Decisions, paused: bool) {
        self.board.clear();
        self.posted.clear();
        for action in &decisions.actions {
            let labels = [("kind", action.kind.name())];
            let work = Work { action: action.clone(), decided_cycle: self.cycle };
            if paused {
                self.metrics.actions_suppressed.get_or_create(&labels).inc();
                self.audit(&work, "suppressed", "", "");
            } else {
                self.metrics.actions_dryrun.get_or_create(&labels).inc();
                info!(
                    kind = action.kind.name(), machine = %action.machine,
                    cluster = action.cluster.as_ref().map_or("", |cluster| cluster.as_str()),
                    reason = action.kind.reason(), grace_seconds = action.grace.as_secs(),
                    "dry run: would do this"
                );
                self.audit(&work, "dryrun", "", "");
            }
        }
    }

    /// Hands what still fits to the workers.
    fn dispatch(&mut self, now: UnixNanos, decisions: &Decisions) {
        let mut actions: Vec<&Action> = Vec::with_capacity(decisions.actions.len());
        for action in &decisions.actions {
            match self.fits(now, action) {
                Ok(()) => actions.push(action),
                Err(Skip::Quiet) => {}
                Err(Skip::Duplicate) => {
                    self.metrics.actions_deduped.inc();
                }
                Err(Skip::NoSession) => {
                    self.metrics.reclaims_deferred_no_session.inc();
                }
            }
        }
        let fleet = &self.fleet;
        let fraction = self.config.reclaim_cap_fraction;
        let capped =
            self.rails.cap_reclaims(now, fraction, &mut actions, |cluster| fleet.configured(cluster));
        self.metrics.reclaims_capped.inc_by(u64::try_from(capped).unwrap_or(u64::MAX));
        let limit = usize::try_from(self.config.max_actions_per_cycle).unwrap_or(usize::MAX);
        let deferred = rails::cap_actions(limit, &mut actions);
        if deferred > 0 {
            self.metrics.actions_deferred.inc_by(u64::try_from(deferred).unwrap_or(u64::MAX));
            self.dirty = true;
        }

        let work = |action: &&Action| Work { action: (*action).clone(), decided_cycle: self.cycle };
        let waiting = self.board.replace(actions.iter().map(work).collect());
        self.posted.clear();
        for action in actions {
            let key = (action.machine.clone(), action.kind, action.cluster.clone());
            if !waiting.contains(&key) {
                self.metrics.actions.get_or_create(&[("kind", action.kind.name())]).inc();
            }
            self.posted.push(key);
        }
    }

    /// Whether an action still fits the machine and may begin now.
    fn fits(&self, now: UnixNanos, action: &Action) -> Result<(), Skip> {
        let held_back = self.breaker.is_open() && self.breaker.until().is_none_or(|until| until > now);
        if held_back || self.fence.is_latched() {
            return Err(Skip::Quiet);
        }
        let Some(record) = self.fleet.get(&action.machine) else { return Err(Skip::Quiet) };
        if record.is_cooling(now) {
            return Err(Skip::Quiet);
        }
        let machine = &record.machine;
        let fits = match action.kind {
            ActionKind::Bootstrap | ActionKind::Delete => machine.state == MachineState::Idle,
            ActionKind::Provision => machine.state == MachineState::Speculative,
            ActionKind::Reclaim | ActionKind::Preempt => {
                machine.state == MachineState::Configured && machine.cluster == action.cluster
            }
        };
        if !fits || record.flight.is_some() {
            return Err(Skip::Duplicate);
        }
        let Some(cluster) = &action.cluster else { return Ok(()) };
        match action.kind {
            ActionKind::Reclaim if self.sessions.of(cluster).is_none() => Err(Skip::NoSession),
            ActionKind::Bootstrap if self.bootstraps.is_paused(cluster, now) => Err(Skip::Quiet),
            ActionKind::Bootstrap | ActionKind::Provision
                if action
                    .need_key
                    .as_ref()
                    .is_some_and(|key| self.bootstraps.is_refused(cluster, key.fingerprint, now)) =>
            {
                Err(Skip::Quiet)
            }
            _ => Ok(()),
        }
    }

    /// Gauges and the lines that repeat.
    fn publish(&mut self, now: UnixNanos) {
        self.ledger.publish(now, &self.open, &self.metrics);
        self.publish_demand(now);
        self.fleet.publish(&self.metrics);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        metrics.action_queue_depth.set(count(self.board.len()));
        metrics.execute_inflight.set(count(self.fleet.in_flight().filter(|(_, f)| f.holds_slot()).count()));
        metrics.provider_circuit_open.set(i64::from(self.breaker.is_open()));
        metrics.cooled_down_machines.set(self.fleet.tally().cooling() + count(self.cool.resting(now)));
        if let Some(last) = self.lists.last {
            metrics.inventory_age_seconds.set(now.since(last).as_secs_f64());
        }
        let shortfalls = self.ledger.shortfalls().count();
        if shortfalls > 0 && self.seldom.allows("shortfalls", now, MINUTE) {
            let report = self.ledger.report();
            let fingerprint = |entry: &ProfileDeficit| entry.need.profile.fingerprint().to_string();
            let top: Vec<String> = report.iter().take(3).map(fingerprint).collect();
            let lasting = report.iter().filter(|entry| entry.is_escalated()).count();
            warn!(shortfalls, lasting, profiles = top.join(" "), "demand that nothing here can meet");
        }
        if self.engine.demand_rows() > 1_000_000 && self.seldom.allows("rows", now, MINUTE) {
            warn!(rows = self.engine.demand_rows(), "more than a million rows of demand in one shard");
        }
    }

    /// Runs `work` and books its time as reconcile time.
    pub(super) fn timed(&mut self, work: impl FnOnce(&mut Self)) {
        let read = |core: &Self| core.stopwatch.as_ref().map(|read| read());
        let begun = read(self);
        work(self);
        if let (Some(begun), Some(ended)) = (begun, read(self)) {
            self.reconcile_time += ended.saturating_sub(begun);
        }
    }
}
