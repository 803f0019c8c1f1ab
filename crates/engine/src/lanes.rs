//! Resource vectors as fixed lanes, one per resource name that the engine has met.

use bigfleet_types::{ResourceName, Resources, is_extended};
use smallvec::SmallVec;

use crate::intern::Map;

/// The resource names met so far, and which of them are extended resources.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    numbers: Map<ResourceName, usize>,
    names: Vec<(ResourceName, bool)>,
}

impl Dimensions {
    /// The lanes of a vector; new names get new lanes.
    pub(crate) fn lanes(&mut self, resources: &Resources) -> Lanes {
        let mut lanes = SmallVec::new();
        for (name, amount) in resources.iter() {
            let lane = self.lane(name);
            if lane >= lanes.len() {
                lanes.resize(lane + 1, 0);
            }
            lanes[lane] = amount;
        }
        Lanes(lanes)
    }

    fn lane(&mut self, name: &ResourceName) -> usize {
        if let Some(lane) = self.numbers.get(name) {
            return *lane;
        }
        let lane = self.names.len();
        self.numbers.insert(name.clone(), lane);
        self.names.push((name.clone(), is_extended(name.as_str())));
        lane
    }

    /// The vector that lanes stand for.
    pub(crate) fn resources(&self, lanes: &Lanes) -> Resources {
        Resources::from_amounts(lanes.positive().map(|lane| (self.names[lane].0.clone(), lanes.get(lane))))
    }

    /// The lanes of extended resources with a positive amount in either vector, ascending.
    pub(crate) fn extended_in(&self, a: &Lanes, b: &Lanes) -> LaneSet {
        let width = a.0.len().max(b.0.len());
        (0..width).filter(|lane| self.names[*lane].1 && (a.get(*lane) > 0 || b.get(*lane) > 0)).collect()
    }

    /// How many kinds of extended resources a capacity offers beyond the requested ones.
    pub(crate) fn unrequested(&self, capacity: &Lanes, requested: &[usize]) -> usize {
        capacity.positive().filter(|lane| self.names[*lane].1 && !requested.contains(lane)).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// A whole in the fixed point of [`Lanes::coverage`].
const WHOLE: i64 = 1_000_000_000;

/// A few lane numbers, ascending.
pub(crate) type LaneSet = SmallVec<[usize; 2]>;

/// A vector of amounts in internal units; lanes beyond its end are zero. The last lane of a vector fresh from
/// [`Dimensions::lanes`] is positive, so that equal vectors are equal values.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Lanes(SmallVec<[i64; 4]>);

impl Clone for Lanes {
    /// All at once, as a derived one would not.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

#[cfg(test)]
impl From<&[i64]> for Lanes {
    fn from(amounts: &[i64]) -> Self {
        Self(amounts.into())
    }
}

impl Lanes {
    /// All amounts, by lane.
    pub(crate) fn amounts(&self) -> &[i64] {
        &self.0
    }

    pub(crate) fn get(&self, lane: usize) -> i64 {
        self.0.get(lane).copied().unwrap_or(0)
    }

    /// The lanes with a positive amount.
    pub(crate) fn positive(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, amount)| **amount > 0).map(|(lane, _)| lane)
    }

    /// Whether no amount is positive.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.iter().all(|amount| *amount <= 0)
    }

    /// Whether every positive amount of `want` is met.
    pub(crate) fn covers(&self, want: &Self) -> bool {
        want.0.iter().enumerate().all(|(lane, amount)| *amount <= 0 || self.get(lane) >= *amount)
    }

    /// Whether this capacity would lessen what is missing in at least one lane.
    pub(crate) fn reduces(&self, missing: &Self) -> bool {
        self.0.iter().zip(&missing.0).any(|(offer, want)| *offer > 0 && *want > 0)
    }

    /// Takes a capacity off what is missing, never below zero.
    pub(crate) fn subtract(&mut self, capacity: &Self) {
        self.subtract_times(capacity, 1);
    }

    /// Takes so many capacities off what is missing, never below zero.
    pub(crate) fn subtract_times(&mut self, capacity: &Self, number: usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        for (missing, offer) in self.0.iter_mut().zip(&capacity.0) {
            *missing = missing.saturating_sub(offer.saturating_mul(number)).max(0);
        }
    }

    /// Adds up to the end of the number range.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (sum, amount) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*amount);
        }
    }

    /// So many of it, up to the end of the number range.
    pub(crate) fn times(&self, number: i64) -> Self {
        Self(self.0.iter().map(|amount| amount.saturating_mul(number.max(0))).collect())
    }

    /// How many whole units fit; as many as can be said when a unit is nothing.
    pub(crate) fn whole_units(&self, unit: &Self) -> i64 {
        unit.positive().map(|lane| self.get(lane) / unit.get(lane)).min().unwrap_or(i64::MAX)
    }

    /// How many such units cover it, if each lane takes part in every unit.
    pub(crate) fn units(&self, unit: &Self) -> usize {
        let lanes = unit
            .positive()
            .map(|lane| self.get(lane).max(0).saturating_add(unit.get(lane) - 1) / unit.get(lane));
        lanes.max().and_then(|units| usize::try_from(units).ok()).unwrap_or(0)
    }

    /// The sum over the lanes of `deficit` of the share that this covers, in 10^-9; `capped` counts no lane for more
    /// than the whole of it.
    pub(crate) fn coverage(&self, deficit: &Self, capped: bool) -> i128 {
        let shares = deficit.positive().map(|lane| {
            let (have, want) = (self.get(lane), deficit.get(lane));
            match have.checked_mul(WHOLE) {
                _ if capped && have >= want => i128::from(WHOLE),
                Some(have) => i128::from(have / want),
                None => i128::from(have) * i128::from(WHOLE) / i128::from(want),
            }
        });
        shares.sum()
    }

    /// The smallest share of a lane of `deficit`, in thousandths, at most 1000.
    pub(crate) fn per_mille(&self, deficit: &Self) -> u16 {
        let share = |lane| {
            let (have, want) = (self.get(lane), deficit.get(lane));
            match have.checked_mul(1000) {
                _ if have >= want => 1000,
                Some(have) => have / want,
                None => i64::try_from(i128::from(have) * 1000 / i128::from(want)).unwrap_or(1000),
            }
        };
        deficit.positive().map(share).min().and_then(|worst| u16::try_from(worst).ok()).unwrap_or(1000)
    }

    /// Raises each lane to that of `floor`.
    pub(crate) fn raise(&mut self, floor: &Self) {
        if self.0.len() < floor.0.len() {
            self.0.resize(floor.0.len(), 0);
        }
        for (amount, least) in self.0.iter_mut().zip(&floor.0) {
            *amount = (*amount).max(*least);
        }
    }
}

/// A sum of capacities, wide enough to be exact.
#[derive(Debug, Default)]
pub(crate) struct Sum(SmallVec<[i128; 4]>);

impl Sum {
    pub(crate) fn add(&mut self, capacity: &Lanes) {
        if self.0.len() < capacity.0.len() {
            self.0.resize(capacity.0.len(), 0);
        }
        for (sum, amount) in self.0.iter_mut().zip(&capacity.0) {
            *sum += i128::from(*amount);
        }
    }

    /// Takes a part off again when the rest still covers `want`; says whether it did.
    pub(crate) fn spare(&mut self, part: &Lanes, want: &Lanes) -> bool {
        let rest = |lane: usize| self.0.get(lane).copied().unwrap_or(0) - i128::from(part.get(lane));
        if !want.positive().all(|lane| rest(lane) >= i128::from(want.get(lane))) {
            return false;
        }
        for (sum, amount) in self.0.iter_mut().zip(&part.0) {
            *sum -= i128::from(*amount);
        }
        true
    }
}
