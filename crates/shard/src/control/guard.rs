//! The empty-roll-up guard: demand that vanishes at once is believed only when it stays vanished.

use bigfleet_types::Need;

use super::config::{GUARD_ROLLUPS, GUARD_ROWS};

/// How much a roll-up asks for. Sums are exact, so that rows may come and go one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    rows: usize,
    cpu: i128,
    memory: i128,
}

impl Size {
    /// How many rows there are.
    pub(super) fn rows(self) -> usize {
        self.rows
    }

    /// One row more (1), or one less (-1) that was added before.
    pub(super) fn add(&mut self, need: &Need, sign: i8) {
        self.rows = self.rows.saturating_add_signed(sign.into());
        self.cpu += i128::from(sign) * i128::from(need.aggregate.get("cpu"));
        self.memory += i128::from(sign) * i128::from(need.aggregate.get("memory"));
    }
}

/// What is known of one cluster's roll-ups.
#[derive(Debug, Default)]
pub(super) struct Guard {
    accepted: Option<Size>,
    held: u32,
}

/// What to do with a roll-up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Take it over.
    Accept,
    /// Take it over: it is suspicious, but has been confirmed.
    Confirmed,
    /// Keep the demand before.
    Hold {
        /// Whether the cluster counts as heard: not if this is all that it ever said.
        heard: bool,
    },
}

impl Guard {
    /// Judges the next roll-up of a cluster that holds so many Configured machines.
    pub(super) fn judge(&mut self, new: Size, configured: usize) -> Judgement {
        let suspicious = match self.accepted {
            None => new.rows == 0 && configured >= GUARD_ROWS,
            Some(old) if old.rows < GUARD_ROWS => false,
            Some(old) => {
                let amount = |sum: i128| sum.min(i64::MAX.into());
                let sunk = |new: i128, old: i128| amount(new) * 10 < amount(old);
                let torn = sunk(new.cpu, old.cpu) && sunk(new.memory, old.memory);
                new.rows * 10 < old.rows || torn
            }
        };
        let confirmed = suspicious && self.held + 1 >= GUARD_ROLLUPS;
        if suspicious && !confirmed {
            self.held += 1;
            return Judgement::Hold { heard: self.accepted.is_some() };
        }
        self.held = 0;
        self.accepted = Some(new);
        if confirmed { Judgement::Confirmed } else { Judgement::Accept }
    }

    /// Roll-ups held in a row.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Whether any roll-up was ever taken over.
    pub(super) fn has_baseline(&self) -> bool {
        self.accepted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Accept, Confirmed, Hold};

    fn rows(rows: usize) -> Size {
        Size { rows, cpu: 0, memory: 0 }
    }

    fn run(configured: usize, steps: &[(Size, Judgement)]) {
        let mut guard = Guard::default();
        for (i, (size, judgement)) in steps.iter().enumerate() {
            assert_eq!(guard.judge(*size, configured), *judgement, "step {i}");
        }
    }

    const HELD: Judgement = Hold { heard: true };

    #[test]
    fn ex09_quarantine() {
        run(0, &[(rows(10), Accept), (rows(0), HELD), (rows(0), HELD), (rows(0), Confirmed)]);
        run(0, &[(rows(10), Accept), (rows(1), Accept)]);
        run(0, &[(rows(9), Accept), (rows(0), Accept)]);
        run(0, &[(rows(100), Accept), (rows(5), HELD), (rows(90), Accept), (rows(5), HELD)]);
        run(0, &[(rows(0), Accept)]);
    }

    #[test]
    fn an_empty_first_word_of_a_cluster_with_machines_is_held_and_opens_nothing() {
        let silent = || Hold { heard: false };
        run(10, &[(rows(0), silent()), (rows(0), silent()), (rows(0), Confirmed)]);
        run(9, &[(rows(0), Accept)]);
        run(10, &[(rows(1), Accept), (rows(0), Accept)]);
    }

    #[test]
    fn rows_that_survive_without_their_amounts_are_suspicious() {
        let size = |cpu, memory| Size { rows: 10, cpu, memory };
        run(0, &[(size(1000, 1000), Accept), (size(99, 99), HELD), (size(99, 100), Accept)]);
        // Devices only: no amount to judge by.
        run(0, &[(size(0, 0), Accept), (size(0, 0), Accept)]);
    }
}
