//! Fuzz target: bytes that build a fleet and its demand, out of extremes. The engine and the oracle answer alike, and
//! every machine is explained to every Need.

use std::time::Duration;

use bigfleet_decide::{Input, decide};
use bigfleet_types::{ClusterId, UnixNanos};

use super::bytes::{Bytes, CLUSTERS, machine, need};

/// Runs the target on an input.
pub(crate) fn run(bytes: &[u8]) {
    let input = world(&mut Bytes(bytes));
    let ours = decide(&input);
    assert_eq!(ours.to_json().ok(), crate::oracle::decide(&input).to_json().ok(), "engine and oracle");
    for (cluster, _) in &input.demand {
        assert!(bigfleet_decide::explain(&input, cluster.as_str()).is_ok());
    }
}

fn world(bytes: &mut Bytes<'_>) -> Input {
    let mut input = Input { now: UnixNanos(bytes.pick(&[0, 1, i64::MAX, i64::MIN])), ..Input::default() };
    input.policy.reclaim_after = Duration::from_secs(bytes.pick(&[0, 0, 60, u64::MAX]));
    input.policy.victims.drain_estimate = Duration::from_secs(bytes.pick(&[30, 0, u64::MAX]));
    input.policy.victims.priority_weight = bytes.pick(&[1_000_000_000, 0, u64::MAX]);
    for name in CLUSTERS {
        let cluster = ClusterId::trusted(name);
        let rows = (0..bytes.byte() % 5).map(|_| need(bytes)).collect();
        input.demand.push((cluster.clone(), rows));
        if !bytes.one_in(4) {
            input.ready.insert(cluster);
        }
    }
    for number in 0..bytes.byte() % 25 {
        let entry = machine(bytes, number, &input.demand);
        input.fleet.push(entry);
    }
    input
}
