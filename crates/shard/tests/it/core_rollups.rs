//! Roll-ups as differences: whoever hears only what changed knows, judges and answers as one who hears everything.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_proto::gate::rollup;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::{CapacityNeed, ClusterCapacityNeeds, NodeSelectorRequirement};
use bigfleet_shard::io::{Change, CloseReason, Ingest, Input, SessionId};
use bigfleet_types::MachineState;
use proptest::prelude::*;
use prost::Message as _;

use crate::core_model::{Model, bound, cluster, gpu, need};
use crate::core_world::{World, config};

/// What an operator does next.
#[derive(Debug, Clone)]
enum Step {
    /// Sends these rows.
    Say(Vec<CapacityNeed>),
    /// Sends what it sent last, in another order.
    Again(usize),
    /// Says the first row of that twice, and leaves out the last.
    Twice,
    /// Dials once more; the session before ends.
    Dial,
    /// Lets time pass.
    Wait(u64),
}

/// One of few rows, so that they meet; perhaps a gang, perhaps one that the gate refuses.
fn row() -> impl Strategy<Value = CapacityNeed> {
    (0..4i32, 0..3u8, 1..4u32, 0..40u8).prop_map(|(priority, group, gpus, odd)| {
        let gang = group > 0;
        let requirement = NodeSelectorRequirement {
            key: "rack".to_owned(),
            operator: if odd == 7 { Operator::Unspecified } else { Operator::Same }.into(),
            values: Vec::new(),
        };
        // The same amount may be spelt in more than one way.
        let amount = if odd % 2 == 0 { gpus.to_string() } else { format!("{gpus}000m") };
        CapacityNeed {
            requirements: if gang { vec![requirement] } else { Vec::new() },
            aggregate_resources: BTreeMap::from([("nvidia.com/gpu".to_owned(), amount)]),
            min_unit: BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]),
            priority: priority * 100,
            group: if gang { format!("g{group}") } else { String::new() },
            ..CapacityNeed::default()
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(row(), 0..24).prop_map(Step::Say),
        1 => prop::collection::vec(row(), 12..40).prop_map(Step::Say),
        2 => Just(Step::Say(Vec::new())),
        2 => (0..8usize).prop_map(Step::Again),
        1 => Just(Step::Twice),
        1 => Just(Step::Dial),
        2 => (1..90u64).prop_map(Step::Wait),
    ]
}

/// Two shards and an operator whose session with one of them sends only differences.
struct Pair {
    whole: World,
    differing: World,
    ingest: Ingest,
    sent: Vec<CapacityNeed>,
    /// Whether anything went on as a difference.
    differed: bool,
}

impl Pair {
    fn new(before_inventory: bool) -> Self {
        let machines = (0..6).map(|n| gpu(&format!("m{n}"), MachineState::Idle));
        // Enough for the guard to be wary of an empty first word.
        let held = (0..10).map(|n| bound(&format!("h{n}"), MachineState::Configured, "a", &need(100, 1)));
        let model = |machines: Vec<_>| World::new(config(), Model::with(machines));
        let machines: Vec<_> = machines.chain(held).collect();
        let mut pair = Self {
            whole: model(machines.clone()),
            differing: model(machines),
            ingest: Ingest::default(),
            sent: Vec::new(),
            differed: false,
        };
        if !before_inventory {
            pair.both(|world| world.run(Duration::from_secs(1)));
        }
        pair.dial();
        pair
    }

    fn both(&mut self, mut act: impl FnMut(&mut World)) {
        act(&mut self.whole);
        act(&mut self.differing);
    }

    fn dial(&mut self) {
        self.both(|world| {
            world.connect("a");
        });
        self.ingest = Ingest::default();
    }

    fn say(&mut self, needs: Vec<CapacityNeed>) {
        let cluster_id = "a".to_owned();
        let message = ClusterCapacityNeeds { cluster_id, timestamp_unix_nanos: 7, needs: needs.clone() };
        self.sent = needs;
        let all = rollup::accept(&cluster("a"), &message).map(|accepted| Change::from(accepted.needs));
        let change = self.ingest.accept(&cluster("a"), &message.encode_to_vec());
        let all = all.map_err(|error| error.to_string());
        let change = change.map_err(|error| error.to_string());
        assert_eq!(all.as_ref().err(), change.as_ref().err(), "the gate");
        self.differed |= change.as_ref().is_ok_and(|change| !change.whole);
        let hand_in = |world: &mut World, rows: Result<Change, String>| {
            let session = world.sessions[&cluster("a")];
            world.handle(Input::Rollup { session, timestamp_unix_nanos: 7, rows });
        };
        hand_in(&mut self.whole, all);
        hand_in(&mut self.differing, change);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Say(needs) => self.say(needs),
            Step::Again(by) => {
                let mut needs = self.sent.clone();
                let by = by.checked_rem(needs.len()).unwrap_or(0);
                needs.rotate_left(by);
                self.say(needs);
            }
            Step::Twice => {
                let mut needs = self.sent.clone();
                needs.pop();
                needs.extend(needs.first().cloned());
                self.say(needs);
            }
            Step::Dial => self.dial(),
            Step::Wait(seconds) => self.both(|world| world.run(Duration::from_secs(seconds))),
        }
    }

    fn compare(&mut self) {
        let (whole, differing) = (&self.whole, &self.differing);
        assert_eq!(whole.acks(), differing.acks(), "acknowledgements");
        for line in
            ["rollup_quarantined{cluster=\"a\"}", "rollups_rejected_total{cluster=\"a\"}", "demand_rows"]
        {
            assert_eq!(whole.metric(line).to_bits(), differing.metric(line).to_bits(), "{line}");
        }
        let decided = |world: &World| {
            world.published.as_ref().map(|published| (published.cycle, published.decisions.clone()))
        };
        assert_eq!(decided(whole), decided(differing));
        let demand = |world: &World| {
            let told = world.core.told(world.now);
            let mut rows: Vec<_> = told
                .into_iter()
                .filter_map(|event| match event {
                    bigfleet_engine::Event::Demand { cluster, rows, at } => Some((cluster, rows, at)),
                    _ => None,
                })
                .collect();
            rows.iter_mut().for_each(|(_, rows, _)| rows.sort_by_key(rollup::row_key));
            rows
        };
        assert_eq!(demand(whole), demand(differing));
        assert!(differing.closed.iter().all(|(_, reason)| *reason == CloseReason::Replaced));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn differences_say_what_whole_rollups_say(
        before_inventory in any::<bool>(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut pair = Pair::new(before_inventory);
        for step in steps {
            pair.step(step);
            pair.compare();
        }
        pair.both(|world| world.run(Duration::from_secs(30)));
        pair.compare();
    }
}

fn wanted(n: u32, priority: i32) -> CapacityNeed {
    CapacityNeed {
        aggregate_resources: BTreeMap::from([("nvidia.com/gpu".to_owned(), n.to_string())]),
        priority,
        ..CapacityNeed::default()
    }
}

/// Only what is not as it was goes on: a row that is spelt otherwise or stands elsewhere is as it was.
#[test]
fn a_difference_holds_no_more_than_what_changed() {
    let mut ingest = Ingest::default();
    let mut say = |needs: Vec<CapacityNeed>| {
        let message =
            ClusterCapacityNeeds { cluster_id: "a".into(), needs, ..ClusterCapacityNeeds::default() };
        ingest.accept(&cluster("a"), &message.encode_to_vec()).map(|change| {
            let priorities: Vec<i32> = change.changed.iter().map(|need| need.profile.priority()).collect();
            (change.number, change.whole, priorities, change.removed.len())
        })
    };
    let mut spelt = wanted(2, 20);
    spelt.aggregate_resources.insert("nvidia.com/gpu".into(), "2000m".into());
    assert_eq!(
        say(vec![wanted(1, 10), wanted(2, 20), wanted(3, 30)]).unwrap(),
        (1, true, vec![10, 20, 30], 0)
    );
    assert_eq!(say(vec![wanted(3, 30), spelt, wanted(1, 10)]).unwrap(), (2, false, vec![], 0));
    assert_eq!(say(vec![wanted(3, 30), wanted(5, 20)]).unwrap(), (3, false, vec![20], 1));
    let bad = CapacityNeed { interruption_penalty_bucket: 99, ..wanted(1, 1) };
    assert!(say(vec![wanted(9, 30), bad]).is_err());
    assert_eq!(
        say(vec![wanted(3, 30), wanted(5, 20)]).unwrap(),
        (4, false, vec![], 0),
        "the refused one was never sent"
    );
    assert_eq!(say(vec![wanted(3, 30), wanted(3, 30)]).unwrap(), (5, false, vec![30], 1), "added up");
    assert_eq!(say(vec![wanted(3, 30), wanted(3, 30)]).unwrap(), (6, false, vec![], 0));
}

/// A difference from something that never came is not guessed at: the session ends, and its successor begins whole.
#[test]
fn a_difference_from_nothing_known_ends_the_session() {
    let mut world = World::new(config(), Model::with([gpu("m0", MachineState::Idle)]));
    world.run(Duration::from_secs(1));
    world.connect("a");
    let session: SessionId = world.sessions[&cluster("a")];
    let lost = Change { number: 3, whole: false, ..Change::from(vec![need(100, 1)]) };
    world.handle(Input::Rollup { session, timestamp_unix_nanos: 1, rows: Ok(lost) });
    world.run(Duration::from_secs(20));
    assert_eq!(world.closed, [(session, CloseReason::OutOfStep)]);
    assert_eq!(world.count(MachineState::Idle), 1, "nothing of it counts");
}
