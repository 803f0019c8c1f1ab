//! When a decision is audited, and what follows from what the audit found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Content, Marks};
use bigfleet_types::{ClusterId, MachineId, UnixNanos};
use tracing::error;

use super::Control;
use crate::decision_audit::{DecisionAudit, Divergence};
use crate::io::{Output, Published};

/// The rhythm of audits. At most one is under way.
#[derive(Debug, Default)]
pub(super) struct Audits {
    /// When the last one began; when the first cycle ran before that.
    last: Option<UnixNanos>,
    /// Cycles since then.
    cycles: u32,
    /// Something changed since then.
    changed: bool,
    running: bool,
    /// How many found something.
    #[cfg(feature = "faults")]
    noticed: u64,
}

impl Audits {
    /// Whether the decision of this cycle is to be audited; then it counts as under way.
    fn begin(&mut self, now: UnixNanos, changed: bool, interval: Duration, cycles: u32) -> bool {
        self.changed |= changed;
        self.cycles = self.cycles.saturating_add(1);
        let last = *self.last.get_or_insert(now);
        let due = self.changed && (self.cycles >= cycles || now.since(last) >= interval);
        if !due || self.running {
            return false;
        }
        (self.last, self.cycles, self.changed, self.running) = (Some(now), 0, false, true);
        true
    }
}

/// What an audit needs of the time before the decision.
pub(super) struct Copied {
    content: Content,
    homes: BTreeMap<MachineId, ClusterId>,
}

impl Control {
    /// Copies what the engine knows, if the decision that it is about to take is to be audited.
    pub(super) fn copy_for_audit(&mut self, now: UnixNanos) -> Option<Copied> {
        let (interval, cycles) = (self.config.decision_audit_interval, self.config.decision_audit_cycles);
        if !self.audits.begin(now, self.engine.is_changed(), interval, cycles) {
            return None;
        }
        let moving = self.fleet.in_flight().filter_map(|(id, _)| self.fleet.get(id));
        let homes = moving.filter_map(|record| {
            let machine = &record.machine;
            Some((machine.id.clone(), machine.cluster.clone()?))
        });
        Some(Copied { homes: homes.collect(), content: self.engine.content() })
    }

    /// Has the decision audited that was taken on what was copied.
    pub(super) fn audit_decision(
        &mut self,
        now: UnixNanos,
        copied: Copied,
        marks: Marks,
        answer: Arc<Published>,
    ) {
        let Copied { content, homes } = copied;
        let audit = DecisionAudit { cycle: self.cycle, now, content, homes, marks, answer };
        self.outputs.push_back(Output::AuditDecision(Box::new(audit)));
    }

    /// An audit ended.
    pub(super) fn decision_audited(&mut self, cycle: u64, result: Result<Option<Divergence>, String>) {
        self.audits.running = false;
        let divergence = match result {
            Ok(divergence) => divergence,
            Err(reason) => {
                self.metrics.decision_audits_failed.inc();
                error!(cycle, "a decision audit ended without an answer: {reason}; another one follows");
                return;
            }
        };
        self.metrics.decision_audits.inc();
        let Some(Divergence { rows, first, kept }) = divergence else { return };
        self.metrics.decision_divergences.inc();
        error!(
            cycle,
            rows,
            "a decision differs from a full pass over the same state: a defect of this program; what was decided wrongly \
             has been executed; the next decision looks at everything"
        );
        for row in first {
            error!(cycle, "differs: {row}");
        }
        match kept {
            Some(Ok(path)) => {
                error!(cycle, path = %path.display(), "state and both answers are kept; report them")
            }
            Some(Err(reason)) => {
                error!(cycle, "state and answers are lost: {reason}; make room in --data-dir");
            }
            None => {}
        }
        self.engine.forget();
        self.dirty = true;
        #[cfg(feature = "faults")]
        {
            self.audits.noticed += 1;
        }
    }

    /// Has the engine overlook what changed, as long as nobody notices.
    #[cfg(feature = "faults")]
    pub(super) fn plant_fault(&mut self) {
        if self.config.overlook && self.audits.noticed == 0 && self.cycle > 1 {
            self.engine.overlook();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn begins(audits: &mut Audits, second: i64, changed: bool) -> bool {
        audits.begin(UnixNanos(second * 1_000_000_000), changed, MINUTE, 100)
    }

    #[test]
    fn a_minute_or_a_hundred_cycles_with_a_change_among_them() {
        let mut audits = Audits::default();
        assert!(!begins(&mut audits, 0, true));
        assert!(!begins(&mut audits, 59, false));
        assert!(begins(&mut audits, 60, false), "something changed in the first cycle");
        audits.running = false;
        assert!(!begins(&mut audits, 200, false), "nothing changed");
        assert!(begins(&mut audits, 201, true));
        audits.running = false;
        assert!((0..99).all(|_| !begins(&mut audits, 202, true)));
        assert!(begins(&mut audits, 202, false));
    }

    #[test]
    fn never_two_at_once() {
        let mut audits = Audits::default();
        begins(&mut audits, 0, true);
        assert!(begins(&mut audits, 60, true));
        assert!(!begins(&mut audits, 130, true), "the one before has not ended");
        audits.running = false;
        assert!(begins(&mut audits, 131, false), "what changed in the meantime is not forgotten");
    }
}
