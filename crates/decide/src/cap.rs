//! The reclaim cap: how many machines a cluster may lose at once because no Need claims them.

use std::collections::BTreeMap;

use bigfleet_engine::ActionKind;
use bigfleet_types::{ClusterId, MachineState};

use crate::input::Input;
use crate::report::Action;

const MILLION: u64 = 1_000_000;

/// A share of a cluster's Configured machines, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimCap(u32);

impl ReclaimCap {
    /// Takes a fraction of at most 1, rounded half up to a millionth. `None`, no cap, when it is not above 0.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is between 0 and a million"
    )]
    pub fn of_fraction(fraction: f64) -> Option<Self> {
        (fraction > 0.0).then(|| Self((fraction.min(1.0) * 1e6).round() as u32))
    }

    /// The fraction, as [`Self::of_fraction`] takes it.
    #[must_use]
    pub fn fraction(self) -> f64 {
        // Less than half a millionth is a cap all the same: one machine a cluster.
        if self.0 == 0 { 1e-7 } else { f64::from(self.0) / 1e6 }
    }

    /// How many Reclaims get through in a cluster with so many Configured machines; at least one.
    #[must_use]
    pub fn allows(self, configured: u64) -> u64 {
        (u64::from(self.0).saturating_mul(configured) / MILLION).max(1)
    }
}

/// The caps of all clusters in one cycle.
#[derive(Debug)]
pub struct Allowance(Option<BTreeMap<ClusterId, u64>>);

impl Allowance {
    /// What `cap` allows in clusters with so many Configured machines; without a cap, everything.
    pub fn new(cap: Option<ReclaimCap>, configured: impl FnOnce() -> BTreeMap<ClusterId, u64>) -> Self {
        let allowed = |cap: ReclaimCap| {
            let clusters = configured().into_iter();
            clusters.map(|(cluster, machines)| (cluster, cap.allows(machines))).collect()
        };
        Self(cap.map(allowed))
    }

    /// Whether the next action in emission order gets through. Only a Reclaim is ever held back: each cluster keeps
    /// the head of its list.
    pub fn lets(&mut self, kind: ActionKind, cluster: Option<&ClusterId>) -> bool {
        let Some(left) = self.0.as_mut().filter(|_| kind == ActionKind::Reclaim) else { return true };
        match cluster.and_then(|cluster| left.get_mut(cluster)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }
}

/// Splits actions in emission order into those that get through and the Reclaims that do not.
pub(crate) fn apply(input: &Input, actions: Vec<Action>) -> (Vec<Action>, Vec<Action>) {
    let mut allowance = Allowance::new(input.reclaim_cap, || {
        let mut configured: BTreeMap<ClusterId, u64> = BTreeMap::new();
        for (machine, _) in &input.fleet {
            if let (MachineState::Configured, Some(cluster)) = (machine.state, &machine.cluster) {
                *configured.entry(cluster.clone()).or_default() += 1;
            }
        }
        configured
    });
    actions.into_iter().partition(|action| allowance.lets(action.kind, action.cluster.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// decide-format 3.7 and example 53.
    #[test]
    fn ex53_the_cap_is_a_floor_in_parts_per_million_and_at_least_one() {
        let allowed =
            |fraction, configured| ReclaimCap::of_fraction(fraction).map(|cap| cap.allows(configured));
        assert_eq!(allowed(0.05, 100), Some(5));
        assert_eq!(allowed(0.05, 95), Some(4));
        assert_eq!(allowed(0.05, 5), Some(1));
        assert_eq!(allowed(1.0, 7), Some(7));
        assert_eq!(allowed(0.000_000_4, 1_000_000), Some(1));
        assert_eq!(allowed(0.000_002_5, 1_000_000), Some(3));
        assert_eq!(allowed(0.0, 100), None);
    }
}
