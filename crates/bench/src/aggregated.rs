//! The small demand of the first published runs: 500,000 machines, 50 clusters, one Need each.

use std::sync::Arc;

use bigfleet_engine::Event;
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, MachineState, NanoDollars, Need, Operator, PenaltyBucket,
    Probability, Profile, Requirement, keys,
};

use crate::catalogue::ZONES;
use crate::compare::{Recorded, Timed};
use crate::factory::{Factory, Model, cluster};
use crate::realistic::amounts;
use crate::sizing::{CardinalityError, Tally};
use crate::workload::{Changed, Emit, START, Workload};

const MACHINES: u64 = 500_000;
const CLUSTERS: u64 = 50;
/// Requests of a cluster, each as large as a machine.
const REQUESTS: u64 = 1_000;

/// Types with cores, GiB and devices.
const TYPES: [(&str, i64, i64, i64); 5] = [
    ("a3-highgpu-8g", 208, 1872, 8),
    ("m6i.large", 2, 8, 0),
    ("c6i.4xlarge", 16, 32, 0),
    ("n2-standard-32", 32, 128, 0),
    ("r6i.xlarge", 4, 32, 0),
];

/// The workload, in one of two moments.
#[derive(Debug)]
pub(crate) struct Aggregated {
    name: &'static str,
    bound: bool,
    models: Vec<Model>,
    clusters: Vec<Cluster>,
}

#[derive(Debug)]
struct Cluster {
    id: ClusterId,
    kind: usize,
    need: Need,
    stamps: Attribution,
}

impl Aggregated {
    /// After the ramp, when the published number was taken: 50,000 machines are bound, the others Idle.
    pub(crate) fn at_rest() -> Self {
        Self::new("aggregated", true)
    }

    /// Before it: all machines are Idle, and the first decision binds 50,000.
    pub(crate) fn all_idle() -> Self {
        Self::new("aggregated-ramp", false)
    }

    fn new(name: &'static str, bound: bool) -> Self {
        let model = |zone: &str, (name, cores, memory, devices): (&str, i64, i64, i64)| Model {
            instance_type: name.into(),
            zone: zone.into(),
            capacity_type: CapacityType::BareMetal,
            price: NanoDollars::ZERO,
            interruption: Probability::ZERO,
            capacity: amounts(cores * 1000, memory * 1024, devices),
            labels: [("kubernetes.io/arch".into(), "amd64".into())].into_iter().collect(),
        };
        let models = ZONES.iter().flat_map(|zone| TYPES.map(|kind| model(zone, kind))).collect();
        let one = |number: u64| {
            let kind = usize::try_from(number).unwrap_or(0) % TYPES.len();
            let (name, cores, memory, devices) = TYPES[kind];
            let requirement = Requirement {
                key: keys::INSTANCE_TYPE.into(),
                operator: Operator::In,
                values: vec![name.into()],
            };
            let zero = PenaltyBucket::ZERO;
            let unit = amounts(cores * 1000, memory * 1024, devices);
            let need = Need {
                profile: Arc::new(Profile::new(vec![requirement], Vec::new(), 1000, zero, zero)),
                aggregate: unit.scale(i64::try_from(REQUESTS).unwrap_or(0)),
                min_unit: unit,
                group: Group::NONE,
                arrival: None,
            };
            let stamps = Attribution::of(&need);
            Cluster { id: cluster(number), kind, need, stamps }
        };
        Self { name, bound, models, clusters: (0..CLUSTERS).map(one).collect() }
    }

    fn demand(&self, missing: impl Fn(u64) -> i64, emit: Emit<'_>) {
        for (number, cluster) in (0..).zip(&self.clusters) {
            let mut need = cluster.need.clone();
            need.aggregate = need.aggregate.saturating_sub(&need.min_unit.scale(missing(number)));
            emit(Event::Demand { cluster: cluster.id.clone(), rows: vec![need], at: START });
        }
    }
}

impl Workload for Aggregated {
    fn name(&self) -> &str {
        self.name
    }

    fn fill(&self, emit: Emit<'_>) -> Result<Tally, CardinalityError> {
        let mut factory = Factory::new();
        let mut made = Tally { clusters: CLUSTERS, needs: CLUSTERS, ..Tally::default() };
        let mut of_kind = [0u64; TYPES.len()];
        for number in 0..MACHINES {
            let kind = usize::try_from(number).unwrap_or(0) % TYPES.len();
            let zone = usize::try_from(number).unwrap_or(0) % ZONES.len();
            let model = &self.models[zone * TYPES.len() + kind];
            // The first machines of a kind serve its clusters, 1,000 each.
            let nth = of_kind[kind];
            of_kind[kind] += 1;
            let owners = self.clusters.iter().filter(|cluster| cluster.kind == kind);
            let owner = usize::try_from(nth / REQUESTS).ok().filter(|_| self.bound);
            let owner = owner.and_then(|nth| owners.into_iter().nth(nth));
            let state = if owner.is_some() { MachineState::Configured } else { MachineState::Idle };
            made.configured += u64::from(owner.is_some());
            made.idle += u64::from(owner.is_none());
            emit(factory.make(model, state, owner.map(|cluster| (&cluster.id, &cluster.stamps))));
        }
        self.demand(|_| 0, emit);
        for cluster in &self.clusters {
            emit(Event::Heard(cluster.id.clone()));
        }
        let configured = if self.bound { CLUSTERS * REQUESTS } else { 0 };
        for (what, wanted, found) in
            [("configured machines", configured, made.configured), ("records", MACHINES, made.records())]
        {
            if wanted != found {
                return Err(CardinalityError { profile: self.name, what, wanted, found });
            }
        }
        Ok(made)
    }

    fn churn(&self, round: u64, emit: Emit<'_>) -> Changed {
        // 4 of 50 rows change: 2 lose a pod, 2 get theirs back.
        let lost = |number: u64, round: u64| round > 0 && number % 25 == round % 25;
        self.demand(|number| i64::from(lost(number, round)), emit);
        let changed = (0..CLUSTERS).filter(|n| lost(*n, round) != lost(*n, round.saturating_sub(1)));
        Changed { rows: CLUSTERS, changed: changed.count() as u64 }
    }

    fn recorded(&self) -> Option<Recorded> {
        let number = "48 ms p99 of a cycle, the best of seven runs (54 to 62 ms in the others)";
        self.bound.then_some(Recorded::ms(Timed::Cold, 48.0, number).target(4.0))
    }

    fn most_actions(&self, _: u64) -> Option<u64> {
        Some(if self.bound { 0 } else { CLUSTERS * REQUESTS })
    }
}
