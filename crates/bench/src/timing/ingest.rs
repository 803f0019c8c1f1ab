//! The roll-ups of 5,000 clusters, of whose rows 7 % changed: what a shard takes in every ten seconds.

use std::time::Duration;

use anyhow::{Result, ensure};
use bigfleet_engine::Event;
use bigfleet_types::ClusterId;

use super::core::{Core, Wire, rollup, rollup_in};
use super::{Laps, Made, Run};
use crate::compare::{Recorded, Timed};
use crate::realistic::Realistic;
use crate::sizing::{PROFILES, Profile};
use crate::workload::{Changed, Workload as _};

pub(super) const WHAT: &str =
    "one round of roll-ups from 5,000 sessions, 7 % of the rows changed, from their bytes to the engine";
/// A round comes every 10 s and may take a quarter of one core.
pub(super) const RECORDED: Recorded = Recorded::none(Timed::Cold, "none").target(2_500.0);

const SESSIONS: Profile = Profile { name: "5,000 sessions", pods: 125_000_000, clusters: 5_000 };

pub(super) fn run() -> Result<Run> {
    // The machines of a fleet that is already there: the sessions' own would be six million. Nothing is decided: what they
    // ask for is far more than there is.
    let fleet = Realistic::new(PROFILES[2]);
    let wire = Wire::of(&fleet)?;
    let mut core = Core::new(fleet.policy());
    let answer = core.read_list(&wire.list)?;
    core.list(answer);
    let demand = Realistic::new(SESSIONS);
    let mut all = Round::default();
    all.run(&demand, 1, &mut core, true)?;
    let mut round = Round::default();
    round.run(&demand, 2, &mut core, false)?;
    let (rows, changed) = (round.changed.rows, round.changed.changed);
    ensure!((6..=8).contains(&(changed * 100 / rows)), "{changed} of {rows} rows changed, not 7 %");
    ensure!(rows.abs_diff(5_000 * 235) < 5_000, "{rows} rows of 5,000 sessions are not 235 each");
    let made = Made {
        records: wire.made.records(),
        needs: rows,
        gangs: round.gangs,
        bytes: Some(round.bytes),
        ..Made::default()
    };
    Ok(Run { parts: vec![("decode", round.decode), ("gate", round.gate), ("ingest", round.ingest)], made })
}

/// What one round of roll-ups took.
#[derive(Default)]
struct Round {
    changed: Changed,
    gangs: u64,
    bytes: u64,
    decode: Duration,
    gate: Duration,
    ingest: Duration,
}

impl Round {
    fn run(&mut self, demand: &Realistic, round: u64, core: &mut Core, hello: bool) -> Result<()> {
        let (mut session, mut result) = (0, Ok(()));
        self.changed = demand.churn(round, &mut |event| {
            let Event::Demand { cluster, rows, .. } = event else { return };
            session += 1;
            if hello {
                core.hello(session, &cluster);
            }
            self.gangs += rows.iter().filter(|row| row.profile.same().is_some()).count() as u64;
            if result.is_ok() {
                result = self.one(session, &cluster, &rollup(&cluster, &rows), core);
            }
        });
        result
    }

    fn one(&mut self, session: u64, cluster: &ClusterId, frame: &[u8], core: &mut Core) -> Result<()> {
        self.bytes += frame.len() as u64;
        let mut laps = Laps::begin();
        let message = rollup_in(frame)?;
        self.decode += laps.end();
        let rows = core.accept(session, cluster, &message)?;
        drop(message);
        self.gate += laps.end();
        core.rollup(session, rows);
        self.ingest += laps.end();
        Ok(())
    }
}
