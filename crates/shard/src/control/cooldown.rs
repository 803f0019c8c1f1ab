//! Strikes, stock-outs and operations that a provider does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_types::{CapacityType, UnixNanos};

use super::flight::Operation;
use super::record::StockClass;

/// How long a machine rests after its n-th failed operation in a row.
pub(crate) fn after_strikes(strikes: u32) -> Duration {
    let doubled = |first: u64, times: u32, last: u64| {
        Duration::from_secs(first.saturating_mul(1 << times.min(20)).min(last))
    };
    match strikes {
        0 => Duration::ZERO,
        1..=4 => doubled(5, strikes - 1, 300),
        _ => doubled(1800, strikes - 5, 4 * 3600),
    }
}

/// A wait that doubles with every refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) until: UnixNanos,
    wait: Duration,
}

impl Backoff {
    /// Waits for `first`, or twice as long as before, up to `last`.
    pub(crate) fn next(before: Option<Self>, now: UnixNanos, first: Duration, last: Duration) -> Self {
        let wait = before.map_or(first, |before| (before.wait * 2).min(last));
        Self { until: now.after(wait), wait }
    }
}

/// Cool-downs that are not those of one machine.
#[derive(Debug, Default)]
pub(crate) struct CoolDowns {
    stock: BTreeMap<StockClass, Backoff>,
    unsupported: BTreeSet<(u8, CapacityType)>,
}

impl CoolDowns {
    /// A class is out of stock. Gives the end of its cool-down, or `None` when it rests already.
    pub(crate) fn out_of_stock(&mut self, class: StockClass, now: UnixNanos) -> Option<UnixNanos> {
        let before = self.stock.get(&class).copied();
        if before.is_some_and(|backoff| backoff.until > now) {
            return None;
        }
        let backoff = Backoff::next(before, now, Duration::from_secs(30), Duration::from_secs(600));
        self.stock.insert(class, backoff);
        Some(backoff.until)
    }

    /// A Create of the class was accepted.
    pub(crate) fn in_stock(&mut self, class: &StockClass) {
        self.stock.remove(class);
    }

    pub(crate) fn is_out_of_stock(&self, class: &StockClass, now: UnixNanos) -> bool {
        self.stock.get(class).is_some_and(|backoff| backoff.until > now)
    }

    /// How many classes rest.
    pub(crate) fn resting(&self, now: UnixNanos) -> usize {
        self.stock.values().filter(|backoff| backoff.until > now).count()
    }

    /// The provider does not have this operation for this capacity type. Gives whether that is news.
    pub(crate) fn lacks(&mut self, operation: Operation, capacity: CapacityType) -> bool {
        self.unsupported.insert((operation as u8, capacity))
    }

    pub(crate) fn is_lacking(&self, operation: Operation, capacity: CapacityType) -> bool {
        self.unsupported.contains(&(operation as u8, capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_double_and_have_a_second_ladder() {
        let seconds = |n| after_strikes(n).as_secs();
        assert_eq!([1, 2, 3, 4].map(seconds), [5, 10, 20, 40]);
        assert_eq!([5, 6, 7, 8, 9, 40].map(seconds), [1800, 3600, 7200, 14_400, 14_400, 14_400]);
    }

    #[test]
    fn stock_outs_of_one_burst_count_once() {
        let class: StockClass = ("t".into(), "z".into(), CapacityType::Spot);
        let mut cool = CoolDowns::default();
        let at = |s: u64| UnixNanos(0).after(Duration::from_secs(s));
        assert_eq!(cool.out_of_stock(class.clone(), at(0)), Some(at(30)));
        assert_eq!(cool.out_of_stock(class.clone(), at(1)), None);
        assert_eq!(cool.out_of_stock(class.clone(), at(30)), Some(at(90)));
        cool.in_stock(&class);
        assert_eq!(cool.out_of_stock(class, at(200)), Some(at(230)));
    }
}
