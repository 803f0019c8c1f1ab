//! A shard that begins: from the bytes of a List and of all roll-ups to its first decision, and what it does while
//! every operator comes back at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::core::{Core, Wire, rollup_in};
use super::list::HALF_A_MILLION;
use super::{Laps, Made, Run};
use crate::compare::{Recorded, Timed};
use crate::realistic::Realistic;
use crate::sizing::PROFILES;
use crate::workload::Workload;

pub(super) const COLD: &str =
    "a shard that starts: from the bytes of its List and of all roll-ups to the first decision";
pub(super) const NONE: Recorded = Recorded::none(Timed::Cold, "none");

pub(super) const HERD: &str = "500,000 machines past the gate, then 419 operators at once: Hello, replay of their machines, \
    roll-ups, first decision";
pub(super) const HERD_RECORDED: Recorded =
    Recorded::none(Timed::Cold, "31 s until all 5 sessions were back, most of it the process's")
        .target(2_000.0);

pub(super) fn cold(profile: &str) -> Result<Run> {
    let profile = PROFILES.into_iter().find(|known| known.name == profile).context("no such profile")?;
    let fleet = Realistic::new(profile);
    let wire = Wire::of(&fleet)?;
    let mut core = Core::new(fleet.policy());
    let mut laps = Laps::begin();
    let answer = core.read_list(&wire.list)?;
    let read = laps.end();
    core.list(answer);
    let mut parts = vec![("list read", read), ("list apply", laps.end())];
    let made = Made { bytes: Some(wire.bytes()), ..ready(&fleet, &wire, &mut core, &mut parts)? };
    Ok(Run { parts, made })
}

pub(super) fn herd() -> Result<Run> {
    let fleet = Realistic::new(HALF_A_MILLION);
    let wire = Wire::of(&fleet)?;
    let mut core = Core::new(fleet.policy());
    let answer = core.read_list(&wire.list)?;
    let mut laps = Laps::begin();
    core.list(answer);
    let mut parts = vec![("list apply", laps.end())];
    let bytes = wire.bytes() - wire.list.len() as u64;
    let made = Made { bytes: Some(bytes), ..ready(&fleet, &wire, &mut core, &mut parts)? };
    // A Hello's answer, the marker after the replay and the roll-up's answer; and a frame for each bound machine.
    let least = wire.made.configured + 3 * wire.made.clusters;
    ensure!(core.frames >= least, "{} frames went to operators, at least {least} were due", core.frames);
    Ok(Run { parts, made })
}

/// Operators say Hello and send their roll-ups; the first cycle.
fn ready(
    fleet: &dyn Workload,
    wire: &Wire,
    core: &mut Core,
    parts: &mut Vec<(&'static str, Duration)>,
) -> Result<Made> {
    let [mut hello, mut decode, mut gate, mut apply] = [Duration::ZERO; 4];
    let mut laps = Laps::begin();
    for (session, (cluster, frame)) in (1..).zip(&wire.rollups) {
        core.hello(session, cluster);
        hello += laps.end();
        let message = rollup_in(frame)?;
        decode += laps.end();
        let rows = core.accept(session, cluster, &message)?;
        drop(message);
        gate += laps.end();
        core.rollup(session, rows);
        apply += laps.end();
    }
    let published = core.cycle()?;
    let cycle = laps.end();
    parts.extend([("hello", hello), ("rollup decode", decode), ("rollup gate", gate)]);
    parts.extend([("rollup apply", apply), ("cycle", cycle)]);

    let (records, needs) = (wire.made.records(), wire.made.needs);
    ensure!(core.holds() == (records, needs), "the core holds {:?} of {:?}", core.holds(), (records, needs));
    let actions = published.decisions.actions.len() as u64;
    ensure!(
        fleet.most_actions(records).is_none_or(|most| actions <= most),
        "a fleet at rest takes {actions} actions when its shard starts"
    );
    Ok(Made { records, needs, gangs: wire.made.gangs(), actions, ..Made::default() })
}
