//! Short words for machines, Needs and outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Facts, PreemptedFor, Purpose};
use bigfleet_oracle::{Outcome, Verdict, World};
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, Machine, MachineId, MachineState, NanoDollars, Need,
    NeedKey, Operator, PenaltyBucket, Probability, Profile, Quantity, Requirement, Resources, Rounding,
    SpreadTerm, StampedPenalty, UnixNanos, WhenUnsatisfiable, keys,
};

use crate::decide;

pub(crate) const RACK: &str = "rack";
pub(crate) const TYPE: &str = keys::INSTANCE_TYPE;
pub(crate) const NOW: i64 = 1_700_000_000_000_000_000;

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::trusted(name)
}

pub(crate) fn amounts(pairs: &[(&str, &str)], rounding: Rounding) -> Resources {
    Resources::parse(pairs.iter().copied(), rounding).unwrap()
}

/// A machine and its facts.
#[derive(Clone)]
pub(crate) struct M(pub(crate) Machine, pub(crate) Facts);

fn gpu(id: &str, state: MachineState) -> M {
    let mut machine = Machine::new(MachineId::trusted(id), state);
    machine.instance_type = "a3".into();
    machine.resources = amounts(&[("gpu", "8")], Rounding::Down);
    M(machine, Facts::default())
}

pub(crate) fn idle(id: &str) -> M {
    gpu(id, MachineState::Idle)
}

pub(crate) fn speculative(id: &str) -> M {
    gpu(id, MachineState::Speculative)
}

pub(crate) fn creating(id: &str) -> M {
    gpu(id, MachineState::Creating)
}

pub(crate) fn configured(id: &str, of: &str) -> M {
    let mut m = gpu(id, MachineState::Configured);
    m.0.cluster = Some(cluster(of));
    m
}

pub(crate) fn configuring(id: &str, of: &str) -> M {
    let mut m = configured(id, of);
    m.0.state = MachineState::Configuring;
    m
}

pub(crate) fn draining(id: &str, of: &str) -> M {
    let mut m = configured(id, of);
    m.0.state = MachineState::Draining;
    m
}

/// `n` machines named `{prefix}0`, `{prefix}1`, ...
pub(crate) fn many(n: usize, prefix: &str, make: impl Fn(&str) -> M) -> Vec<M> {
    (0..n).map(|i| make(&format!("{prefix}{i}"))).collect()
}

impl M {
    pub(crate) fn cap(mut self, pairs: &[(&str, &str)]) -> Self {
        self.0.resources = amounts(pairs, Rounding::Down);
        self
    }
    pub(crate) fn kind(mut self, name: &str) -> Self {
        self.0.instance_type = name.into();
        self
    }
    pub(crate) fn zone(mut self, zone: &str) -> Self {
        self.0.zone = zone.into();
        self
    }
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.0.labels.insert(key.into(), value.into());
        self
    }
    pub(crate) fn rack(self, value: &str) -> Self {
        self.label(RACK, value)
    }
    pub(crate) fn price(mut self, dollars: f64) -> Self {
        self.0.price = NanoDollars::from_dollars(dollars).unwrap();
        self
    }
    pub(crate) fn payment(mut self, capacity_type: CapacityType) -> Self {
        self.0.capacity_type = capacity_type;
        self
    }
    pub(crate) fn probability(mut self, p: f64) -> Self {
        self.0.interruption_probability = Probability::new(p).unwrap();
        self
    }
    pub(crate) fn stamped(mut self, need: &N) -> Self {
        self.0.attribution = Attribution::of(&need.need());
        self
    }
    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.0.attribution.priority = Some(priority);
        self
    }
    pub(crate) fn penalties(mut self, interruption: f64, reclamation: f64) -> Self {
        let stamp = |dollars: f64| match NanoDollars::from_dollars(dollars) {
            Some(finite) => StampedPenalty::Finite(finite),
            None => StampedPenalty::Infinite,
        };
        self.0.attribution.interruption = Some(stamp(interruption));
        self.0.attribution.reclamation = Some(stamp(reclamation));
        self
    }
    pub(crate) fn created_for(mut self, key: NeedKey) -> Self {
        self.1.created_for = Some(key);
        self
    }
    pub(crate) fn preempted_for(mut self, need: NeedKey, priority: i32) -> Self {
        self.1.preempted_for = Purpose::Preemption(PreemptedFor { need, priority });
        self
    }
    pub(crate) fn idle_for(mut self, seconds: i64) -> Self {
        self.1.idle_since = Some(UnixNanos(NOW - seconds * 1_000_000_000));
        self
    }
    pub(crate) fn excess_for(mut self, seconds: i64) -> Self {
        self.1.excess_since = Some(UnixNanos(NOW - seconds * 1_000_000_000));
        self
    }
}

/// A Need to be.
#[derive(Clone)]
pub(crate) struct N {
    pub(crate) cluster: ClusterId,
    requirements: Vec<Requirement>,
    spread: Vec<SpreadTerm>,
    priority: i32,
    interruption: PenaltyBucket,
    reclamation: PenaltyBucket,
    aggregate: Resources,
    min_unit: Resources,
    group: String,
    arrival: i64,
}

/// Any machine will do; nothing asked for yet.
pub(crate) fn any(of: &str, priority: i32) -> N {
    N {
        cluster: cluster(of),
        requirements: Vec::new(),
        spread: Vec::new(),
        priority,
        interruption: PenaltyBucket::ZERO,
        reclamation: PenaltyBucket::ZERO,
        aggregate: Resources::EMPTY,
        min_unit: Resources::EMPTY,
        group: String::new(),
        arrival: 1,
    }
}

/// `k` machines of type a3 with 8 gpu.
pub(crate) fn need(of: &str, priority: i32, k: i64) -> N {
    let mut n = any(of, priority).requires(TYPE, Operator::In, &["a3"]);
    n.aggregate = Resources::from_amounts([(bigfleet_types::ResourceName::new("gpu"), 8 * k)]);
    n.min_unit = amounts(&[("gpu", "8")], Rounding::Up);
    n
}

/// `k` such machines in one domain.
pub(crate) fn gang(of: &str, priority: i32, k: i64, key: &str, group: &str) -> N {
    need(of, priority, k).requires(key, Operator::Same, &[]).group(group)
}

impl N {
    pub(crate) fn requires(mut self, key: &str, operator: Operator, values: &[&str]) -> Self {
        let values = values.iter().map(|value| Arc::from(*value)).collect();
        self.requirements.push(Requirement { key: key.into(), operator, values });
        self
    }
    pub(crate) fn spread(mut self, key: &str, when_unsatisfiable: WhenUnsatisfiable) -> Self {
        self.spread.push(SpreadTerm { topology_key: key.into(), max_skew: 1, when_unsatisfiable });
        self
    }
    pub(crate) fn wants(mut self, aggregate: &[(&str, &str)], min_unit: &[(&str, &str)]) -> Self {
        self.aggregate = amounts(aggregate, Rounding::Up);
        self.min_unit = amounts(min_unit, Rounding::Up);
        self
    }
    pub(crate) fn group(mut self, group: &str) -> Self {
        self.group = group.to_owned();
        self
    }
    pub(crate) fn arrival(mut self, arrival: i64) -> Self {
        self.arrival = arrival;
        self
    }
    /// The interruption penalty in dollars.
    pub(crate) fn interruption(mut self, dollars: &str) -> Self {
        self.interruption = PenaltyBucket::from_dollars(Quantity::parse(dollars).unwrap());
        self
    }
    /// The reclamation penalty in dollars.
    pub(crate) fn reclamation(mut self, dollars: &str) -> Self {
        self.reclamation = PenaltyBucket::from_dollars(Quantity::parse(dollars).unwrap());
        self
    }
    pub(crate) fn pinned(mut self) -> Self {
        self.interruption = PenaltyBucket::PINNED;
        self
    }
    pub(crate) fn need(&self) -> Need {
        Need {
            profile: Arc::new(Profile::new(
                self.requirements.clone(),
                self.spread.clone(),
                self.priority,
                self.interruption,
                self.reclamation,
            )),
            aggregate: self.aggregate.clone(),
            min_unit: self.min_unit.clone(),
            group: Group::new(&self.group),
            arrival: Some(UnixNanos(self.arrival)),
        }
    }
    pub(crate) fn key(&self) -> NeedKey {
        self.need().key(&self.cluster)
    }
}

/// A world in which every cluster with a Need has spoken.
pub(crate) fn world(machines: impl IntoIterator<Item = M>, needs: &[N]) -> World {
    let mut demand: BTreeMap<ClusterId, Vec<Need>> = BTreeMap::new();
    for need in needs {
        demand.entry(need.cluster.clone()).or_default().push(need.need());
    }
    World {
        machines: machines.into_iter().map(|M(machine, facts)| (machine, facts)).collect(),
        heard: demand.keys().cloned().collect(),
        demand,
        now: UnixNanos(NOW),
        ..World::default()
    }
}

/// The outcome, after a look whether the order of the input matters.
pub(crate) fn run(world: &World) -> Outcome {
    let outcome = decide(world);
    let mut turned = world.clone();
    turned.machines.reverse();
    turned.demand.values_mut().for_each(|rows| rows.reverse());
    assert_eq!(outcome, decide(&turned), "the order of the input matters");
    outcome
}

pub(crate) fn outcome(machines: impl IntoIterator<Item = M>, needs: &[N]) -> Outcome {
    run(&world(machines, needs))
}

/// `Kind machine` of every action in emission order.
pub(crate) fn acts(outcome: &Outcome) -> Vec<String> {
    outcome.actions.iter().map(|action| format!("{} {}", action.kind, action.machine)).collect()
}

/// How many actions of a kind there are.
pub(crate) fn count(outcome: &Outcome, kind: &str) -> usize {
    outcome.actions.iter().filter(|action| action.kind.to_string() == kind).count()
}

pub(crate) fn claimed(outcome: &Outcome) -> Vec<&str> {
    outcome.claimed.iter().map(MachineId::as_str).collect()
}

/// The verdict of a Need that was not folded.
pub(crate) fn verdict<'o>(outcome: &'o Outcome, need: &N) -> &'o Verdict {
    outcome.verdicts.iter().find(|verdict| verdict.key == need.key()).unwrap()
}

/// `name quantity, ...` of what a Need lacks after Phase 1; `nothing` when satisfied.
pub(crate) fn residual(outcome: &Outcome, need: &N) -> String {
    verdict(outcome, need).residual.to_string()
}

pub(crate) fn domain(outcome: &Outcome, need: &N) -> Option<String> {
    verdict(outcome, need).same.as_ref().unwrap().domain.as_deref().map(str::to_owned)
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
