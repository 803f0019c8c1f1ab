//! Short ways to write machines, Needs and expectations down.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{Action, Decisions, Engine, Event, Facts, Policy, Verdict};
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, Machine, MachineId, MachineState, NanoDollars, Need,
    NeedKey, Operator, PenaltyBucket, Probability, Profile, Requirement, Resources, Rounding, SpreadTerm,
    StampedPenalty, UnixNanos, WhenUnsatisfiable, keys,
};

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// The time at which random worlds are decided.
pub(crate) const NOW: UnixNanos = UnixNanos(0);

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::trusted(name)
}

pub(crate) fn secs(seconds: i64) -> UnixNanos {
    UnixNanos(seconds * 1_000_000_000)
}

/// `"cpu=4 memory=16Gi"`.
pub(crate) fn vector(text: &str) -> Resources {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    Resources::parse(pairs, Rounding::Up).unwrap()
}

/// A machine under construction.
#[derive(Debug, Clone)]
pub(crate) struct M {
    pub(crate) machine: Machine,
    pub(crate) facts: Facts,
}

/// A machine with nothing but an id.
pub(crate) fn machine(id: &str) -> M {
    let machine = Machine::new(MachineId::trusted(id), MachineState::Idle);
    M { machine, facts: Facts::default() }
}

/// The GPU machine of the examples: type `a3`, 8 GPUs, price 0.
pub(crate) fn gpu(id: &str) -> M {
    machine(id).kind("a3").has("nvidia.com/gpu=8")
}

/// `count` GPU machines `prefix0`, `prefix1`, ... each finished by `finish`.
pub(crate) fn gpus(count: usize, prefix: &str, finish: impl Fn(M) -> M) -> Vec<M> {
    (0..count).map(|i| finish(gpu(&format!("{prefix}{i:02}")))).collect()
}

impl M {
    pub(crate) fn state(mut self, state: MachineState) -> Self {
        self.machine.state = state;
        self
    }

    pub(crate) fn speculative(self) -> Self {
        self.state(MachineState::Speculative)
    }

    pub(crate) fn creating(self) -> Self {
        self.state(MachineState::Creating)
    }

    pub(crate) fn creating_for(mut self, key: NeedKey) -> Self {
        self.facts.created_for = Some(key);
        self.creating()
    }

    pub(crate) fn configured(mut self, name: &str) -> Self {
        self.machine.cluster = Some(cluster(name));
        self.state(MachineState::Configured)
    }

    pub(crate) fn configuring(mut self, name: &str) -> Self {
        self.machine.cluster = Some(cluster(name));
        self.state(MachineState::Configuring)
    }

    pub(crate) fn kind(mut self, instance_type: &str) -> Self {
        self.machine.instance_type = instance_type.into();
        self
    }

    pub(crate) fn zone(mut self, zone: &str) -> Self {
        self.machine.zone = zone.into();
        self
    }

    pub(crate) fn has(mut self, resources: &str) -> Self {
        self.machine.resources = vector(resources);
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.machine.labels.insert(key.into(), value.into());
        self
    }

    pub(crate) fn price(mut self, dollars: f64) -> Self {
        self.machine.price = NanoDollars::from_dollars(dollars).unwrap();
        self
    }

    pub(crate) fn paid(mut self, capacity_type: CapacityType) -> Self {
        self.machine.capacity_type = capacity_type;
        self
    }

    pub(crate) fn interrupted(mut self, probability: f64) -> Self {
        self.machine.interruption_probability = Probability::new(probability).unwrap();
        self
    }

    /// Stamped for a Need.
    pub(crate) fn of(mut self, need: &Need) -> Self {
        self.machine.attribution = Attribution::of(need);
        self
    }

    /// Stamped with a reclamation penalty only.
    pub(crate) fn worth(mut self, dollars: f64) -> Self {
        let penalty = StampedPenalty::Finite(NanoDollars::from_dollars(dollars).unwrap());
        self.machine.attribution.reclamation = Some(penalty);
        self
    }

    pub(crate) fn idle_since(mut self, at: UnixNanos) -> Self {
        self.facts.idle_since = Some(at);
        self
    }

    pub(crate) fn facts(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(&mut self.facts);
        self
    }

    pub(crate) fn event(&self) -> Event {
        Event::Machine { machine: Arc::new(self.machine.clone()), facts: self.facts.clone() }
    }
}

/// A Need under construction.
#[derive(Debug, Clone)]
pub(crate) struct N {
    requirements: Vec<Requirement>,
    spread: Vec<SpreadTerm>,
    priority: i32,
    interruption: i32,
    reclamation: i32,
    aggregate: Resources,
    min_unit: Resources,
    group: String,
    arrival: Option<UnixNanos>,
}

/// A Need of that priority for these amounts, with no floor.
pub(crate) fn need(priority: i32, aggregate: &str) -> N {
    N {
        requirements: Vec::new(),
        spread: Vec::new(),
        priority,
        interruption: 1,
        reclamation: 1,
        aggregate: vector(aggregate),
        min_unit: Resources::EMPTY,
        group: String::new(),
        arrival: None,
    }
}

/// `k` GPU machines' worth, as in the examples: floor of one machine, type `a3`.
pub(crate) fn gpu_need(priority: i32, k: i64) -> N {
    let unit = vector("nvidia.com/gpu=8");
    let mut need =
        need(priority, "").floor("nvidia.com/gpu=8").requires(keys::INSTANCE_TYPE, Operator::In, &["a3"]);
    need.aggregate = unit.scale(k);
    need
}

impl N {
    pub(crate) fn floor(mut self, min_unit: &str) -> Self {
        self.min_unit = vector(min_unit);
        self
    }

    /// Without `Same` and spread.
    pub(crate) fn plain(mut self) -> Self {
        self.requirements.retain(|requirement| requirement.operator != Operator::Same);
        self.spread.clear();
        self
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    pub(crate) fn aggregate(mut self, aggregate: Resources) -> Self {
        self.aggregate = aggregate;
        self
    }

    pub(crate) fn requires(mut self, key: &str, operator: Operator, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).into()).collect();
        self.requirements.push(Requirement { key: key.into(), operator, values });
        self
    }

    pub(crate) fn spread(mut self, key: &str, when_unsatisfiable: WhenUnsatisfiable) -> Self {
        self.spread.push(SpreadTerm { topology_key: key.into(), max_skew: 1, when_unsatisfiable });
        self
    }

    pub(crate) fn buckets(mut self, interruption: i32, reclamation: i32) -> Self {
        (self.interruption, self.reclamation) = (interruption, reclamation);
        self
    }

    pub(crate) fn group(mut self, group: &str) -> Self {
        self.group = group.into();
        self
    }

    pub(crate) fn arrival(mut self, at: UnixNanos) -> Self {
        self.arrival = Some(at);
        self
    }

    pub(crate) fn build(&self) -> Need {
        let bucket = |number| PenaltyBucket::from_wire(number).unwrap();
        Need {
            profile: Arc::new(Profile::new(
                self.requirements.clone(),
                self.spread.clone(),
                self.priority,
                bucket(self.interruption),
                bucket(self.reclamation),
            )),
            aggregate: self.aggregate.clone(),
            min_unit: self.min_unit.clone(),
            group: Group::new(&self.group),
            arrival: self.arrival,
        }
    }

    pub(crate) fn key(&self, name: &str) -> NeedKey {
        self.build().key(&cluster(name))
    }
}

pub(crate) fn demand(name: &str, needs: &[N]) -> Event {
    let rows = needs.iter().map(N::build).collect();
    Event::Demand { cluster: cluster(name), rows, at: secs(1) }
}

/// An engine that knows these machines and heard this demand of these clusters.
pub(crate) fn engine(policy: Policy, machines: &[M], demands: &[(&str, &[N])]) -> Engine {
    let mut engine = Engine::new(policy);
    machines.iter().for_each(|machine| engine.apply(machine.event()));
    for (name, needs) in demands {
        engine.apply(demand(name, needs));
        engine.apply(Event::Heard(cluster(name)));
    }
    engine
}

/// Decisions and the machines that some Need claims in them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    decisions: Decisions,
    pub(crate) claimed: Vec<MachineId>,
}

impl std::ops::Deref for Decided {
    type Target = Decisions;

    fn deref(&self) -> &Decisions {
        &self.decisions
    }
}

/// One pass of an engine.
pub(crate) fn pass(engine: &mut Engine, now: UnixNanos) -> Decided {
    let decisions = engine.decide(now);
    Decided { decisions, claimed: engine.claimed().collect() }
}

/// One pass at time 0 with the default policy.
pub(crate) fn decide(machines: &[M], demands: &[(&str, &[N])]) -> Decided {
    pass(&mut engine(Policy::default(), machines, demands), secs(0))
}

/// `"Bootstrap m0 a"`, in emission order.
pub(crate) fn lines(decisions: &Decisions) -> Vec<String> {
    decisions.actions.iter().map(line).collect()
}

fn line(action: &Action) -> String {
    let cluster = action.cluster.as_ref().map_or("-", |cluster| cluster.as_str());
    format!("{} {} {cluster}", action.kind, action.machine)
}

/// How many actions of a kind (by name) there are.
pub(crate) fn count(decisions: &Decisions, kind: &str) -> usize {
    decisions.actions.iter().filter(|action| action.kind.name() == kind).count()
}

/// The verdict on a Need.
pub(crate) fn verdict<'a>(decisions: &'a Decisions, name: &str, need: &N) -> &'a Verdict {
    let key = need.key(name);
    decisions.verdicts.iter().find(|verdict| verdict.key == key).unwrap()
}

pub(crate) fn claimed(decided: &Decided) -> Vec<&str> {
    decided.claimed.iter().map(MachineId::as_str).collect()
}

/// A policy that lets excess last.
pub(crate) fn reclaim_after(seconds: u64) -> Policy {
    Policy { reclaim_after: Duration::from_secs(seconds), ..Policy::default() }
}
