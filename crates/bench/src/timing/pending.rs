//! From pending pods to what to buy: CapacityRequests of a mixed kind through the operator's aggregation, the gate of
//! the wire and the engine to actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bigfleet_engine::{Engine, Event, Policy};
use bigfleet_operator::io::{CapacityRequest, CoLocation, LabelSelector, Uid};
use bigfleet_proto::gate;
use bigfleet_proto::v1alpha1::ClusterCapacityNeeds;
use bigfleet_types::{ClusterId, MachineState};

use super::{Laps, Made, Run, rollup};
use crate::catalogue::ZONES;
use crate::compare::{Recorded, Timed};
use crate::factory::{Factory, Model};
use crate::realistic::amounts;
use crate::synthetic::{model, priced};
use crate::workload::START;

pub(super) const WHAT: &str = "requests in memory to actions: aggregation, rows, the gate, the engine";

/// What a peer's scheduling benchmark took for as many pods on the same kind of machine.
pub(super) const fn peer(ms: f64) -> Recorded {
    Recorded::ms(Timed::Cold, ms, "a peer's scheduling benchmark with as many pods")
}

/// Sizes at which the peer was not measured.
pub(super) const NO_PEER: Recorded = Recorded::none(Timed::Cold, "none");

const TYPES: usize = 400;
/// Quota slots of one type in one zone.
const SLOTS: usize = 100;

pub(super) fn run(pods: u64) -> Result<Run> {
    let mut engine = Engine::new(Policy::default());
    fill(&mut engine);
    engine.decide(START);
    let requests: Vec<_> = (0..pods).map(request).collect();
    let cluster = ClusterId::trusted("cluster");

    let (aggregate, rows, [aggregating, rolling_up]) = rollup::aggregate(&requests);
    let mut laps = Laps::begin();
    let message = ClusterCapacityNeeds {
        cluster_id: cluster.to_string(),
        timestamp_unix_nanos: START.0,
        needs: rows.needs,
    };
    let needs =
        gate::rollup::accept(&cluster, &message).context("the shard refuses the benchmark's roll-up")?.needs;
    let gate = laps.end();
    engine.apply(Event::Demand { cluster: cluster.clone(), rows: needs, at: START });
    engine.apply(Event::Heard(cluster));
    let apply = laps.end();
    let decisions = engine.decide(START);
    let decide = laps.end();

    anyhow::ensure!(aggregate.len() == requests.len(), "the operator skips requests of the benchmark");
    let unmet = decisions.verdicts.iter().filter(|verdict| !verdict.satisfied).count();
    anyhow::ensure!(unmet == 0, "{unmet} rows of the benchmark are not served: it has too few machines");
    let made = Made {
        records: (TYPES * ZONES.len() * SLOTS) as u64,
        needs: message.needs.len() as u64,
        gangs: message.needs.iter().filter(|row| !row.group.is_empty()).count() as u64,
        pods: Some(pods),
        actions: decisions.actions.len() as u64,
        ..Made::default()
    };
    let parts = vec![
        ("aggregate", aggregating),
        ("rows", rolling_up),
        ("gate", gate),
        ("apply", apply),
        ("decide", decide),
    ];
    Ok(Run { parts, made })
}

/// 400 instance types of 1 to 256 cores in three zones, each with quota for 100.
fn fill(engine: &mut Engine) {
    let mut factory = Factory::new();
    for number in 0..TYPES {
        let cores = i64::try_from(1usize << (number % 9)).unwrap_or(1);
        let memory = cores * 1024 * i64::try_from(2 + number % 3 * 3).unwrap_or(2);
        for zone in ZONES {
            let base = model(&format!("type-{number:03}"), zone, None, amounts(cores * 1000, memory, 0));
            let mut model: Model = priced(base, cores);
            model.labels.insert(Arc::from("kubernetes.io/arch"), Arc::from(["amd64", "arm64"][number % 2]));
            (0..SLOTS).for_each(|_| engine.apply(factory.make(&model, MachineState::Speculative, None)));
        }
    }
}

/// A fifth each: plain pods, pods spread over zones, pods of one zone, pods of one architecture, and gangs of ten that
/// share a zone. Sizes as varied as those of the peer's benchmark.
fn request(number: u64) -> CapacityRequest {
    let cpu = ["100m", "250m", "500m", "1", "1500m"];
    let memory = ["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"];
    let zone_key = "topology.kubernetes.io/zone".to_owned();
    let at = |list: &[&str], by: u64| list[usize::try_from(by).unwrap_or(0) % list.len()].to_owned();
    let nth = number / 5;
    let mut request = CapacityRequest {
        uid: Uid::from(format!("00000000-0000-4000-8000-{number:012}")),
        namespace: "apps".to_owned(),
        name: format!("pod-{number}"),
        resources: BTreeMap::from([
            ("cpu".to_owned(), at(&cpu, nth)),
            ("memory".to_owned(), at(&memory, nth / 5)),
        ]),
        priority: 1000,
        interruption_penalty: Some("1024".to_owned()),
        reclamation_penalty: Some("1024".to_owned()),
        ..CapacityRequest::default()
    };
    match number % 5 {
        1 => request.topology_spread = vec![(zone_key, 1, "DoNotSchedule".to_owned())],
        2 => request.requirements = vec![(zone_key, "In".to_owned(), vec![at(&ZONES, nth)])],
        3 => {
            let arch = at(&["amd64", "arm64"], nth);
            request.requirements = vec![("kubernetes.io/arch".to_owned(), "In".to_owned(), vec![arch])];
        }
        4 => {
            let gang = BTreeMap::from([("gang".to_owned(), format!("gang-{}", nth / 10))]);
            let selector = LabelSelector { match_labels: gang, match_expressions: Vec::new() };
            request.co_location = Some(CoLocation { topology_key: zone_key, selector: Some(selector) });
        }
        _ => {}
    }
    request
}
