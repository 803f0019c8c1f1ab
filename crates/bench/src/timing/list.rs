//! A List of half a million machines: read, taken through the gate, and compared with what is known.

use anyhow::{Result, ensure};
use bigfleet_shard::io::{Known, Listing};

use super::core::{Core, Wire};
use super::{Laps, Made, Run};
use crate::compare::{Recorded, Timed};
use crate::realistic::Realistic;
use crate::sizing::Profile;
use crate::workload::Workload as _;

pub(super) const DECODE: &str =
    "the bytes of a List of 500,000 machines, none known before, to domain records past the gate";
pub(super) const DECODE_RECORDED: Recorded = Recorded::ms(
    Timed::Cold,
    711.0,
    "711 ms into owned structs, 32 ms by walking the bytes, 21 ms by hashing them: floors on a machine like this",
);

pub(super) const RECONCILE: &str = "a List of 500,000 machines of which none changed, from its bytes on";
pub(super) const RECONCILE_RECORDED: Recorded =
    Recorded::ms(Timed::Cold, 696.0, "696 ms mean, provider in the process, nothing decoded").target(60.0);

/// Half a million machines in 419 clusters of 25,000 pods.
pub(super) const HALF_A_MILLION: Profile =
    Profile { name: "half a million", pods: 10_475_000, clusters: 419 };

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
    let mut laps = Laps::begin();
    let listing = Listing::read(&mut Known::default(), &wire.list)?;
    let read = laps.end();
    let fine = listing.changed.iter().filter(|record| record.record.is_ok()).count() as u64;
    ensure!(fine == wire.made.records(), "{fine} machines came through");
    Ok(Run { parts: vec![("read", read)], made: made(&wire) })
}

pub(super) fn reconcile() -> Result<Run> {
    let wire = half_a_million()?;
    let mut core = Core::new(Realistic::new(HALF_A_MILLION).policy());
    let first = core.read_list(&wire.list)?;
    core.list(first);
    core.wait_for_list()?;
    let mut laps = Laps::begin();
    let second = core.read_list(&wire.list)?;
    let read = laps.end();
    ensure!(second.listing.changed.is_empty(), "records of one List differ from themselves");
    core.list(second);
    Ok(Run { parts: vec![("read", read), ("compare", laps.end())], made: made(&wire) })
}
