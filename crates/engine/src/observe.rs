//! What a caller with a clock may watch of a decision: where one phase of work ends, and how much was looked at.

/// A kind of work within [`crate::Engine::decide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Bringing the indexes up to date after what was applied.
    Settle,
    /// Folding gangs.
    Fold,
    /// Credit and acquisition.
    Phase1,
    /// Preemption.
    Phase2,
    /// Writing the answer down: verdicts, actions, shortfalls, claims.
    Verdicts,
    /// Reclaims and deletes.
    Phase3,
    /// Everything else.
    Other,
}

impl Phase {
    /// All of them, in the order of their first end.
    pub const ALL: [Self; 7] =
        [Self::Settle, Self::Fold, Self::Phase1, Self::Phase2, Self::Verdicts, Self::Phase3, Self::Other];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Fold => "fold",
            Self::Phase1 => "phase1",
            Self::Phase2 => "phase2",
            Self::Verdicts => "verdicts",
            Self::Phase3 => "phase3",
            Self::Other => "other",
        }
    }
}

/// How much one decision looked at. The same events give the same numbers on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Needs that went through the phases, after folding.
    pub needs: u64,
    /// Times that a phase looked at a single machine.
    pub machines: u64,
}
