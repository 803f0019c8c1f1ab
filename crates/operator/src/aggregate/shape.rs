//! Exact resource vectors of single pods, and their sums and maxima.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Raise;
use bigfleet_proto::gate::MAX_AMOUNT;
use bigfleet_types::{Family, Quantity, QuantityError, Resources};

/// Nano-units by resource name, sorted, all above zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Shape(Vec<(Arc<str>, i128)>);

/// Why amounts are none.
pub(super) enum ShapeError {
    /// Not a quantity.
    Quantity(String, QuantityError),
    /// Below zero.
    Negative(String),
}

impl Shape {
    /// Reads quantity strings. Says too whether one was cut to the largest amount.
    pub(super) fn parse(resources: &BTreeMap<String, String>) -> Result<(Self, bool), ShapeError> {
        let mut saturated = false;
        let mut amounts = Vec::with_capacity(resources.len());
        for (name, text) in resources {
            let quantity =
                Quantity::parse(text).map_err(|error| ShapeError::Quantity(name.clone(), error))?;
            if quantity.is_negative() {
                return Err(ShapeError::Negative(name.clone()));
            }
            let nano = quantity.nano().min(most(name));
            saturated |= nano < quantity.nano();
            if nano > 0 {
                amounts.push((Arc::from(name.as_str()), nano));
            }
        }
        Ok((Self(amounts), saturated))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Whether any amount is above that of `other`.
    pub(super) fn exceeds(&self, other: &Self) -> bool {
        self.0.iter().any(|(name, amount)| {
            let known = other.0.binary_search_by(|(n, _)| n.cmp(name));
            known.map_or(true, |at| *amount > other.0[at].1)
        })
    }
}

/// The largest amount that a shard takes, in nano-units.
fn most(name: &str) -> i128 {
    Resources::quantity(name, MAX_AMOUNT).nano()
}

/// Sum and maximum of the shapes of a row.
#[derive(Default)]
pub(super) struct Total<'a>(BTreeMap<&'a str, (i128, i128)>);

impl<'a> Total<'a> {
    pub(super) fn add(&mut self, shape: &'a Shape, count: u64) {
        for (name, amount) in &shape.0 {
            let (sum, max) = self.0.entry(name).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(i128::from(count)));
            *max = (*max).max(*amount);
        }
    }

    /// Raises sums to what must be there so that the rest, after the share that is taken already, is the sum; rounded up
    /// to the unit that a shard counts in.
    pub(super) fn raise(&mut self, raise: Raise) {
        for (name, taken) in [("cpu", raise.cpu), ("memory", raise.memory)] {
            let rest = 100_i128.saturating_sub(i128::from(taken));
            if let Some((sum, _)) = self.0.get_mut(name).filter(|_| taken > 0 && rest > 0) {
                let unit = Resources::quantity(name, 1).nano();
                let (hundredfold, part) = (sum.saturating_mul(100), rest.saturating_mul(unit));
                let units = hundredfold / part + i128::from(hundredfold % part > 0);
                *sum = units.saturating_mul(unit);
            }
        }
    }

    /// Cuts sums to what can be stated; gives how many were cut.
    pub(super) fn saturate(&mut self) -> u64 {
        let mut cut = 0;
        for (name, (sum, _)) in &mut self.0 {
            let most = most(name);
            if *sum > most {
                *sum = most;
                cut += 1;
            }
        }
        cut
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn sums(&self) -> BTreeMap<String, String> {
        self.print(|(sum, _)| *sum)
    }

    pub(super) fn maxima(&self) -> BTreeMap<String, String> {
        self.print(|(_, max)| *max)
    }

    fn print(&self, which: impl Fn(&(i128, i128)) -> i128) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, both)| ((*name).to_owned(), print(name, which(both)))).collect()
    }
}

/// The canonical text. The suffix family goes by the name, whatever the pods wrote.
fn print(name: &str, nano: i128) -> String {
    let binary = matches!(name, "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-");
    Quantity::from_nano(nano, if binary { Family::Binary } else { Family::Decimal }).to_string()
}
