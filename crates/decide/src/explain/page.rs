//! Text in lines, and how amounts of money and time read in them.

use std::fmt;

use bigfleet_types::{EffectiveCost, NanoDollars, StampedPenalty, UnixNanos};

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// A line, so many levels in.
    pub(super) fn line(&mut self, level: usize, text: fmt::Arguments<'_>) {
        let line = format!("{:indent$}{text}", "", indent = 2 * level);
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    /// An empty line, unless the page is empty.
    pub(super) fn gap(&mut self) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A number of parts as a decimal fraction without needless zeros: `decimal(1_500, 1_000)` is `1.5`.
pub(super) fn decimal(parts: u128, unit: u128) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", parts % unit);
    let fraction = fraction.trim_end_matches('0');
    let whole = parts / unit;
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}

/// Dollars an hour.
pub(super) fn price(price: NanoDollars) -> String {
    format!("${}/h", decimal(u128::from(price.nano().unsigned_abs()), 1_000_000_000))
}

/// An effective cost.
pub(super) fn cost(cost: EffectiveCost) -> String {
    // Half nano-dollars: five of them are one unit of the tenth decimal place.
    let dollars = decimal(cost.half_nano.saturating_mul(5), 10_000_000_000);
    if cost.infinite { format!("beyond any price (${dollars}/h)") } else { format!("${dollars}/h") }
}

pub(super) fn penalty(penalty: StampedPenalty) -> String {
    match penalty {
        StampedPenalty::Infinite => "pinned".to_owned(),
        StampedPenalty::Finite(dollars) => {
            format!("${}", decimal(u128::from(dollars.nano().unsigned_abs()), 1_000_000_000))
        }
    }
}

/// A score in nano-points.
pub(super) fn points(score: i128) -> String {
    let sign = if score < 0 { "-" } else { "" };
    format!("{sign}{}", decimal(score.unsigned_abs(), 1_000_000_000))
}

/// How long ago, in whole seconds.
pub(super) fn ago(now: UnixNanos, since: UnixNanos) -> String {
    format!("{} s", now.since(since).as_secs())
}

/// `1 machine`, `2 machines`.
pub(super) fn machines(number: impl Into<u64>) -> String {
    match number.into() {
        1 => "1 machine".to_owned(),
        number => format!("{number} machines"),
    }
}
