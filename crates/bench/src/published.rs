//! The published benchmarks by name, each with the number that was recorded for it.

mod cycle;
mod gangs;
mod late;
mod six;

use bigfleet_engine::Phase;

use crate::compare::{Recorded, Timed};
use crate::synthetic::Synthetic;

/// The names of all of them, in the order in which they run.
pub(crate) const NAMES: [&str; 22] = [
    "cycle-steady-1k",
    "cycle-steady-10k",
    "cycle-steady-50k",
    "cycle-steady-100k",
    "cycle-steady-500k",
    "cycle-phase-dump",
    "p1-realistic-50k",
    "p1-realistic-all-same",
    "p1-5k-late",
    "p1-5k-unaggregated",
    "p1-colocated-5k",
    "p3-colocated-5k",
    "p1-one-pool-50k",
    "p1-repeat-50k",
    "domain-totals",
    "p2-inversions",
    "p3-high-demand",
    "p3-all-kept",
    "inv-snapshot",
    "gang-choice-100",
    "gang-choice-1000",
    "gang-choice-10000",
];

/// The benchmark of a name.
pub(crate) fn by_name(name: &str) -> Option<Synthetic> {
    Some(match name {
        "cycle-steady-1k" => cycle::steady(name, 1_000, Recorded::none(Timed::Cold, "none")),
        "cycle-steady-10k" => cycle::steady(name, 10_000, Recorded::none(Timed::Cold, "none")),
        "cycle-steady-50k" => {
            cycle::steady(name, 50_000, laptop(245.0, "245 ms on a laptop, with reconcile"))
        }
        "cycle-steady-100k" => {
            cycle::steady(name, 100_000, laptop(412.0, "412 ms on a laptop, with reconcile"))
        }
        "cycle-steady-500k" => {
            let recorded = laptop(2150.0, "2150 ms on a laptop, with reconcile").target(20.0);
            cycle::steady(name, 500_000, recorded)
        }
        "cycle-phase-dump" => cycle::phase_dump(name),
        "p1-realistic-50k" => six::realistic(name, false),
        "p1-realistic-all-same" => six::realistic(name, true),
        "p1-5k-late" => late::aggregated(name),
        "p1-5k-unaggregated" => late::unaggregated(name),
        "p1-colocated-5k" | "p3-colocated-5k" => gangs::colocated(name),
        "p1-one-pool-50k" => gangs::one_pool(name),
        "p1-repeat-50k" => gangs::repeat(name),
        "domain-totals" => gangs::domain_totals(name),
        "p2-inversions" => cycle::inversions(name),
        "p3-high-demand" => cycle::high_demand(name),
        "p3-all-kept" => cycle::all_kept(name),
        "inv-snapshot" => cycle::snapshot(name),
        "gang-choice-100" => {
            gangs::choice(name, 2_580, 100, floor(0.08, "a floor: 0.08 ms with bitmaps, 0.2 ms by scanning"))
        }
        "gang-choice-1000" => {
            gangs::choice(name, 42_680, 1_000, floor(1.1, "a floor: 1.1 ms with bitmaps, 41 ms by scanning"))
        }
        "gang-choice-10000" => gangs::choice(
            name,
            776_000,
            10_000,
            floor(21.0, "a floor: 21 ms with bitmaps, 7.1 s by scanning"),
        ),
        _ => return None,
    })
}

/// Of one full cycle.
fn laptop(ms: f64, number: &'static str) -> Recorded {
    Recorded::ms(Timed::Cold, ms, number)
}

/// Of the choice alone, with nothing of an engine around it.
fn floor(ms: f64, number: &'static str) -> Recorded {
    Recorded::ms(Timed::Phase(Phase::Phase1), ms, number)
}
