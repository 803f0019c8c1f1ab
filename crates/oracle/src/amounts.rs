//! Resource vectors in wide integers. Absent is zero; nothing that is not positive is stored.

use std::collections::BTreeMap;

use bigfleet_types::{ResourceName, Resources};

/// Sums stop here, as those of the engine's 64-bit lanes do.
const LIMIT: i128 = i64::MAX as i128;

/// A vector of positive amounts by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    pub(crate) fn of(resources: &Resources) -> Self {
        Self(resources.iter().map(|(name, amount)| (name.to_string(), i128::from(amount))).collect())
    }

    pub(crate) fn to_resources(&self) -> Resources {
        let narrow = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
        Resources::from_amounts(self.iter().map(|(name, amount)| (ResourceName::new(name), narrow(amount))))
    }

    pub(crate) fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, i128)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        let mut sum = self.0.clone();
        for (name, amount) in &other.0 {
            let entry = sum.entry(name.clone()).or_default();
            *entry = (*entry + amount).min(LIMIT);
        }
        Self(sum)
    }

    pub(crate) fn max(&self, other: &Self) -> Self {
        let mut larger = self.0.clone();
        for (name, amount) in &other.0 {
            let entry = larger.entry(name.clone()).or_default();
            *entry = (*entry).max(*amount);
        }
        Self(larger)
    }

    /// What is left of this vector, never below zero.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let left = self.0.iter().map(|(name, amount)| (name.clone(), amount - other.get(name)));
        Self(left.filter(|(_, amount)| *amount > 0).collect())
    }

    pub(crate) fn times(&self, n: i128) -> Self {
        let grown = self.0.iter().map(|(name, amount)| (name.clone(), (amount * n).min(LIMIT)));
        Self(grown.filter(|(_, amount)| *amount > 0).collect())
    }

    /// Every amount of `want` is met.
    pub(crate) fn covers(&self, want: &Self) -> bool {
        want.0.iter().all(|(name, amount)| self.get(name) >= *amount)
    }

    /// The progress rule (engine.md 8.2): it lessens at least one amount of `missing`.
    pub(crate) fn lessens(&self, missing: &Self) -> bool {
        missing.0.keys().any(|name| self.get(name) > 0)
    }

    /// How many times `unit` fits (engine.md 7, whole gangs); the largest number when `unit` is empty.
    pub(crate) fn times_that_fits(&self, unit: &Self) -> i128 {
        unit.0.iter().map(|(name, amount)| self.get(name) / amount).min().unwrap_or(LIMIT)
    }

    /// The sum over `deficit` of this vector's share of it, in 10^-9 (decide-format.md 3.6); with `cap`, no
    /// dimension counts for more than the whole.
    pub(crate) fn coverage(&self, deficit: &Self, cap: bool) -> i128 {
        const ONE: i128 = 1_000_000_000;
        let share = |name: &String, want: &i128| self.get(name) * ONE / want;
        deficit.0.iter().map(|(n, want)| if cap { share(n, want).min(ONE) } else { share(n, want) }).sum()
    }

    /// The smallest share of a dimension of `deficit`, in thousandths, at most 1000.
    pub(crate) fn per_mille(&self, deficit: &Self) -> u16 {
        let worst = deficit.0.iter().map(|(name, want)| (self.get(name) * 1000 / want).min(1000)).min();
        u16::try_from(worst.unwrap_or(1000)).unwrap_or(1000)
    }
}
