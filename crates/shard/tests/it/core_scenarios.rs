//! The decision scenarios that need no trace, one cycle a step.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_shard::step::StepAction;
use bigfleet_types::{CapacityType, MachineState, PenaltyBucket, UnixNanos};

use crate::core_model::{Model, bound, cluster, gpu, id, need, need_of, priced, profile};
use crate::golden::stepper;

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
