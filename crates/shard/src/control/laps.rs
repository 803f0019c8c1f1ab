//! Where the time of a cycle goes: every moment of it belongs to exactly one phase, so that the phases sum to the cycle.

use std::time::Duration;

use bigfleet_engine::Phase;

use super::Stopwatch;
use crate::metrics::Metrics;

/// A phase of a cycle as the metrics name it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lap {
    /// Applying what came in since the cycle before.
    Reconcile,
    /// Bringing the engine's indexes up to date with that.
    SnapRead,
    /// Folding, credit and acquisition.
    Phase1,
    /// Preemption.
    Phase2,
    /// Reclaims and deletes.
    Phase3,
    /// Verdicts, rails, and handing the actions over.
    Emit,
    /// Beginning what there are workers for.
    Execute,
    /// Everything else: gauges, ledger, published copies.
    Other,
}

impl Lap {
    /// In the order of their declaration, which numbers them.
    const ALL: [Self; 8] = [
        Self::Reconcile,
        Self::SnapRead,
        Self::Phase1,
        Self::Phase2,
        Self::Phase3,
        Self::Emit,
        Self::Execute,
        Self::Other,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::SnapRead => "snapread",
            Self::Phase1 => "phase1",
            Self::Phase2 => "phase2",
            Self::Phase3 => "phase3",
            Self::Emit => "emit",
            Self::Execute => "execute",
            Self::Other => "other",
        }
    }
}

impl From<Phase> for Lap {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Settle => Self::SnapRead,
            Phase::Fold | Phase::Phase1 => Self::Phase1,
            Phase::Phase2 => Self::Phase2,
            Phase::Phase3 => Self::Phase3,
            Phase::Verdicts => Self::Emit,
            Phase::Other => Self::Other,
        }
    }
}

/// Measures one cycle, if there is a clock.
#[derive(Debug)]
pub(super) struct Laps {
    /// When the lap that runs began.
    begun: Option<Duration>,
    took: [Duration; Lap::ALL.len()],
}

impl Laps {
    /// The cycle begins; what came in since the one before has taken `reconcile` to apply.
    pub(super) fn begin(clock: Option<&Stopwatch>, reconcile: Duration) -> Self {
        let mut laps = Self { begun: clock.map(|read| read()), took: [Duration::ZERO; Lap::ALL.len()] };
        laps.add(Lap::Reconcile, reconcile);
        laps
    }

    /// All time since the end before belongs to `lap`.
    pub(super) fn end(&mut self, lap: Lap, clock: Option<&Stopwatch>) {
        let (Some(begun), Some(now)) = (self.begun, clock.map(|read| read())) else { return };
        self.add(lap, now.saturating_sub(begun));
        self.begun = Some(now);
    }

    fn add(&mut self, lap: Lap, time: Duration) {
        self.took[lap as usize] += time;
    }

    /// The cycle is over: each phase is observed once, and their sum as the cycle.
    pub(super) fn observe(&self, metrics: &Metrics) {
        if self.begun.is_none() {
            return;
        }
        for (took, lap) in self.took.iter().zip(Lap::ALL) {
            let labels = [("phase", lap.name())];
            metrics.cycle_phase_duration_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        metrics.cycle_duration_seconds.observe(self.took.iter().sum::<Duration>().as_secs_f64());
    }
}
