//! A small fleet late in its ramp, with its demand aggregated and with one row a pod.

use bigfleet_engine::Phase;
use bigfleet_types::{Attribution, MachineState, Need};

use super::six::{KINDS, kind_of};
use crate::compare::{Recorded, Timed};
use crate::factory::cluster;
use crate::synthetic::{Synthetic, Yard, priced};

/// 8 rows a cluster.
pub(super) fn aggregated(name: &str) -> Synthetic {
    let rows = |c: usize| {
        let need = |i: usize| KINDS[kind_of(i * 13)].need(i, false, 3125, &format!("row-{i}"));
        (cluster(c), (0..8).map(need).collect())
    };
    synthetic(name, Recorded::ms(Timed::Phase(Phase::Phase1), 0.121, "0.121 ms on a laptop"), rows)
}

/// 12,500 rows a cluster.
pub(super) fn unaggregated(name: &str) -> Synthetic {
    let rows = |c: usize| {
        let need = |i: usize| KINDS[kind_of(c * 12_500 + i)].need(i, false, 1, &format!("need-{i}"));
        (cluster(c), (0..12_500).map(need).collect())
    };
    synthetic(name, Recorded::none(Timed::Phase(Phase::Phase1), "none"), rows)
}

fn synthetic(
    name: &str,
    recorded: Recorded,
    rows: impl Fn(usize) -> (bigfleet_types::ClusterId, Vec<Need>),
) -> Synthetic {
    Synthetic {
        name: name.to_owned(),
        recorded,
        records: 20 * 250 + 1_000 + 12_000,
        demand: (0..20).map(rows).collect(),
        fleet: Box::new(fleet),
    }
}

/// 250 Configured machines a cluster, 1,000 Idle and 12,000 Speculative ones, of six kinds by weight.
fn fleet(yard: &mut Yard<'_>) {
    let models: Vec<_> = KINDS.iter().map(super::six::Kind::models).collect();
    // Every kind's share, spread evenly.
    let pick = |i: usize| kind_of(i * 37);
    for c in 0..20 {
        for i in 0..250 {
            let kind = pick(i);
            let stamps = Attribution::of(&KINDS[kind].need(i, false, 1, ""));
            yard.bind(&models[kind][i % 24], &cluster(c), &stamps);
        }
    }
    for i in 0..1_000 {
        let kind = pick(i);
        yard.put(&models[kind][i % 24], MachineState::Idle);
    }
    for i in 0..12_000 {
        let kind = pick(i);
        yard.put(&priced(models[kind][i % 24].clone(), 1), MachineState::Speculative);
    }
}
