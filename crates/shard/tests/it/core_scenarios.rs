//! The decision scenarios, one cycle a step: rails off, a provider that is instant, operators that deliver.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_shard::control::Config;
use bigfleet_shard::metrics::Metrics;
use bigfleet_shard::step::{FleetState, StepAction, Stepper};
use bigfleet_types::{CapacityType, MachineState, PenaltyBucket, UnixNanos};
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::core_model::{Fault, GPU, Model, Op, bound, cluster, gpu, id, need, need_of, priced, profile};

fn stepper(model: Model) -> Stepper<Model> {
    let metrics = Metrics::register(&mut Registry::default());
    Stepper::new(Config::bare(), model, metrics, UnixNanos(0).after(Duration::from_secs(1000)))
}

fn idle(n: usize) -> Model {
    Model::with((0..n).map(|n| gpu(&format!("gpu-{n}"), MachineState::Idle)))
}

/// Runs against the cycles of a recorded trace.
struct Golden {
    stepper: Stepper<Model>,
    lines: Vec<Value>,
    at: usize,
}

fn state_json(state: &FleetState) -> Value {
    let mut json = serde_json::json!({"total": state.total, "by_state": state.by_state});
    if !state.configured.is_empty() {
        let clusters: BTreeMap<String, usize> =
            state.configured.iter().map(|(cluster, n)| (cluster.to_string(), *n)).collect();
        json["configured_per_cluster"] = serde_json::json!(clusters);
    }
    json
}

fn actions_json(actions: &[StepAction]) -> Value {
    let one = |action: &StepAction| {
        let mut json = serde_json::json!({"kind": action.kind, "machine_id": action.machine.as_str()});
        if let Some(cluster) = &action.cluster {
            json["cluster"] = cluster.as_str().into();
        }
        json
    };
    actions.iter().map(one).collect()
}

impl Golden {
    fn new(trace: &str, model: Model) -> Self {
        let lines = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut golden = Self { stepper: stepper(model), lines, at: 0 };
        golden.expect("scenario_start", None);
        golden
    }

    fn expect(&mut self, kind: &str, actions: Option<&[StepAction]>) {
        let line = &self.lines[self.at];
        assert_eq!((&line["step"], &line["kind"]), (&self.at.into(), &kind.into()));
        if let Some(state) = line.get("state") {
            assert_eq!(*state, state_json(&self.stepper.state()), "state of step {}", self.at);
        }
        if let Some(actions) = actions {
            let expected = line.get("actions").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
            assert_eq!(expected, actions_json(actions), "actions of step {}", self.at);
        }
        self.at += 1;
    }

    fn rollup(&mut self, units: i64) {
        let rows = if units == 0 { Vec::new() } else { vec![need(1_000_000, units)] };
        self.stepper.rollup(&cluster("cluster-train"), rows);
        self.expect("rollup", None);
    }

    fn cycle(&mut self) {
        let actions = self.stepper.cycle();
        self.expect("cycle", Some(&actions));
    }

    fn end(mut self) -> Stepper<Model> {
        self.expect("scenario_end", None);
        assert_eq!(self.at, self.lines.len());
        self.stepper
    }
}

#[test]
fn s01_training_job_topology() {
    let mut golden = Golden::new(include_str!("../fixtures/traces/training-job-topology.jsonl"), idle(64));
    golden.rollup(64);
    golden.cycle();
    assert_eq!(golden.end().control().shortfalls().count(), 0);
}

#[test]
fn s02_capacity_stockout() {
    let mut golden = Golden::new(include_str!("../fixtures/traces/capacity-stockout.jsonl"), idle(32));
    golden.rollup(64);
    golden.cycle();
    golden.cycle();
    let stepper = golden.end();
    let shortfalls: Vec<_> = stepper.control().shortfalls().collect();
    assert_eq!(shortfalls.len(), 1);
    assert_eq!(shortfalls[0].1.deficit.get(GPU), 256);
    assert_eq!(shortfalls[0].1.age, 2);
}

#[test]
fn s04_withdrawal() {
    let mut golden = Golden::new(include_str!("../fixtures/traces/withdrawal.jsonl"), idle(32));
    golden.rollup(32);
    golden.cycle();
    golden.rollup(0);
    golden.cycle();
    golden.end();
}

#[test]
fn s05_provider_configure_failure() {
    let mut model = idle(4);
    model.fault("gpu-0", Op::Configure, Fault::Fail);
    let mut golden = Golden::new(include_str!("../fixtures/traces/provider-configure-failure.jsonl"), model);
    golden.rollup(3);
    golden.cycle();
    golden.cycle();
    let stepper = golden.end();
    assert_eq!(&*stepper.control().machine(&id("gpu-0")).unwrap().last_error, "it broke");
}

#[test]
fn s06_drain_failure_withdrawal() {
    let mut model = idle(8);
    model.fault("gpu-0", Op::Drain, Fault::Fail);
    let mut golden = Golden::new(include_str!("../fixtures/traces/drain-failure-withdrawal.jsonl"), model);
    golden.rollup(8);
    golden.cycle();
    golden.rollup(0);
    golden.cycle();
    let stepper = golden.end();
    assert_eq!(&*stepper.control().machine(&id("gpu-0")).unwrap().last_error, "it broke");
}

fn kinds(actions: &[StepAction]) -> Vec<(&'static str, String)> {
    actions.iter().map(|action| (action.kind, action.machine.to_string())).collect()
}

fn named(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    pairs.iter().map(|(kind, machine)| (*kind, (*machine).to_owned())).collect()
}

#[test]
fn s07_spot_or_on_demand_by_what_an_interruption_costs() {
    let slot = |name: &str, kind, dollars, chance| {
        priced(gpu(name, MachineState::Speculative), kind, dollars, chance)
    };
    let mut stepper = stepper(Model::with([
        slot("spot-0", CapacityType::Spot, 1.0, 0.1),
        slot("spot-1", CapacityType::Spot, 1.0, 0.1),
        slot("od-0", CapacityType::OnDemand, 3.0, 0.0),
        slot("od-1", CapacityType::OnDemand, 3.0, 0.0),
    ]));
    // $1 and $1024.
    stepper.rollup(&cluster("a"), vec![need_of(profile(10, 3, PenaltyBucket::ZERO), 1)]);
    stepper.rollup(&cluster("b"), vec![need_of(profile(10, 13, PenaltyBucket::ZERO), 1)]);
    let actions = stepper.cycle();
    assert_eq!(kinds(&actions), named(&[("Provision", "od-0"), ("Provision", "spot-0")]));
    let on = |name: &str| stepper.control().machine(&id(name)).unwrap().cluster.clone().unwrap();
    assert_eq!((on("spot-0"), on("od-0")), (cluster("a"), cluster("b")));
    assert_eq!(stepper.state().by_state["Configured"], 2);
}

#[test]
fn s08_an_idle_machine_before_a_cheaper_slot() {
    let mut stepper = stepper(Model::with([
        priced(gpu("idle", MachineState::Idle), CapacityType::OnDemand, 5.0, 0.0),
        priced(gpu("slot", MachineState::Speculative), CapacityType::OnDemand, 1.0, 0.0),
    ]));
    stepper.rollup(&cluster("a"), vec![need(10, 1)]);
    assert_eq!(kinds(&stepper.cycle()), named(&[("Bootstrap", "idle")]));
}

#[test]
fn s09_idle_release() {
    let mut stepper = stepper(Model::with([
        priced(gpu("od", MachineState::Idle), CapacityType::OnDemand, 5.0, 0.0),
        priced(gpu("spot", MachineState::Idle), CapacityType::Spot, 1.0, 0.1),
        priced(gpu("metal", MachineState::Idle), CapacityType::BareMetal, 0.0, 0.0),
        priced(gpu("reserved", MachineState::Idle), CapacityType::Reserved, 1.0, 0.0),
    ]));
    let mut seen = Vec::new();
    for _ in 0..70 {
        let at = stepper.now();
        for action in stepper.cycle() {
            seen.push((action.kind, action.machine.to_string(), at.since(UnixNanos(0)).as_secs() - 1000));
        }
    }
    let expected = [("Delete", "spot".to_owned(), 60), ("Delete", "od".to_owned(), 600)];
    assert_eq!(seen, expected);
    assert_eq!(stepper.state().by_state, BTreeMap::from([("Idle", 2), ("Speculative", 2)]));
}

#[test]
fn s10_a_machine_that_a_need_wants_is_not_released() {
    let machine = || priced(gpu("spot", MachineState::Idle), CapacityType::Spot, 1.0, 0.1);
    for wanted in [false, true] {
        let mut stepper = stepper(Model::with([machine()]));
        assert_eq!(stepper.cycle(), []);
        stepper.wait(Duration::from_secs(60));
        if wanted {
            stepper.rollup(&cluster("a"), vec![need(10, 1)]);
        }
        let expected = if wanted { "Bootstrap" } else { "Delete" };
        assert_eq!(kinds(&stepper.cycle()), named(&[(expected, "spot")]));
    }
}

#[test]
fn s18_nothing_is_reclaimed_before_the_cluster_speaks() {
    let wanted = need(10, 6);
    let machines = (0..10).map(|n| bound(&format!("gpu-{n}"), MachineState::Configured, "a", &wanted));
    let mut stepper = stepper(Model::with(machines));
    stepper.connect(&cluster("a"));
    for _ in 0..20 {
        assert_eq!(stepper.cycle(), []);
    }
    stepper.rollup(&cluster("a"), vec![wanted]);
    let actions = stepper.cycle();
    assert!(actions.iter().all(|action| action.kind == "Reclaim"));
    assert_eq!(actions.len(), 4, "only what the demand leaves over");
    assert_eq!(stepper.state().configured[&cluster("a")], 6);
}
