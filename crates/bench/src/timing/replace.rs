//! One cluster's 1,000 rows replaced among 50,000, and brought into order again.

use std::time::{Duration, Instant};

use anyhow::Result;
use bigfleet_engine::{Engine, Event, Phase, Policy};

use super::{Made, Run};
use crate::compare::{Recorded, Timed};
use crate::factory::cluster;
use crate::realistic::amounts;
use crate::synthetic::{profile, row};
use crate::workload::START;

pub(super) const WHAT: &str = "taking one cluster's 1,000 new rows; folding and order of all 50,000";
pub(super) const RECORDED: Recorded =
    Recorded::none(Timed::Cold, "none; sorting was 25 % of the processor's time");

pub(super) fn run() -> Result<Run> {
    let profiles: Vec<_> = (0..10).map(|p| profile("m", false, 1000 * (p + 1), 8192)).collect();
    let unit = amounts(1000, 1024, 0);
    let rows = |generation: u32| {
        let need = |i: usize| row(&profiles[i % 10], &unit, 1, &format!("need-{generation}-{i}"));
        (0..1000).map(need).collect()
    };
    let mut engine = Engine::new(Policy::default());
    for c in 0..50 {
        engine.apply(Event::Demand { cluster: cluster(c), rows: rows(0), at: START });
    }
    engine.decide(START);
    let event = Event::Demand { cluster: cluster(25), rows: rows(1), at: START };
    let start = Instant::now();
    engine.apply(event);
    let applied = start.elapsed();
    let (mut last, mut order) = (Instant::now(), Duration::ZERO);
    let decisions = engine.decide_observed(START, &mut |phase| {
        if phase == Phase::Fold {
            order += last.elapsed();
        }
        last = Instant::now();
    });
    let made = Made { needs: decisions.verdicts.len() as u64, ..Made::default() };
    anyhow::ensure!(made.needs == 50_000, "the table holds {} rows, not 50,000", made.needs);
    Ok(Run { parts: vec![("apply", applied), ("order", order)], made })
}
