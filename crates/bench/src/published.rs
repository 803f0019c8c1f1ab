//! The published benchmarks by name, each with the number that was recorded for it.

mod cycle;
mod gangs;
mod late;
mod six;

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
        "cycle-steady-1k" => cycle::steady(name, 1_000, "none"),
        "cycle-steady-10k" => cycle::steady(name, 10_000, "none"),
        "cycle-steady-50k" => cycle::steady(name, 50_000, "245 ms, with reconcile"),
        "cycle-steady-100k" => cycle::steady(name, 100_000, "412 ms, with reconcile"),
        "cycle-steady-500k" => cycle::steady(name, 500_000, "2150 ms, with reconcile"),
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
        "gang-choice-100" => gangs::choice(name, 2_580, 100, "0.2 ms scanned, 0.08 ms indexed: a floor"),
        "gang-choice-1000" => gangs::choice(name, 42_680, 1_000, "41 ms scanned, 1.1 ms indexed: a floor"),
        "gang-choice-10000" => {
            gangs::choice(name, 776_000, 10_000, "7100 ms scanned, 21 ms indexed: a floor")
        }
        _ => return None,
    })
}
