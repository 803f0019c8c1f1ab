//! The realistic fleet: the catalogue, sized, bound, racked and put into motion.
//!
//! Machines come first, cluster by cluster: as many for each row as its share of the kind's machines, stamped with the
//! row, so that the fleet is nearly at rest. Some rows lack a machine and some have one too many, as in any real fleet.

mod demand;
mod machines;
mod tables;

use bigfleet_engine::Event;
use bigfleet_types::{ResourceName, Resources};

use crate::catalogue::GPU;
use crate::compare::{Recorded, Timed};
use crate::factory::cluster;
use crate::sizing::{CardinalityError, Profile, Sizing, Tally, check, churn_target};
use crate::workload::{Changed, Emit, START, Workload};

use demand::Plan;
use tables::Tables;

/// A fleet of one profile.
#[derive(Debug)]
pub struct Realistic {
    name: String,
    profile: Profile,
    /// How many rows change from round to round; `None`: as many as in a real fleet.
    changes: Option<u64>,
    sizing: Sizing,
    tables: Tables,
}

impl Realistic {
    /// The fleet of a profile.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let (sizing, tables) = (Sizing::of(profile), Tables::new());
        Self { name: profile.name.to_owned(), profile, changes: None, sizing, tables }
    }

    /// The fleet of a profile in which so many rows change from round to round, those of the first clusters.
    #[must_use]
    pub fn changing(profile: Profile, name: &str, rows: u64) -> Self {
        Self { name: name.to_owned(), changes: Some(rows), ..Self::new(profile) }
    }

    fn plan(&self, cluster: u64) -> Plan {
        Plan::of(&self.sizing, self.profile.clusters, cluster)
    }
}

impl Workload for Realistic {
    fn name(&self) -> &str {
        &self.name
    }

    fn fill(&self, emit: Emit<'_>) -> Result<Tally, CardinalityError> {
        let mut made = Tally { clusters: self.profile.clusters, ..Tally::default() };
        machines::emit(self, &mut made, emit);
        for number in 0..self.profile.clusters {
            let plan = self.plan(number);
            made.needs += plan.rows();
            for gang in &plan.gangs {
                made.gangs[gang.kind] += 1;
            }
            let id = cluster(number);
            emit(Event::Demand { cluster: id.clone(), rows: plan.needs(&self.tables, number, 0), at: START });
            emit(Event::Heard(id));
        }
        check(self.profile, &made)?;
        Ok(made)
    }

    fn churn(&self, round: u64, emit: Emit<'_>) -> Changed {
        let mut changed = Changed::default();
        for number in 0..self.profile.clusters {
            let plan = self.plan(number);
            if let Some(most) = self.changes {
                let left = most - changed.changed;
                if left == 0 {
                    break;
                }
                let part = left.min(plan.rows());
                changed.rows += plan.rows();
                changed.changed += part;
                let rows = plan.needs_changing(&self.tables, number, round, part);
                emit(Event::Demand { cluster: cluster(number), rows, at: START });
                continue;
            }
            changed.rows += plan.rows();
            changed.changed += plan.changed(round);
            let rows = plan.needs(&self.tables, number, round);
            emit(Event::Demand { cluster: cluster(number), rows, at: START });
        }
        changed
    }

    fn remembers(&self) -> bool {
        self.changes.is_some()
    }

    fn recorded(&self) -> Option<Recorded> {
        let cold = |number| Recorded::none(Timed::Cold, number);
        let later = Recorded::none(Timed::WarmP99, "none");
        Some(match (self.profile.name, self.changes) {
            ("5k", None) => {
                Recorded::ms(Timed::Cold, 128.0, "a cycle's p99 in the bucket from 128 to 256 ms").target(2.0)
            }
            ("50k", None) => {
                Recorded::ms(Timed::Cold, 2048.0, "a cycle's p99 in the bucket from 2.05 to 4.1 s")
                    .target(20.0)
            }
            ("500k", None) => cold("none: projected 10 s, gate 100 s").target(300.0),
            ("5m", None) => cold("none").target(4000.0),
            ("5k" | "50k", Some(..=1_000)) | ("500k", Some(..=10_000)) | ("5m", Some(..=100_000)) => {
                churn_target(self.profile.name).map_or(later, |target| later.target(target))
            }
            (_, Some(_)) => later,
            (_, None) => return None,
        })
    }

    fn most_actions(&self, records: u64) -> Option<u64> {
        // Rest is a demand of at most one machine in fifty that is not covered. Fleets of a few machines are mostly floors.
        (self.profile.name != "dev-50").then_some(records / 50)
    }
}

/// A vector of milli-cores, MiB and devices.
pub(crate) fn amounts(cpu: i64, memory: i64, devices: i64) -> Resources {
    Resources::from_amounts([
        (ResourceName::new("cpu"), cpu),
        (ResourceName::new("memory"), memory << 20),
        (ResourceName::new(GPU), devices),
    ])
}

/// What the part `number` of `parts` gets of a whole: all parts together get all of it, none more than one more than
/// another.
fn portion(whole: u64, parts: u64, number: u64) -> u64 {
    whole * (number + 1) / parts - whole * number / parts
}
