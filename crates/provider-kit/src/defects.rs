//! Switches that make the kit break one rule of the contract each, so that a suite that claims to see such faults can be
//! shown to. Without the feature `defects` there is nothing to turn one on with; with it, `Options::defect` does, and no flag
//! of any program.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// B206: a repeat at the target gets a new operation id.
    RepeatsMintOperations,
    /// B214: the operation id follows from the machine and the kind.
    OperationsPerKind,
    /// B301: an unknown machine is said to be unknown before the fence is asked.
    LookupBeforeFence,
    /// B302: one mark for all machines of a shard.
    MarkPerShard,
    /// B303: sequence 0 never passes once there is a mark, even in a new epoch.
    NewEpochNeedsSequence,
    /// B306: a repeated Configure is answered before the fence is asked.
    RepeatBeforeFence,
    /// B311: a call that is refused leaves the mark where it was.
    MarkMovesOnSuccess,
    /// B401: Creates that overlap get an operation id each.
    CreatesDoNotCollapse,
    /// B501: metadata with an empty value are dropped.
    EmptyValuesDropped,
    /// B502: a Drain leaves the metadata behind.
    MetadataOutliveDrain,
    /// B505: all bound machines show the metadata of the latest Configure.
    MetadataShared,
    /// B704: a success after the time-out still counts.
    LateSuccessWins,
    /// B705: a Failed machine takes calls as any other does.
    FailedAccepts,
    /// B802: a SPOT machine is never interrupted.
    SpotNeverInterrupted,
    /// B803: a Speculative machine has a host.
    SlotsHaveHosts,
    /// B903: a delta lacks the latest change.
    DeltaLacksNewest,
    /// B906: a cursor that is none is an error.
    GarbageCursorIsAnError,
    /// B908: every look at the back end counts as a change of its slots.
    IdlingMovesRevision,
    /// B1001: fencing marks are not read back at a start.
    MarksLostOverRestart,
    /// B1005: the counter of operation ids is not read back at a start.
    OperationsReusedOverRestart,
}

impl Defect {
    /// All of them, in the order of the behaviours that they break.
    pub const ALL: [Self; 20] = [
        Self::RepeatsMintOperations,
        Self::OperationsPerKind,
        Self::LookupBeforeFence,
        Self::MarkPerShard,
        Self::NewEpochNeedsSequence,
        Self::RepeatBeforeFence,
        Self::MarkMovesOnSuccess,
        Self::CreatesDoNotCollapse,
        Self::EmptyValuesDropped,
        Self::MetadataOutliveDrain,
        Self::MetadataShared,
        Self::LateSuccessWins,
        Self::FailedAccepts,
        Self::SpotNeverInterrupted,
        Self::SlotsHaveHosts,
        Self::DeltaLacksNewest,
        Self::GarbageCursorIsAnError,
        Self::IdlingMovesRevision,
        Self::MarksLostOverRestart,
        Self::OperationsReusedOverRestart,
    ];
}

/// The switch that is on, if any. Without the feature there is none, and what asks for it is compiled away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Switch(Option<Defect>);

impl Switch {
    #[cfg(feature = "defects")]
    pub(crate) fn new(defect: Option<Defect>) -> Self {
        Self(defect)
    }

    /// What is broken.
    pub(crate) fn on(self) -> Option<Defect> {
        if cfg!(feature = "defects") { self.0 } else { None }
    }

    /// Whether this is what is broken.
    pub(crate) fn is(self, defect: Defect) -> bool {
        self.on() == Some(defect)
    }
}
