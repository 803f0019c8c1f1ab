//! What a cloud does by itself: spot prices that move, spot hosts that are taken away the sooner the dearer they are,
//! kinds of machines that run out, calls that come too fast, and lists that lag behind. All of it follows from the seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::chance::{Chance, Seeded};
use bigfleet_types::{CapacityType, MachineState};
use serde::{Deserialize, Serialize};

use super::control::{ClassKey, Control};
use crate::table::wire_state;

/// Spot prices and what they bring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Market {
    /// How often prices move, in milliseconds; not 0.
    pub every_ms: u64,
    /// How far a price may be from where it began, as a part of it: 0.5 is half as much to half as much again.
    pub swing: f64,
    /// How many times faster than in the machines' own hours hosts are taken away; 1 is real time.
    pub speed: f64,
}

/// Classes that run out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StockOuts {
    /// The chance that a class is out for a period, 0 to 1.
    pub chance: f64,
    /// How long a period is, in milliseconds; not 0.
    pub period_ms: u64,
}

/// A number from 0 to 1, 1 excluded.
fn unit(chance: &mut impl Chance) -> f64 {
    f64::from(u32::try_from(chance.below(1 << 32)).unwrap_or(u32::MAX)) / (f64::from(u32::MAX) + 1.0)
}

/// Where a price goes next: a step of at most a fifth of the swing, within the swing.
fn step(now: f64, swing: f64, chance: &mut impl Chance) -> f64 {
    let by = (unit(chance) * 2.0 - 1.0) * swing / 5.0;
    (now + by).clamp(-swing, swing)
}

/// Moves the spot prices of every class, tells them to whoever lists, and takes hosts away.
pub(super) async fn trade(control: Control, market: Market, mut chance: Seeded) {
    let every = Duration::from_millis(market.every_ms);
    // What a machine cost and risked at the beginning; where its class stands against that.
    let mut base: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut stands: BTreeMap<ClassKey, f64> = BTreeMap::new();
    loop {
        tokio::time::sleep(every).await;
        let spot = i32::from(CapacityType::Spot as u8);
        let machines: Vec<_> = control.machines().into_iter().filter(|m| m.capacity_type == spot).collect();
        let classes: BTreeSet<ClassKey> = machines.iter().map(|m| ClassKey::of(m)).collect();
        for class in classes {
            let stand = stands.entry(class).or_default();
            *stand = step(*stand, market.swing, &mut chance);
        }
        for machine in machines {
            let stand = stands.get(&ClassKey::of(&machine)).copied().unwrap_or(0.0);
            let (price, risk) = *base
                .entry(machine.id.clone())
                .or_insert((machine.price_per_hour, machine.interruption_probability));
            let risk = (risk * (1.0 + stand)).clamp(f64::MIN_POSITIVE, 1.0);
            let moved = control
                .edit(&machine.id, |instance| {
                    instance.price_per_hour = price * (1.0 + stand);
                    instance.interruption_probability = risk;
                })
                .await;
            let taken = has_host(&machine) && unit(&mut chance) < risk * hours(every) * market.speed;
            let told = match moved {
                Ok(_) if taken => {
                    let reason =
                        format!("spot host taken away at {:.4} dollars an hour", price * (1.0 + stand));
                    control.fail_machine(&machine.id, &reason).await
                }
                other => other,
            };
            if let Err(error) = told {
                tracing::warn!(%error, machine = machine.id, "the spot market could not be kept up");
            }
        }
    }
}

fn hours(duration: Duration) -> f64 {
    duration.as_secs_f64() / 3600.0
}

fn has_host(machine: &pb::Machine) -> bool {
    let gone = [MachineState::Failed, MachineState::Deleting].map(wire_state);
    machine.host.is_some() && !gone.contains(&machine.state)
}

/// Puts classes out of stock and back, period by period.
pub(super) async fn run_out(control: Control, stock: StockOuts, mut chance: Seeded) {
    let mut out = BTreeSet::new();
    loop {
        let classes: BTreeSet<ClassKey> = control.machines().iter().map(|m| ClassKey::of(m)).collect();
        for class in classes {
            let gone = unit(&mut chance) < stock.chance;
            if gone != out.contains(&class) {
                control.stock_out(class.clone(), gone);
                if gone {
                    out.insert(class)
                } else {
                    out.remove(&class)
                };
            }
        }
        tokio::time::sleep(Duration::from_millis(stock.period_ms)).await;
    }
}

/// Lets so many calls a second through, and as many at once.
#[derive(Debug)]
pub(super) struct Throttle {
    rate: f64,
    level: Mutex<(f64, Instant)>,
}

impl Throttle {
    /// `None` for a rate of 0: no throttle.
    pub(super) fn new(rate: f64, now: Instant) -> Option<Self> {
        (rate > 0.0).then(|| Self { rate, level: Mutex::new((rate.max(1.0), now)) })
    }

    /// Whether a call may pass at `now`.
    pub(super) fn passes(&self, now: Instant) -> bool {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = level.0 + now.saturating_duration_since(level.1).as_secs_f64() * self.rate;
        let filled = filled.min(self.rate.max(1.0));
        let passes = filled >= 1.0;
        *level = (if passes { filled - 1.0 } else { filled }, now);
        passes
    }
}

type Machines = Arc<Vec<Arc<pb::Machine>>>;

/// What List shows when it lags: the machines as they were a while ago.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<VecDeque<(Instant, Machines)>>);

impl Past {
    /// Notes how machines are at `now`, and forgets what is older than `lag` but for the latest such.
    pub(super) fn note(&self, now: Instant, lag: Duration, machines: Vec<Arc<pb::Machine>>) {
        let mut past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        past.push_back((now, Arc::new(machines)));
        let old = |entry: &(Instant, Machines)| now.saturating_duration_since(entry.0) >= lag;
        while past.get(1).is_some_and(old) {
            past.pop_front();
        }
    }

    /// The machines of a while ago; `None` before anything was noted.
    pub(super) fn shown(&self) -> Option<Machines> {
        let past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        past.front().map(|(_, machines)| Arc::clone(machines))
    }
}

/// Keeps noting how machines are.
pub(super) async fn remember(control: Control, lag: Duration) {
    loop {
        control.note_past(Instant::now(), lag);
        tokio::time::sleep((lag / 8).max(Duration::from_millis(5))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_stay_within_their_swing_and_follow_from_the_seed() {
        let walk = |seed| {
            let mut chance = Seeded::new(seed);
            let mut now = 0.0;
            (0..1000)
                .map(|_| {
                    now = step(now, 0.5, &mut chance);
                    now
                })
                .collect::<Vec<f64>>()
        };
        let first = walk(7);
        assert!(first.iter().all(|price| (-0.5..=0.5).contains(price)));
        assert!(first.iter().any(|p| *p > 0.2) && first.iter().any(|p| *p < -0.2), "it moves");
        assert_eq!(first, walk(7));
        assert_ne!(first, walk(8));
    }

    #[test]
    fn a_throttle_lets_its_rate_through() {
        let start = Instant::now();
        let throttle = Throttle::new(5.0, start).unwrap();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!((0..10).filter(|_| throttle.passes(at(0))).count(), 5, "a second's worth at once");
        assert!(!throttle.passes(at(100)) && throttle.passes(at(200)));
        let passed = (201..1201).filter(|ms| throttle.passes(at(*ms))).count();
        assert_eq!(passed, 5);
        assert!(Throttle::new(0.0, start).is_none());
    }

    #[test]
    fn the_past_is_as_old_as_the_lag() {
        let (past, start, lag) = (Past::default(), Instant::now(), Duration::from_millis(100));
        assert!(past.shown().is_none());
        let with = |n: usize| (0..n).map(|_| Arc::default()).collect::<Vec<Arc<pb::Machine>>>();
        for n in 0..5 {
            past.note(start + Duration::from_millis(40 * u64::try_from(n).unwrap()), lag, with(n));
        }
        // At 160 ms the latest note that is 100 ms old is the one of 40 ms.
        assert_eq!(past.shown().unwrap().len(), 1);
    }
}
