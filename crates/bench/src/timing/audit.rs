//! An audit of a decision: the copy that the deciding thread makes, and the full pass that another one takes over it.

use anyhow::{Context, Result, ensure};
use bigfleet_engine::Engine;

use super::{Laps, Made, Run};
use crate::compare::{Recorded, Timed};
use crate::realistic::Realistic;
use crate::sizing::PROFILES;
use crate::workload::{START, Workload as _};

pub(super) const WHAT: &str =
    "what one audit of a decision takes: the copy on the deciding thread, the full pass over it on another";
pub(super) const COPY: Recorded = Recorded::none(Timed::Part("copy"), "none");

pub(super) fn run(profile: &str) -> Result<Run> {
    let profile = PROFILES.into_iter().find(|known| known.name == profile).context("no such profile")?;
    let fleet = Realistic::new(profile);
    let mut engine = Engine::new(fleet.policy());
    let tally = fleet.fill(&mut |event| engine.apply(event))?;
    let live = engine.decide(START);
    let mut laps = Laps::begin();
    let (content, marks) = (engine.content(), engine.marks());
    let copy = laps.end();
    let (full, full_marks) = content.decide(START);
    let pass = laps.end();
    ensure!(live == full && content.marked(&marks) == full_marks, "the copy decides otherwise");
    let made = Made { records: tally.records(), needs: engine.demand_rows() as u64, ..Made::default() };
    Ok(Run { parts: vec![("copy", copy), ("full pass", pass)], made })
}
