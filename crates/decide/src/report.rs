//! What was decided, as it is printed: numbered, capped and sorted.

use std::sync::Arc;

use bigfleet_engine::{Decisions, Shared, Shortfall, Verdict};
use bigfleet_types::MachineId;

use crate::cap;
use crate::input::Input;

/// A thing to do with its place in the order of emission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Counted from 0, before the reclaim cap.
    pub seq: u64,
    /// The thing itself.
    pub decided: bigfleet_engine::Action,
}

impl std::ops::Deref for Action {
    type Target = bigfleet_engine::Action;
    fn deref(&self) -> &Self::Target {
        &self.decided
    }
}

/// All that `bigfleet.decision/v1` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is to be done, by kind and machine.
    pub actions: Vec<Action>,
    /// The Reclaims that the cap held back, by machine.
    pub deferred: Vec<Action>,
    /// One verdict per Need, in precedence order.
    pub needs: Shared<Arc<Verdict>>,
    /// What no phase could meet, in the order of [`Decisions::shortfalls`].
    pub shortfalls: Shared<Shortfall>,
    /// Every machine that some Need claims, sorted.
    pub claimed_machine_ids: Vec<MachineId>,
}

impl Report {
    /// The report on what was decided about `input`, which says what the reclaim cap is and how large clusters are.
    /// `claimed`: every machine that some Need claims, sorted.
    #[must_use]
    pub fn new(input: &Input, decisions: Decisions, claimed: Vec<MachineId>) -> Self {
        let numbered = (0..)
            .zip(decisions.actions.iter().cloned())
            .map(|(seq, decided)| Action { seq, decided })
            .collect();
        let (mut actions, mut deferred) = cap::apply(input, numbered);
        for list in [&mut actions, &mut deferred] {
            list.sort_by(|a, b| (a.kind.name(), &a.machine).cmp(&(b.kind.name(), &b.machine)));
        }
        Self {
            actions,
            deferred,
            needs: decisions.verdicts,
            shortfalls: decisions.shortfalls,
            claimed_machine_ids: claimed,
        }
    }
}
