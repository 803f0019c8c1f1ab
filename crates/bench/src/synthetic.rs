//! Workloads that are a table of machines and a table of rows: the published benchmarks.

use std::sync::Arc;

use bigfleet_engine::Event;
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, MachineState, NanoDollars, Need, Operator, Probability,
    Profile, Requirement, Resources, keys,
};

use crate::catalogue::{RACK_KEY, penalty};
use crate::compare::Recorded;
use crate::factory::{Factory, Model};
use crate::sizing::{CardinalityError, Tally};
use crate::workload::{Changed, Emit, START, Workload};

/// Puts machines into an engine.
type Fleet = Box<dyn Fn(&mut Yard<'_>)>;

/// A published benchmark.
pub(crate) struct Synthetic {
    pub(crate) name: String,
    pub(crate) recorded: Recorded,
    /// How many machines it must have.
    pub(crate) records: u64,
    pub(crate) fleet: Fleet,
    pub(crate) demand: Vec<(ClusterId, Vec<Need>)>,
}

/// Where machines go.
pub(crate) struct Yard<'e> {
    factory: Factory,
    emit: Emit<'e>,
    made: Tally,
}

impl Yard<'_> {
    pub(crate) fn put(&mut self, model: &Model, state: MachineState) {
        match state {
            MachineState::Idle => self.made.idle += 1,
            _ => self.made.speculative += 1,
        }
        (self.emit)(self.factory.make(model, state, None));
    }

    pub(crate) fn bind(&mut self, model: &Model, cluster: &ClusterId, stamps: &Attribution) {
        self.made.configured += 1;
        (self.emit)(self.factory.make(model, MachineState::Configured, Some((cluster, stamps))));
    }
}

impl Workload for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn fill(&self, emit: Emit<'_>) -> Result<Tally, CardinalityError> {
        let mut yard = Yard { factory: Factory::new(), emit: &mut *emit, made: Tally::default() };
        (self.fleet)(&mut yard);
        let mut made = yard.made;
        for (cluster, rows) in &self.demand {
            made.clusters += 1;
            made.needs += rows.len() as u64;
            made.gangs[0] += rows.iter().filter(|row| row.profile.same().is_some()).count() as u64;
            emit(Event::Demand { cluster: cluster.clone(), rows: rows.clone(), at: START });
            emit(Event::Heard(cluster.clone()));
        }
        if made.records() != self.records {
            return Err(CardinalityError {
                profile: "a published benchmark",
                what: "records",
                wanted: self.records,
                found: made.records(),
            });
        }
        Ok(made)
    }

    fn churn(&self, round: u64, emit: Emit<'_>) -> Changed {
        // One row in 28 lacks a pod, the same number get theirs back: 7 in 100 change.
        const PERIOD: u64 = 28;
        let lost = |row: u64, round: u64| round > 0 && row % PERIOD == round % PERIOD;
        let mut changed = Changed::default();
        for (cluster, rows) in &self.demand {
            let mut sent = Vec::with_capacity(rows.len());
            for row in rows {
                let (now, before) = (lost(changed.rows, round), lost(changed.rows, round.saturating_sub(1)));
                changed.rows += 1;
                changed.changed += u64::from(now != before);
                let mut row = row.clone();
                if now {
                    row.aggregate = row.aggregate.saturating_sub(&row.min_unit);
                }
                // A row of nothing is not sent.
                if !row.aggregate.is_empty() {
                    sent.push(row);
                }
            }
            emit(Event::Demand { cluster: cluster.clone(), rows: sent, at: START });
        }
        changed
    }

    fn most_actions(&self, _: u64) -> Option<u64> {
        None
    }

    fn recorded(&self) -> Option<Recorded> {
        Some(self.recorded)
    }
}

/// The zones of published benchmarks.
pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];

/// An owned machine of a type; its rack, if it stands in one.
pub(crate) fn model(instance_type: &str, zone: &str, rack: Option<&str>, capacity: Resources) -> Model {
    let labels = rack.map(|rack| (Arc::from(RACK_KEY), Arc::from(rack)));
    Model {
        instance_type: instance_type.into(),
        zone: zone.into(),
        capacity_type: CapacityType::BareMetal,
        price: NanoDollars::ZERO,
        interruption: Probability::ZERO,
        capacity,
        labels: labels.into_iter().collect(),
    }
}

/// The same with a price in dollars, on demand.
pub(crate) fn priced(mut model: Model, dollars: i64) -> Model {
    model.capacity_type = CapacityType::OnDemand;
    model.price = NanoDollars::from_nano(dollars * 1_000_000_000);
    model
}

/// A profile for one type, perhaps for gangs that share a rack, with both penalties alike.
pub(crate) fn profile(instance_type: &str, same_rack: bool, priority: i32, dollars: i64) -> Arc<Profile> {
    let mut requirements = vec![Requirement {
        key: keys::INSTANCE_TYPE.into(),
        operator: Operator::In,
        values: vec![instance_type.into()],
    }];
    if same_rack {
        requirements.push(Requirement { key: RACK_KEY.into(), operator: Operator::Same, values: Vec::new() });
    }
    let penalty = penalty(dollars);
    Arc::new(Profile::new(requirements, Vec::new(), priority, penalty, penalty))
}

/// A row of so many pods.
pub(crate) fn row(profile: &Arc<Profile>, unit: &Resources, pods: i64, group: &str) -> Need {
    Need {
        profile: profile.clone(),
        aggregate: unit.scale(pods),
        min_unit: unit.clone(),
        group: Group::new(group),
        arrival: None,
    }
}
