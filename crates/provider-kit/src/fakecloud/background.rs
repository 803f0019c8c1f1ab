//! What happens by itself: the loss of quota, and machines that break by chance.

use std::time::Duration;

use bigfleet_types::MachineState;
use bigfleet_types::chance::{Chance, Seeded};
use tokio_util::sync::CancellationToken;

use super::control::Control;
use super::market;
use super::options::{Options, Shed};
use crate::table::wire_state;

/// Starts what the options ask for.
pub(super) fn start(options: &Options, control: &Control, stop: CancellationToken) {
    if let Some(Shed { at_seconds, keep }) = options.shed {
        let (control, stop) = (control.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            tokio::time::sleep(Duration::from_secs(at_seconds)).await;
            match control.shed_speculative(1.0 - keep).await {
                Ok(gone) => tracing::info!(gone, "speculative slots shed"),
                Err(error) => tracing::warn!(%error, "speculative slots could not be shed"),
            }
        }));
    }
    let seeded = |apart: u64| Seeded::new(options.random_seed.wrapping_add(apart));
    if let Some(stock) = options.stock_outs {
        let running = market::run_out(control.clone(), stock, seeded(1));
        tokio::spawn(stop.clone().run_until_cancelled_owned(running));
    }
    if let Some(prices) = options.market {
        let running = market::trade(control.clone(), prices, seeded(2));
        tokio::spawn(stop.clone().run_until_cancelled_owned(running));
    }
    if options.list_lag_ms > 0 {
        let running = market::remember(control.clone(), Duration::from_millis(options.list_lag_ms));
        tokio::spawn(stop.clone().run_until_cancelled_owned(running));
    }
    if options.failures_per_second > 0.0 {
        let (control, rate) = (control.clone(), options.failures_per_second);
        let chance = Seeded::new(options.random_seed);
        tokio::spawn(stop.run_until_cancelled_owned(break_by_chance(control, rate, chance)));
    }
}

async fn break_by_chance(control: Control, rate: f64, mut chance: Seeded) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let configured = wire_state(MachineState::Configured);
        let mut machines = control.machines();
        machines.retain(|machine| machine.state == configured);
        let expected = rate * f64::from(u32::try_from(machines.len()).unwrap_or(u32::MAX));
        for _ in 0..poisson(expected, &mut chance) {
            let Ok(len @ 1..) = u64::try_from(machines.len()) else { break };
            let victim = machines.swap_remove(usize::try_from(chance.below(len)).unwrap_or(0));
            if let Err(error) = control.fail_machine(&victim.id, "failed by chance").await {
                tracing::warn!(%error, machine = victim.id, "a machine could not be failed");
            }
        }
    }
}

/// A number from the Poisson distribution, by Knuth's method in pieces small enough for `exp`.
fn poisson(mut expected: f64, chance: &mut impl Chance) -> u64 {
    const PIECE: f64 = 500.0;
    let mut count = 0;
    while expected > 0.0 {
        let limit = (-expected.min(PIECE)).exp();
        expected -= PIECE;
        let mut product = unit(chance);
        while product > limit {
            count += 1;
            product *= unit(chance);
        }
    }
    count
}

/// A number from 0 to 1.
fn unit(chance: &mut impl Chance) -> f64 {
    f64::from(u32::try_from(chance.below(1 << 32)).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_has_the_mean_that_is_asked_for() {
        let mut chance = Seeded::new(7);
        for expected in [0.0, 0.5, 3.0, 1200.0] {
            let total: u64 = (0..400).map(|_| poisson(expected, &mut chance)).sum();
            let mean = f64::from(u32::try_from(total).unwrap()) / 400.0;
            assert!((mean - expected).abs() <= 0.1 + expected * 0.05, "{expected}: {mean}");
        }
    }
}
