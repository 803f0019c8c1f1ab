//! Resource vectors: amounts by resource name, as machines offer them and Needs demand them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::quantity::{Family, NANO, Quantity, QuantityError};

/// The name of a resource, such as `cpu`, `memory` or `nvidia.com/gpu`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// Wraps a name; nothing is checked.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::borrow::Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Which way an amount finer than the internal unit goes: demand up, capacity down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Towards the larger amount.
    Up,
    /// Towards the smaller amount.
    Down,
}

/// Whether a resource is a device or another kind that only special machines offer: every name but cpu, memory,
/// storage, pods, huge pages and attachable volumes.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    !(matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage" | "pods")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-"))
}

/// The notation in which amounts of a resource print: binary for memory and storage, decimal for the rest.
#[must_use]
pub fn family(name: &str) -> Family {
    let binary = matches!(name, "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-");
    if binary { Family::Binary } else { Family::Decimal }
}

/// Nano-units in one internal unit: `cpu` is kept in milli, everything else in whole units.
fn nano_per_unit(name: &str) -> i128 {
    if name == "cpu" { NANO / 1000 } else { NANO }
}

/// A vector of positive amounts in internal units (milli for `cpu`, whole units otherwise), sorted by name.
///
/// An absent name is zero; zero amounts are never stored. All arithmetic saturates at 0 and 2^63-1. Clones share the vector.
#[derive(Clone, PartialEq, Eq, Default, Hash)]
pub struct Resources(Option<Arc<[(ResourceName, i64)]>>);

impl Resources {
    /// The empty vector.
    pub const EMPTY: Self = Self(None);

    /// Takes amounts in internal units. Amounts of one name add up; those not above zero are dropped.
    #[must_use]
    pub fn from_amounts(amounts: impl IntoIterator<Item = (ResourceName, i64)>) -> Self {
        let mut sums: Vec<(ResourceName, i64)> =
            amounts.into_iter().filter(|(_, amount)| *amount > 0).collect();
        if !sums.is_sorted_by(|(a, _), (b, _)| a < b) {
            sums.sort_unstable();
            sums.dedup_by(|(later, amount), (kept, sum)| {
                let same = later == kept;
                if same {
                    *sum = sum.saturating_add(*amount);
                }
                same
            });
        }
        Self::sorted(sums)
    }

    /// Takes positive amounts that are sorted by name, each name once.
    fn sorted(amounts: Vec<(ResourceName, i64)>) -> Self {
        Self((!amounts.is_empty()).then(|| amounts.into()))
    }

    fn amounts(&self) -> &[(ResourceName, i64)] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether both are clones of one vector, so that nobody has to compare them.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Parses quantity strings, each rounded on its own. Negative amounts are dropped: callers at the boundary
    /// refuse them first.
    ///
    /// # Errors
    /// The first name whose text is not a quantity, with the reason.
    pub fn parse<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        rounding: Rounding,
    ) -> Result<Self, (String, QuantityError)> {
        let mut amounts = Vec::new();
        for (name, text) in pairs {
            let quantity = Quantity::parse(text).map_err(|error| (name.to_owned(), error))?;
            amounts.push((ResourceName::new(name), Self::amount(name, quantity, rounding)));
        }
        Ok(Self::from_amounts(amounts))
    }

    /// A quantity of the named resource in internal units, saturating at the range of `i64`.
    #[must_use]
    pub fn amount(name: &str, quantity: Quantity, rounding: Rounding) -> i64 {
        let unit = nano_per_unit(name);
        let floor = quantity.nano().div_euclid(unit);
        let exact = quantity.nano().rem_euclid(unit) == 0;
        let units = floor + i128::from(rounding == Rounding::Up && !exact);
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }

    /// The amount of a resource in internal units; 0 when absent.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        let amounts = self.amounts();
        amounts.binary_search_by(|(n, _)| n.as_str().cmp(name)).map_or(0, |i| amounts[i].1)
    }

    /// Names and amounts, sorted by name; every amount is positive.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ResourceName, i64)> {
        self.amounts().iter().map(|(name, amount)| (name, *amount))
    }

    /// How many resources have a positive amount.
    #[must_use]
    pub fn len(&self) -> usize {
        self.amounts().len()
    }

    /// Whether no resource has a positive amount.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether every amount of `want` is met; what this vector has beyond does not matter.
    #[must_use]
    pub fn covers(&self, want: &Self) -> bool {
        want.iter().all(|(name, amount)| self.get(name.as_str()) >= amount)
    }

    /// The sum, per resource.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        self.merged(other, i64::saturating_add)
    }

    /// The larger amount, per resource.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        self.merged(other, i64::max)
    }

    /// What is left of this vector, never below zero.
    #[must_use]
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let rest = self.iter().map(|(name, amount)| (name, amount.saturating_sub(other.get(name.as_str()))));
        Self::sorted(
            rest.filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.clone(), amount)).collect(),
        )
    }

    /// This vector `n` times; empty for `n <= 0`.
    #[must_use]
    pub fn scale(&self, n: i64) -> Self {
        if n <= 0 {
            return Self::EMPTY;
        }
        Self::sorted(self.iter().map(|(name, amount)| (name.clone(), amount.saturating_mul(n))).collect())
    }

    fn merged(&self, other: &Self, combine: impl Fn(i64, i64) -> i64) -> Self {
        let (left, right) = (self.amounts(), other.amounts());
        let mut out = Vec::with_capacity(left.len().max(right.len()));
        let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.0.cmp(&r.0),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return Self::sorted(out),
            };
            let take = |pair: Option<&(ResourceName, i64)>| pair.cloned();
            match order {
                std::cmp::Ordering::Less => out.extend(take(left.next())),
                std::cmp::Ordering::Greater => out.extend(take(right.next())),
                std::cmp::Ordering::Equal => {
                    if let (Some(l), Some(r)) = (left.next(), right.next()) {
                        out.push((l.0.clone(), combine(l.1, r.1)));
                    }
                }
            }
        }
    }

    /// An amount in internal units as its canonical quantity. The suffix family goes by the resource's name.
    #[must_use]
    pub fn quantity(name: &str, amount: i64) -> Quantity {
        Quantity::from_nano(i128::from(amount) * nano_per_unit(name), family(name))
    }

    /// Names and canonical quantity strings, sorted by name.
    #[must_use]
    pub fn to_strings(&self) -> BTreeMap<String, String> {
        self.iter()
            .map(|(name, amount)| (name.to_string(), Self::quantity(name.as_str(), amount).to_string()))
            .collect()
    }
}

impl fmt::Display for Resources {
    /// `cpu 2500m, memory 16Gi`, or `nothing` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (i, (name, amount)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", Self::quantity(name.as_str(), amount))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
