//! What DaemonSets take of the fleet's nodes, and how it raises the demand.

use std::sync::Arc;

use bigfleet_operator::io::{Amounts, DaemonSet, Input, Node};

use crate::core_kit::{Rig, node, request, strings};

const CORE: i128 = 1_000_000_000;
const GIB: i128 = (1 << 30) * 1_000_000_000;

fn rig() -> Rig {
    Rig::with(|config| config.daemonset_overhead = true)
}

fn sized(name: &str, machine: &str, cores: i128) -> Input {
    let allocatable = Amounts { cpu: cores * CORE, memory: 10 * GIB };
    Input::Node(Arc::new(Node { allocatable, ..node(name, machine) }))
}

/// One set for every node, one for none.
fn sets(millis: i128) -> Input {
    let every =
        DaemonSet { requests: Amounts { cpu: millis * CORE / 1_000, memory: GIB }, ..DaemonSet::default() };
    let nowhere = DaemonSet { selector: strings(&[("no", "node")]), ..every.clone() };
    Input::DaemonSets(vec![every, nowhere])
}

/// The newest sums of cpu and memory, and the largest cpu of one pod.
fn sums(rig: &Rig) -> (&str, &str, &str) {
    let need = &rig.rollups.last().expect("a roll-up").1.needs[0];
    (&need.aggregate_resources["cpu"], &need.aggregate_resources["memory"], &need.min_unit["cpu"])
}

fn demand(rig: &mut Rig) {
    for uid in ["a", "b"] {
        rig.input(Input::Request(Arc::new(request(uid, &[("cpu", "2"), ("memory", "1Gi"), ("x/y", "1")]))));
    }
    rig.input(Input::Synced);
}

#[test]
fn the_share_of_daemon_sets_is_added_to_the_sums_and_to_nothing_else() {
    let mut rig = rig();
    rig.input(sized("n1", "m1", 8));
    // Not of the fleet: neither what it offers nor what runs there counts.
    let foreign = Node { labels: strings(&[]), ..node("foreign", "") };
    let allocatable = Amounts { cpu: 1_000 * CORE, memory: GIB };
    rig.input(Input::Node(Arc::new(Node { allocatable, ..foreign })));
    demand(&mut rig);
    rig.input(sets(1_000));
    rig.connect();
    // 1 of 8 cores is 12.5 %, so 13; 1 of 10 GiB is 10 %. 4 / 0.87 is 4.5977, 2 GiB / 0.9 is 2386092942.2 bytes.
    assert_eq!(sums(&rig), ("4598m", "2386092943", "2"));
    assert_eq!(rig.rollups[0].1.needs[0].aggregate_resources["x/y"], "2");
    assert_eq!(
        rig.core.counters().daemonset_overhead.clone().into_iter().collect::<Vec<_>>(),
        [("cpu", 13), ("memory", 10)]
    );
}

#[test]
fn no_rollup_goes_before_the_daemon_sets_are_known() {
    let mut rig = rig();
    demand(&mut rig);
    rig.connect();
    rig.seconds(60);
    assert_eq!(rig.rollups.len(), 0, "a demand without them would be too small");
    rig.input(sets(1_000));
    assert_eq!(rig.rollups.len(), 1);
    assert_eq!(sums(&rig), ("4", "2Gi", "2"), "no node yet: nothing is added");
}

#[test]
fn a_larger_share_goes_ahead_of_the_period_and_silence_keeps_the_last() {
    let mut rig = rig();
    rig.input(sized("n1", "m1", 10));
    demand(&mut rig);
    rig.input(sets(1_000));
    rig.connect();
    assert_eq!(sums(&rig).0, "4445m", "4 / 0.9");
    let before = rig.rollups.len();
    rig.input(sets(2_000));
    rig.seconds(1);
    assert_eq!((rig.rollups.len(), sums(&rig).0), (before + 1, "5"));
    // The requests cannot be read for a while; the DaemonSets are not told of again.
    rig.input(Input::Unsynced);
    rig.seconds(60);
    rig.input(Input::Synced);
    rig.seconds(10);
    assert_eq!(sums(&rig).0, "5");
    // Its nodes are gone, and then they are back with a little less on them.
    rig.input(Input::NodeGone("n1".to_owned()));
    rig.input(sets(1_950));
    rig.seconds(10);
    assert_eq!(sums(&rig).0, "5", "no nodes, no news");
    rig.input(sized("n1", "m1", 10));
    rig.input(sets(1_900));
    rig.seconds(10);
    assert_eq!(sums(&rig).0, "5", "19 % is less than a percent and a half below 20 %");
    rig.input(sets(1_800));
    rig.seconds(10);
    assert_eq!(sums(&rig).0, "4879m", "4 / 0.82");
}

#[test]
fn unless_asked_for_daemon_sets_change_nothing() {
    let mut rig = Rig::new();
    rig.input(sized("n1", "m1", 2));
    demand(&mut rig);
    rig.input(sets(1_000));
    rig.connect();
    assert_eq!(sums(&rig), ("4", "2Gi", "2"));
    assert!(rig.core.counters().daemonset_overhead.is_empty());
}
