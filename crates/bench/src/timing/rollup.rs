//! 25,000 requests of one cluster, from a cold start to the rows of a roll-up.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use bigfleet_operator::aggregate::{Aggregate, Rows};
use bigfleet_operator::io::{CapacityRequest, CoLocation, LabelSelector, Uid};

use super::{Made, Run};
use crate::catalogue::RACK_KEY;
use crate::compare::{Recorded, Timed};

pub(super) const WHAT: &str = "the aggregate of 25,000 requests built anew, and its rows";
pub(super) const RECORDED: Recorded = Recorded::ms(Timed::Cold, 476.0, "476 ms p99 live").target(30.0);

const REQUESTS: u64 = 25_000;

/// All requests.
pub(crate) fn requests() -> Vec<CapacityRequest> {
    (0..REQUESTS).map(request).collect()
}

/// Their aggregate, its rows, and how long each took.
pub(crate) fn aggregate(requests: &[CapacityRequest]) -> (Aggregate, Rows, [Duration; 2]) {
    let mut aggregate = Aggregate::default();
    let start = Instant::now();
    for request in requests {
        black_box(aggregate.apply(request));
    }
    let applied = start.elapsed();
    let rows = aggregate.rows();
    let all = start.elapsed();
    (aggregate, rows, [applied, all - applied])
}

pub(super) fn run() -> Result<Run> {
    let requests = requests();
    let (aggregate, rows, [applied, rolled_up]) = aggregate(&requests);
    anyhow::ensure!(aggregate.len() == requests.len(), "the operator skips requests of the benchmark");
    let needs = rows.needs.len() as u64;
    let gangs = rows.needs.iter().filter(|row| !row.group.is_empty()).count() as u64;
    let made = Made { needs, gangs, pods: Some(REQUESTS), ..Made::default() };
    Ok(Run { parts: vec![("aggregate", applied), ("rows", rolled_up)], made })
}

/// Every ninth is a member of a gang of 4, the one after it a service, the others tiny.
fn request(number: u64) -> CapacityRequest {
    let (kind, cpu, memory, priority, dollars) = match number % 9 {
        0 => ("r6i.xlarge", "4", "32Gi", 1000, ["4096", "16384"]),
        1 => ("m6i.xlarge", "2200m", "8500Mi", 1000, ["1024", "8192"]),
        _ => ("m6i.large", "400m", "500Mi", 100, ["32", "64"]),
    };
    let selector = |gang: u64| LabelSelector {
        match_labels: BTreeMap::from([("gang".to_owned(), format!("cache-{gang}"))]),
        match_expressions: Vec::new(),
    };
    CapacityRequest {
        uid: Uid::from(format!("00000000-0000-4000-8000-{number:012}")),
        namespace: "apps".to_owned(),
        name: format!("pod-{number}"),
        requirements: vec![(
            "node.kubernetes.io/instance-type".to_owned(),
            "In".to_owned(),
            vec![kind.to_owned()],
        )],
        resources: BTreeMap::from([
            ("cpu".to_owned(), cpu.to_owned()),
            ("memory".to_owned(), memory.to_owned()),
        ]),
        priority,
        interruption_penalty: Some(dollars[0].to_owned()),
        reclamation_penalty: Some(dollars[1].to_owned()),
        co_location: number
            .is_multiple_of(9)
            .then(|| CoLocation { topology_key: RACK_KEY.to_owned(), selector: Some(selector(number / 36)) }),
        ..CapacityRequest::default()
    }
}
