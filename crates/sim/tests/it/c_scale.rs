//! C8: twenty clusters with as many gangs as a fleet of five thousand machines has.

use bigfleet_sim::closed_loop::fleet::Pool;
use bigfleet_sim::closed_loop::{ClosedLoop, Cluster, Knobs, Through, Workload};

use crate::c_base::rests;

fn plain(name: &str, kind: &str, cpu: &str, memory: &str, priority: i32, pods: usize) -> Workload {
    Workload::new(name, kind, &[("cpu", cpu), ("memory", memory)], priority, pods).penalties("32", "64")
}

fn cache(n: usize) -> Workload {
    let request = [("cpu", "4"), ("memory", "32Gi")];
    Workload::new(&format!("cache-{n:02}"), "r6i", &request, 5000, 4).penalties("1024", "8192").gang()
}

fn gpus(n: usize) -> Workload {
    let request = [("cpu", "64"), ("nvidia.com/gpu", "8")];
    Workload::new(&format!("gpu-{n:02}"), "p5", &request, 8000, 5).penalties("8192", "65536").gang()
}

#[test]
fn c08_cardinality_of_5k() {
    let clusters = crate::c_knob("BIGFLEET_SIM_CLUSTERS", 20);
    let cycles = crate::c_knob("BIGFLEET_SIM_CYCLES", 60);
    let tiny = plain("tiny", "m6i.large", "400m", "500Mi", 100, 17_500);
    let service = plain("service", "m6i.xlarge", "2200m", "8500Mi", 1000, 3000);
    let mut pools = [
        Pool::holding(&tiny, 100),
        Pool::holding(&service, 100),
        Pool::holding(&cache(0), 10).racks_of(8),
        Pool::holding(&gpus(0), 1).racks_of(10),
    ];
    let mut world = Vec::new();
    for number in 0..clusters {
        let name = format!("cluster-{number:02}");
        let first = [&tiny, &service, &cache(0), &gpus(0)];
        for ((pool, workload), machines) in pools.iter_mut().zip(first).zip([175, 30, 30, 15]) {
            pool.serving(&name, workload, machines);
        }
        let workloads = [tiny.clone(), service.clone()];
        let gangs = (0..95).map(cache).chain((0..32).map(gpus));
        world.push(Cluster::new(&name, workloads.into_iter().chain(gangs)).unwrap());
    }
    for (number, pool) in pools.iter_mut().enumerate() {
        if number != 1 {
            pool.idle(333);
            pool.speculative(4000);
        }
    }
    let knobs = Knobs { through: Through::Multiplied, ..Knobs::default() };
    let mut world = ClosedLoop::new(knobs, pools.into_iter().flat_map(Pool::machines), world);
    world.idle(u32::try_from(cycles).unwrap()).unwrap();

    let rows = usize::try_from(clusters).unwrap() * 129;
    let verdicts = &world.published().unwrap().decisions.verdicts;
    let demanded: usize = verdicts.iter().map(|verdict| verdict.gangs.len().max(1)).sum();
    assert_eq!(demanded, rows);
    rests(&world, world.history().0.len() / 2);
}
