//! The steps, in order: one story on one cluster. Each step says what it expects and gives up at its time-out.

mod arithmetic;
mod away;
mod budget;
mod capacity;
mod crds;
mod documents;
mod pods;
mod rights;
mod scale;
mod watches;

use std::time::Duration;

use anyhow::Result;

use super::world::World;

/// One step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// What it shows.
    pub(super) name: &'static str,
    /// When it gives up. Generous: it decides nothing on a slow machine.
    pub(super) within: Duration,
    /// Whether it only runs when asked for.
    pub(super) long: bool,
    pub(super) run: fn(&mut World) -> Result<()>,
}

/// All steps. A step may use what those before it left.
pub(super) fn steps() -> Vec<Step> {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let step = |name, within, run| Step { name, within, long: false, run };
    vec![
        step("custom resources: established, checked and shown as promised", minutes(3), crds::run),
        step("rights: what we ship is enough to start and no more", minutes(3), rights::ship),
        step("pod arithmetic: 2,000 pods as the scheduler adds them up", minutes(6), arithmetic::run),
        step("fifty pods of six shapes get machines and run", minutes(6), pods::fifty),
        step("order: Registered, Node Ready, CONFIGURED, UpcomingNode Ready", minutes(2), pods::order),
        step("each CapacityRequest is acknowledged once", minutes(2), pods::acknowledged_once),
        step("finished Jobs and deleted pods free capacity", minutes(4), capacity::freed),
        step("a second operator replica takes over", minutes(4), away::second_replica),
        step(
            "dropped watches: a real compaction behind a sleeping operator",
            minutes(5),
            watches::compaction,
        ),
        step(
            "static stability: all of BigFleet away under load, then back at once",
            minutes(30),
            away::silence,
        ),
        step("deleted pods give the machines back, Idle", minutes(12), capacity::back_to_idle),
        step(
            "a budget blocks a drain until its grace; an operator killed in it resumes",
            minutes(5),
            budget::run,
        ),
        Step { long: true, ..step("25,000 CapacityRequests in one cluster", minutes(60), scale::run) },
        step("rights: every one used, none missing, no foreign Node touched", minutes(2), rights::used),
        step("docs/on-your-cluster.md, word by word", minutes(5), documents::on_your_cluster),
    ]
}
