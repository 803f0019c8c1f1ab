//! Where the next capped List without a cursor begins: after the last machine of the one before it that asked for the
//! same states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use bigfleet_types::MachineState;

use crate::table::Page;

/// The last revision given, by set of states.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<u16, u64>>);

impl Turns {
    /// Takes an answer that begins after the revision which `list` is given, one caller at a time.
    pub(super) fn take(&self, states: &BTreeSet<MachineState>, list: impl FnOnce(u64) -> Page) -> Page {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns.entry(key(states)).or_default();
        let page = list(*turn);
        *turn = page.last;
        page
    }
}

/// One bit a state, so that there are never more than 512 keys.
fn key(states: &BTreeSet<MachineState>) -> u16 {
    states.iter().fold(0, |bits, state| bits | 1_u16.checked_shl(u32::from(state.number())).unwrap_or(0))
}
