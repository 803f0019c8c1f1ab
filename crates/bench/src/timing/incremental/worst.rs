//! The worst that may happen between two decisions, each undone before the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bigfleet_engine::Event;
use bigfleet_types::{
    CapacityType, ClusterId, Machine, MachineState, NanoDollars, Need, Operator, Profile, Requirement,
};
use serde::Serialize;

use super::{World, event};
use crate::measure::millis;
use crate::workload::{START, Workload as _};

/// What one of them took, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Worst {
    /// Taking what happened.
    pub apply_ms: f64,
    /// Deciding then.
    pub decide_ms: f64,
    /// How many machines or rows it is about.
    pub number: u64,
}

/// What machines have in common that are bought alike.
type Kind = (Arc<str>, Arc<str>, CapacityType, NanoDollars);

/// Measures all of them.
///
/// # Errors
/// The fleet has no machines.
pub(super) fn all(world: &mut World) -> Result<BTreeMap<&'static str, Worst>> {
    let mut worst = BTreeMap::new();
    world.engine.decide(world.now);

    let kind = largest_kind(world).context("the fleet has no machines")?;
    let doubled = |machine: &mut Machine| machine.price = NanoDollars::from_nano(machine.price.nano() * 2);
    let changed = world.change(|machine| kind_of(machine) == kind, doubled);
    worst.insert("the largest class changes its price", changed);
    world.change(|machine| kind_of(machine) == kind, |_| ());

    let zone = kind.1.clone();
    let lost = world.change(|machine| machine.zone == zone, |machine| machine.state = MachineState::Failed);
    worst.insert("a whole zone fails", lost);
    worst.insert("and comes back", world.change(|machine| machine.zone == zone, |_| ()));

    let (cluster, rows) = biggest_cluster(world);
    worst.insert("the biggest cluster wants nothing", world.demand(&cluster, Vec::new()));
    worst.insert("and all of it again", world.demand(&cluster, rows.clone()));
    worst.insert("a row has a new label key", world.demand(&cluster, with_new_key(rows)));
    Ok(worst)
}

impl World {
    /// Tells the engine of all machines of a kind, changed or as they are.
    fn change(&mut self, concerns: impl Fn(&Machine) -> bool, change: impl Fn(&mut Machine)) -> Worst {
        let (mut number, mut took) = (0, Duration::ZERO);
        for machine in self.machines.iter().filter(|machine| concerns(machine)) {
            let mut machine = Machine::clone(machine);
            change(&mut machine);
            let event = event(&Arc::new(machine), self.now);
            let at = Instant::now();
            self.engine.apply(event);
            took += at.elapsed();
            number += 1;
        }
        self.after(took, number)
    }

    /// A cluster wants other rows.
    fn demand(&mut self, cluster: &ClusterId, rows: Vec<Need>) -> Worst {
        let number = rows.len() as u64;
        let event = Event::Demand { cluster: cluster.clone(), rows, at: START };
        let at = Instant::now();
        self.engine.apply(event);
        self.after(at.elapsed(), number)
    }

    fn after(&mut self, took: Duration, number: u64) -> Worst {
        let at = Instant::now();
        drop(self.engine.decide(self.now));
        Worst { apply_ms: millis(took), decide_ms: millis(at.elapsed()), number }
    }
}

fn kind_of(machine: &Machine) -> Kind {
    (machine.instance_type.clone(), machine.zone.clone(), machine.capacity_type, machine.price)
}

/// The kind of which there are most machines.
fn largest_kind(world: &World) -> Option<Kind> {
    let mut kinds: BTreeMap<Kind, u64> = BTreeMap::new();
    world.machines.iter().for_each(|machine| *kinds.entry(kind_of(machine)).or_default() += 1);
    kinds.into_iter().max_by_key(|(_, number)| *number).map(|(kind, _)| kind)
}

/// The cluster with the most rows, and these.
fn biggest_cluster(world: &World) -> (ClusterId, Vec<Need>) {
    let mut biggest: Option<(ClusterId, Vec<Need>)> = None;
    world.workload.churn(1, &mut |event| {
        if let Event::Demand { cluster, rows, .. } = event
            && biggest.as_ref().is_none_or(|(_, known)| known.len() < rows.len())
        {
            biggest = Some((cluster, rows));
        }
    });
    biggest.unwrap_or_else(|| (ClusterId::trusted("none"), Vec::new()))
}

fn with_new_key(mut rows: Vec<Need>) -> Vec<Need> {
    let new =
        Requirement { key: "example.com/new".into(), operator: Operator::DoesNotExist, values: Vec::new() };
    if let Some(first) = rows.first_mut() {
        let old = &first.profile;
        let requirements = old.requirements().iter().cloned().chain([new]).collect();
        first.profile = Arc::new(Profile::new(
            requirements,
            old.spread().to_vec(),
            old.priority(),
            old.interruption(),
            old.reclamation(),
        ));
    }
    rows
}
