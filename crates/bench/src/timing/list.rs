//! A List of half a million machines: decoded, taken through the gate, and compared with what is known.

use std::time::Duration;

use anyhow::{Result, ensure};
use bigfleet_shard::io::Reported;

use super::core::{Core, Wire, accept_list, decode_list};
use super::{Laps, Made, Run};
use crate::compare::{Recorded, Timed};
use crate::realistic::Realistic;
use crate::sizing::Profile;
use crate::workload::Workload as _;

pub(super) const DECODE: &str =
    "the bytes of a List of 500,000 machines to domain records, and the wire's freed";
pub(super) const DECODE_RECORDED: Recorded = Recorded::ms(
    Timed::Part("decode"),
    711.0,
    "711 ms into owned structs, 32 ms by walking the bytes, 21 ms by hashing them: floors on a machine like this",
);

pub(super) const RECONCILE: &str = "a List of 500,000 machines of which none changed, from its bytes on";
pub(super) const RECONCILE_RECORDED: Recorded =
    Recorded::ms(Timed::Cold, 696.0, "696 ms mean, provider in the process, nothing decoded").target(60.0);

/// Half a million machines in 419 clusters of 25,000 pods.
pub(super) const HALF_A_MILLION: Profile =
    Profile { name: "half a million", pods: 10_475_000, clusters: 419 };

/// Records past the gate, and how long each part of that took.
pub(super) struct Taken {
    pub(super) records: Vec<Reported>,
    pub(super) decode: Duration,
    pub(super) gate: Duration,
    pub(super) free: Duration,
}

impl Taken {
    pub(super) fn from(bytes: &[u8]) -> Result<Self> {
        let mut laps = Laps::begin();
        let list = decode_list(bytes)?;
        let decode = laps.end();
        let records = accept_list(&list)?;
        let gate = laps.end();
        drop(list);
        Ok(Self { records, decode, gate, free: laps.end() })
    }
}

fn half_a_million() -> Result<Wire> {
    let wire = Wire::of(&Realistic::new(HALF_A_MILLION))?;
    ensure!(
        wire.made.records().abs_diff(500_000) < 1_000,
        "{} machines are not 500,000",
        wire.made.records()
    );
    Ok(wire)
}

fn made(wire: &Wire) -> Made {
    Made { records: wire.made.records(), bytes: Some(wire.list.len() as u64), ..Made::default() }
}

pub(super) fn decode() -> Result<Run> {
    let wire = half_a_million()?;
    let Taken { records, decode, gate, free } = Taken::from(&wire.list)?;
    ensure!(records.len() as u64 == wire.made.records(), "{} machines came through", records.len());
    Ok(Run { parts: vec![("decode", decode), ("gate", gate), ("free", free)], made: made(&wire) })
}

pub(super) fn reconcile() -> Result<Run> {
    let wire = half_a_million()?;
    let mut core = Core::new(Realistic::new(HALF_A_MILLION).policy());
    core.list(Taken::from(&wire.list)?.records)?;
    core.wait_for_list()?;
    let Taken { records, decode, gate, free } = Taken::from(&wire.list)?;
    let mut laps = Laps::begin();
    core.list(records)?;
    let parts = vec![("decode", decode), ("gate", gate), ("free", free), ("compare", laps.end())];
    Ok(Run { parts, made: made(&wire) })
}
