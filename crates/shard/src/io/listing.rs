//! Lists as differences from the one before.

use bigfleet_proto::gate::Unreadable;
pub use bigfleet_proto::gate::machine::Known;
use bigfleet_proto::gate::machine::{Difference, Said, Violation};
use bigfleet_types::MachineId;

use super::{CallError, CallId, Input, Reported};

/// How a List differs from the one before it. What it lacks is as it was then.
#[derive(Debug)]
pub struct Listing {
    /// Nothing was known before: [`Self::changed`] is all that there is.
    pub whole: bool,
    /// New records, those that are not as they were, and always those that were refused or repaired; in the order of the
    /// answer, each id once.
    pub changed: Vec<Reported>,
    /// Ids that the List before had.
    pub gone: Vec<MachineId>,
    /// Breaches of the List itself, as labels of the violations counter.
    pub violations: Vec<&'static str>,
}

impl Listing {
    /// Reads the answer of a provider.
    ///
    /// # Errors
    /// The bytes are no List.
    pub fn read(known: &mut Known, bytes: &[u8]) -> Result<Self, Unreadable> {
        let Difference { whole, changed, gone, violations } = known.read(bytes)?.records;
        let changed = changed.into_iter().map(Reported::from).collect();
        Ok(Self::of(Difference { whole, changed, gone, violations }))
    }

    fn of(difference: Difference<Reported>) -> Self {
        let Difference { whole, changed, gone, violations } = difference;
        let violations = violations.into_iter().map(Violation::label).collect();
        Self { whole, changed, gone, violations }
    }
}

impl Reported {
    fn said(&self) -> Option<(&MachineId, Said<'_>)> {
        let always = self.record.is_err() || !self.violations.is_empty();
        Some((self.id.as_ref()?, Said { machine: self.record.as_ref().ok(), always }))
    }
}

impl Input {
    /// The answer of a provider in the same process: all records.
    #[must_use]
    pub fn listed(call: CallId, mut known: Box<Known>, records: Result<Vec<Reported>, CallError>) -> Self {
        let result = records.map(|records| Listing::of(known.next(records, Reported::said)));
        Self::Listed { call, known, result }
    }
}
