//! Stories that the demo plays, each with claims that are checked against what the provider and the shard say, never
//! against what the demo asked for.

mod critical;
mod r#move;
mod saturate;

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use bigfleet_proto::v1alpha1::Machine;
use bigfleet_types::MachineState;
use tokio::sync::mpsc;

use super::audit::Entry;
use super::world::{World, is_bought, state};
use crate::ctl::fleet;

/// How often a story looks whether what it waits for has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Sums of declared prices may differ by their rounding, in dollars.
const CENT_FRACTION: f64 = 1e-6;

/// Which story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Machines travel from one cluster to another.
    Move,
    /// More demand than owned machines.
    Saturate,
    /// What matters most, when no more machines can be had.
    Critical,
}

impl Scenario {
    /// Reads a name, or says why there is no such story.
    pub(crate) fn parse(name: &str) -> Result<Self, &'static str> {
        match name {
            "move" => Ok(Self::Move),
            "saturate" => Ok(Self::Saturate),
            "critical" => Ok(Self::Critical),
            _ => Err("is none of move, saturate, critical"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Move => "move",
            Self::Saturate => "saturate",
            Self::Critical => "critical",
        })
    }
}

/// One thing that a story says, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) what: &'static str,
    pub(crate) holds: bool,
    pub(crate) found: String,
}

impl Claim {
    fn new(what: &'static str, holds: bool, found: impl Into<String>) -> Self {
        Self { what, holds, found: found.into() }
    }

    /// Amounts of dollars that should be the same.
    fn same_dollars(what: &'static str, one: (&str, f64), other: (&str, f64)) -> Self {
        let found = format!("{} ${:.2}, {} ${:.2}", one.0, one.1, other.0, other.1);
        Self::new(what, (one.1 - other.1).abs() < CENT_FRACTION, found)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, holds, found } = self;
        write!(f, "{} {what}: {found}", if *holds { "holds " } else { "FAILS " })
    }
}

/// What a story found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) scenario: Scenario,
    pub(crate) took: Duration,
    pub(crate) claims: Vec<Claim>,
}

impl Report {
    pub(crate) fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }

    /// One line a claim, and a last one that sums up.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.claims.iter().map(|claim| format!("claim {claim}")).collect();
        let failed = self.claims.iter().filter(|claim| !claim.holds).count();
        let took = self.took.as_secs_f64();
        lines.push(match failed {
            0 => format!("scenario {} holds: {} claims in {took:.1} s", self.scenario, self.claims.len()),
            n => format!(
                "scenario {} FAILS: {n} of {} claims, in {took:.1} s",
                self.scenario,
                self.claims.len()
            ),
        });
        lines
    }
}

/// Plays a story. What happens meanwhile is told to `say`.
///
/// # Errors
/// When it cannot be played to its end: the fleet is not at rest, something did not happen within `limit`, or a
/// question was not answered. Its claims are not known then.
pub(crate) async fn play(
    scenario: Scenario,
    world: &World,
    say: mpsc::UnboundedSender<String>,
    limit: Duration,
) -> anyhow::Result<Report> {
    let began = Instant::now();
    let director = Director { scenario, world, say, began, limit };
    let claims = match scenario {
        Scenario::Move => r#move::play(&director).await?,
        Scenario::Saturate => saturate::play(&director).await?,
        Scenario::Critical => critical::play(&director).await?,
    };
    Ok(Report { scenario, took: began.elapsed(), claims })
}

/// What a story works with.
struct Director<'a> {
    scenario: Scenario,
    world: &'a World,
    say: mpsc::UnboundedSender<String>,
    began: Instant,
    limit: Duration,
}

impl Director<'_> {
    /// Tells the audience.
    fn say(&self, what: impl fmt::Display) {
        // Without an audience the story goes on.
        let _ = self.say.send(format!("scenario {}: {what}", self.scenario));
    }

    /// Waits until `there` gives something; `missing` says what it lacks in the meantime. Each new lack is told.
    async fn wait<T>(
        &self,
        what: &str,
        mut there: impl FnMut() -> Option<T>,
        missing: impl Fn() -> String,
    ) -> anyhow::Result<T> {
        self.say(format!("waiting until {what}"));
        let mut told = String::new();
        loop {
            if let Some(found) = there() {
                return Ok(found);
            }
            let lack = missing();
            self.check_time(&format!("{what}; {lack}"))?;
            if lack != told {
                self.say(format!("  {lack}"));
                told = lack;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails once the story takes too long; `what` has not come true by then.
    fn check_time(&self, what: &str) -> anyhow::Result<()> {
        if self.began.elapsed() >= self.limit {
            let seconds = self.limit.as_secs_f64();
            bail!("scenario {}: not within {seconds} s (--scenario-timeout): {what}", self.scenario);
        }
        Ok(())
    }

    /// Waits until every pod runs and no machine is on its way.
    async fn rest(&self) -> anyhow::Result<()> {
        let world = self.world;
        self.wait(
            "every pod runs and the fleet is at rest",
            || world.at_rest().then_some(()),
            || {
                let contents = world.clusters().iter().map(|cluster| {
                    let view = cluster.memory().view();
                    let running = view.pods_in(bigfleet_operator::memory::PodPhase::Running);
                    format!("{} runs {running} of {} pods", cluster.name(), cluster.pods_wanted())
                });
                contents.collect::<Vec<_>>().join(", ")
            },
        )
        .await
    }

    /// Fails unless everything that runs is owned.
    fn insist_on_owned_machines(&self) -> anyhow::Result<()> {
        let machines = self.world.control().machines();
        if machines.iter().any(|m| is_bought(m) && state(m) != Some(MachineState::Speculative)) {
            bail!(
                "scenario {}: starts on owned machines only, and some are bought; lower the demand and wait",
                self.scenario
            );
        }
        Ok(())
    }

    /// The provider's machines over the wire, which a broken provider would not answer.
    async fn list(&self) -> anyhow::Result<Vec<Machine>> {
        self.world.list().await
    }
}

fn count(machines: &[Machine], wanted: MachineState) -> usize {
    machines.iter().filter(|m| state(m) == Some(wanted)).count()
}

/// The ids of the cluster's Configured machines.
fn bound_to(machines: &[Machine], cluster: &str) -> BTreeSet<String> {
    let configured = |m: &&Machine| state(m) == Some(MachineState::Configured) && m.cluster == cluster;
    machines.iter().filter(configured).map(|m| m.id.clone()).collect()
}

/// Whether the log has, for this machine, the drain of this kind from the one cluster and after it a Bootstrap for the
/// other.
fn changed_hands(audit: &[Entry], machine: &str, drain: &str, from: &str, to: &str) -> bool {
    let done = |entry: &Entry, kind: &str, cluster: &str| {
        entry.machine == machine
            && entry.kind == kind
            && entry.cluster == cluster
            && entry.outcome == "success"
    };
    let drained = audit.iter().position(|entry| done(entry, drain, from));
    drained.is_some_and(|at| audit[at..].iter().any(|entry| done(entry, "Bootstrap", to)))
}

/// What the existing machines of a List cost by their declared prices.
fn declared(machines: &[Machine]) -> f64 {
    fleet::dollars_per_hour(machines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fails_with_one_of_its_claims_and_says_which() {
        let claims = vec![Claim::new("water is wet", true, "wet"), Claim::new("fire is cold", false, "hot")];
        let report = Report { scenario: Scenario::Move, took: Duration::from_secs(3), claims };
        assert!(!report.holds());
        assert_eq!(
            report.lines(),
            [
                "claim holds  water is wet: wet",
                "claim FAILS  fire is cold: hot",
                "scenario move FAILS: 1 of 2 claims, in 3.0 s"
            ]
        );
    }

    #[test]
    fn dollars_are_the_same_up_to_rounding() {
        let same = |a, b| Claim::same_dollars("", ("a", a), ("b", b)).holds;
        assert!(same(0.1 + 0.2, 0.3));
        assert!(!same(0.38, 0.39));
    }

    fn entry(kind: &str, cluster: &str, outcome: &str) -> Entry {
        let text = str::to_owned;
        Entry {
            time: text(""),
            kind: text(kind),
            machine: text("m"),
            cluster: text(cluster),
            reason: text(""),
            grace_seconds: 0,
            outcome: text(outcome),
            detail: text(""),
        }
    }

    #[test]
    fn a_journey_needs_both_entries_in_order() {
        let (away, there) = (entry("Reclaim", "a", "success"), entry("Bootstrap", "b", "success"));
        let changed_hands = |audit: &[Entry], machine| changed_hands(audit, machine, "Reclaim", "a", "b");
        assert!(changed_hands(&[away.clone(), there.clone()], "m"));
        assert!(!changed_hands(&[there.clone(), away.clone()], "m"));
        assert!(!changed_hands(&[away.clone(), there.clone()], "other"));
        assert!(!changed_hands(&[entry("Reclaim", "a", "fenced"), there], "m"));
    }
}
