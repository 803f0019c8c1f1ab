//! A small fleet late in its ramp, with its demand aggregated and with one row a pod.

use bigfleet_engine::Phase;
use bigfleet_types::{Attribution, MachineState, Need};

use super::six::{KINDS, kind_of};
use crate::synthetic::{Recorded, Synthetic, Timed, Yard, cluster, priced};

/// 8 rows a cluster.
pub(super) fn aggregated(name: &str) -> Synthetic {
    let rows = |c: usize| {
        let need = |i: usize| kind_of(i * 13).need(i, false, 3125, &format!("row-{i}"));
        (cluster(c), (0..8).map(need).collect())
    };
    synthetic(name, "0.121 ms", rows)
}

/// 12,500 rows a cluster.
pub(super) fn unaggregated(name: &str) -> Synthetic {
    let rows = |c: usize| {
        let need = |i: usize| kind_of(c * 12_500 + i).need(i, false, 1, &format!("need-{i}"));
        (cluster(c), (0..12_500).map(need).collect())
    };
    synthetic(name, "none", rows)
}

fn synthetic(
    name: &str,
    number: &'static str,
    rows: impl Fn(usize) -> (bigfleet_types::ClusterId, Vec<Need>),
) -> Synthetic {
    Synthetic {
        name: name.to_owned(),
        recorded: Recorded { timed: Timed::Phase(Phase::Phase1), number },
        records: 20 * 250 + 1_000 + 12_000,
        demand: (0..20).map(rows).collect(),
        fleet: Box::new(fleet),
    }
}

/// 250 Configured machines a cluster, 1,000 Idle and 12,000 Speculative ones, of six kinds by weight.
fn fleet(yard: &mut Yard<'_>) {
    let models: Vec<_> = KINDS.iter().map(super::six::Kind::models).collect();
    // A number below 100 for every machine, spread evenly.
    let pick = |i: usize| {
        let mut below = 0;
        KINDS.iter().position(|kind| {
            below += kind.percent;
            i * 37 % 100 < below
        })
    };
    for c in 0..20 {
        for i in 0..250 {
            let Some(kind) = pick(i) else { continue };
            let stamps = Attribution::of(&KINDS[kind].need(i, false, 1, ""));
            yard.bind(&models[kind][i % 24], &cluster(c), &stamps);
        }
    }
    for i in 0..1_000 {
        let Some(kind) = pick(i) else { continue };
        yard.put(&models[kind][i % 24], MachineState::Idle);
    }
    for i in 0..12_000 {
        let Some(kind) = pick(i) else { continue };
        yard.put(&priced(models[kind][i % 24].clone(), 1), MachineState::Speculative);
    }
}
