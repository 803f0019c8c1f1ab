//! C14 and C15: machines that are paid for by the hour.

use std::collections::BTreeMap;

use bigfleet_sim::closed_loop::fleet::Pool;
use bigfleet_sim::closed_loop::history::{churn, count};
use bigfleet_sim::closed_loop::{ClosedLoop, Cluster, Knobs, Workload};
use bigfleet_types::{CapacityType, MachineId, MachineState};

use crate::c_golden::golden;

const POD: &[(&str, &str)] = &[("cpu", "8")];

/// In which cycles each machine was in an action of a kind.
fn times(world: &ClosedLoop, kind: &str) -> BTreeMap<MachineId, Vec<u32>> {
    let mut times: BTreeMap<MachineId, Vec<u32>> = BTreeMap::new();
    for cycle in &world.history().0 {
        for action in cycle.actions.iter().filter(|action| action.kind == kind) {
            times.entry(action.machine.clone()).or_default().push(cycle.number);
        }
    }
    times
}

#[test]
fn c14_idle_release() {
    for dwell in [0, 2] {
        // Machines that nobody ever wants are released once, when their hold is over.
        for (capacity, hold) in [(CapacityType::OnDemand, 60), (CapacityType::Spot, 6)] {
            let mut pool = Pool::holding(&Workload::new("any", "c7", POD, 0, 1), 1).priced(capacity, 1000, 5);
            pool.idle(5);
            let mut world = ClosedLoop::new(Knobs::default().dwelling(dwell), pool.machines(), []);
            world.idle(200).unwrap();
            let deletes = times(&world, "Delete");
            assert_eq!(deletes.len(), 5);
            assert!(deletes.values().all(|at| at[..] == [hold]), "{deletes:?}");
            assert_eq!(churn(&world.history().0), 5);
        }
    }
    // A square wave of ten cycles, against a hold of 60 and of 6.
    for dwell in [0, 1] {
        for (capacity, hold, outlasts) in [(CapacityType::OnDemand, 60, true), (CapacityType::Spot, 6, false)]
        {
            let wave = Workload::new("wave", "c7", POD, 10, 10);
            let mut pool = Pool::holding(&wave, 1).priced(capacity, 1000, 5);
            pool.speculative(30);
            let cluster = Cluster::new("cluster-00", [wave]).unwrap();
            let mut world = ClosedLoop::new(Knobs::default().dwelling(dwell), pool.machines(), [cluster]);
            let waves = 10;
            world
                .run(20 * waves + 100, |world, cycle| {
                    let high = cycle <= 20 * waves && (cycle - 1) % 20 < 10;
                    world.cluster_mut("cluster-00").unwrap().resize("wave", if high { 10 } else { 0 });
                })
                .unwrap();
            let all = &world.history().0;
            let creates = times(&world, "Provision");
            for at in creates.values() {
                assert!(
                    at.windows(2).all(|pair| pair[1] - pair[0] >= hold),
                    "a machine was bought at {at:?}"
                );
            }
            let (bought, released) = (count(all, "Provision"), count(all, "Delete"));
            assert_eq!(bought, released, "in the end all have been released");
            let expected = if outlasts { 10 } else { 10 * usize::try_from(waves).unwrap() };
            assert_eq!(bought, expected, "{capacity:?}, dwell {dwell}");
            assert_eq!(churn(world.history().last(30)), 0);
            if dwell == 1 && !outlasts {
                golden("c14-spot-wave", &world);
            }
        }
    }
}

#[test]
fn c15_cost_routing() {
    for dwell in [0, 2] {
        let workload =
            |name: &str, penalty: &str| Workload::new(name, "c7", POD, 100, 20).penalties(penalty, "0");
        let (tolerant, sensitive) = (workload("tolerant", "1"), workload("sensitive", "1024"));
        let pool = |name: &str, capacity, millis, percent, slots| {
            let mut pool = Pool::holding(&tolerant, 1).named(name).priced(capacity, millis, percent);
            pool.speculative(slots);
            pool.machines()
        };
        let spot = pool("spot", CapacityType::Spot, 1000, 10, 80);
        let on_demand = pool("on-demand", CapacityType::OnDemand, 3000, 0, 80);
        let cluster = Cluster::new("cluster-00", [tolerant, sensitive]).unwrap();
        let mut world =
            ClosedLoop::new(Knobs::default().dwelling(dwell), spot.into_iter().chain(on_demand), [cluster]);
        let key = |world: &ClosedLoop, name: &str| {
            world.clusters().next().unwrap().key_of(name).unwrap().fingerprint.to_string()
        };
        let keys = ["tolerant", "sensitive"].map(|name| key(&world, name));
        // By workload: machine-cycles on spot, and all.
        let mut served = [(0, 0); 2];
        let mut lost = 0;
        world
            .run(200, |world, cycle| {
                let configured = |m: &&bigfleet_types::Machine| m.state == MachineState::Configured;
                for machine in world.machines().filter(configured) {
                    let stamp = machine.attribution.fingerprint.as_deref();
                    let number = keys.iter().position(|key| Some(key.as_str()) == stamp).unwrap();
                    served[number].0 += u32::from(machine.capacity_type == CapacityType::Spot);
                    served[number].1 += 1;
                }
                if cycle.is_multiple_of(5) && cycle <= 150 {
                    let spot = |m: &&bigfleet_types::Machine| m.capacity_type == CapacityType::Spot;
                    let id = world.machines().filter(configured).find(spot).unwrap().id.clone();
                    world.provider().lose(&id);
                    lost += 1;
                }
            })
            .unwrap();
        let [tolerant, sensitive] = served;
        assert!(tolerant.1 > 3000 && tolerant.0 * 100 >= tolerant.1 * 95, "{served:?}");
        assert!(sensitive.1 > 3000 && sensitive.0 == 0, "{served:?}");
        let all = &world.history().0;
        assert_eq!(count(all, "Provision"), 40 + lost, "one for each that was lost");
        assert!(all.iter().all(|cycle| cycle.shortfalls.is_empty()));
        assert_eq!(world.clusters().next().unwrap().pods(), (40, 40), "all that is wanted is covered");
        assert_eq!(churn(world.history().last(30)), 0);
    }
}
