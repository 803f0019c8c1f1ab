//! What holds whatever happens: random inputs, answers and time against the rules of the cluster side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::core::{Config, Core};
use bigfleet_operator::io::{Input, Node, Output, Pod, Write, WriteError, WriteId};
use bigfleet_proto::v1alpha1::operator_message::Payload as Up;
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{
    Acknowledgement, BootstrapRequest, MachineState, NodeStateUpdate, ReclaimInstruction,
};
use bigfleet_types::{ClusterId, UnixNanos};
use proptest::prelude::*;

use crate::core_kit::{TestRender, frame, node, pod, request, state_update};

#[derive(Debug, Clone)]
enum Step {
    Request { uid: u8, cpu: u8 },
    RequestGone(u8),
    Listing,
    Synced,
    Unsynced,
    Node { machine: u8, unschedulable: bool, ready: bool },
    NodeGone(u8),
    Pod { uid: u8, machine: u8, deleting: bool },
    PodGone(u8),
    Connect,
    Disconnect,
    Ack(&'static str),
    Confirm,
    State { machine: u8, state: i32, ours: bool },
    Reclaim { machine: u8, grace: i64 },
    Bootstrap,
    Written,
    Done { which: u8, how: u8 },
    Pass(u64),
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..4u8).prop_map(|(uid, cpu)| Step::Request { uid, cpu }),
        1 => (0..6u8).prop_map(Step::RequestGone),
        1 => Just(Step::Listing),
        2 => Just(Step::Synced),
        1 => Just(Step::Unsynced),
        2 => (0..4u8, any::<bool>(), any::<bool>())
            .prop_map(|(machine, unschedulable, ready)| Step::Node { machine, unschedulable, ready }),
        1 => (0..4u8).prop_map(Step::NodeGone),
        2 => (0..6u8, 0..4u8, any::<bool>()).prop_map(|(uid, machine, deleting)| Step::Pod { uid, machine, deleting }),
        1 => (0..6u8).prop_map(Step::PodGone),
        2 => Just(Step::Connect),
        1 => Just(Step::Disconnect),
        2 => prop::sample::select(&["hello", "resync", "rollup", "rollup_rejected", "other"][..]).prop_map(Step::Ack),
        2 => Just(Step::Confirm),
        6 => (0..4u8, 0..10i32, prop::bool::weighted(0.8)).prop_map(|(machine, state, ours)| Step::State { machine, state, ours }),
        2 => (0..5u8, -1..200i64).prop_map(|(machine, grace)| Step::Reclaim { machine, grace }),
        1 => Just(Step::Bootstrap),
        2 => Just(Step::Written),
        6 => (any::<u8>(), 0..6u8).prop_map(|(which, how)| Step::Done { which, how }),
        4 => prop::sample::select(&[1, 100, 250, 1_000, 10_000, 61_000, 700_000][..]).prop_map(Step::Pass),
    ]
}

/// The rules, and what they need to remember.
struct Judge {
    core: Core,
    now: UnixNanos,
    connected: bool,
    synced: bool,
    asked: u64,
    answered: u64,
    instructions: u64,
    reclaim_acks: u64,
    last_timestamp: i64,
    newest: i64,
    /// Uids that some roll-up of this session may have told of, by its timestamp.
    told: BTreeMap<i64, BTreeSet<String>>,
    /// Requests that are there now.
    live: BTreeSet<String>,
    /// Everything that a shard ever confirmed in some way.
    confirmed: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// What a list that has begun shows so far.
    listed: Option<BTreeSet<String>>,
    under_way: BTreeMap<WriteId, Write>,
    /// Nodes that an accepted drain may touch without a session.
    accepted: BTreeSet<String>,
}

impl Judge {
    fn new() -> Self {
        Self {
            core: Core::new(Config::new(ClusterId::trusted("c")), Arc::new(TestRender)),
            now: UnixNanos(1_700_000_000_000_000_000),
            connected: false,
            synced: false,
            asked: 0,
            answered: 0,
            instructions: 0,
            reclaim_acks: 0,
            last_timestamp: 0,
            newest: 0,
            told: BTreeMap::new(),
            live: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            listed: None,
            under_way: BTreeMap::new(),
            accepted: BTreeSet::new(),
        }
    }

    fn run(mut self, steps: impl IntoIterator<Item = Step>) {
        steps.into_iter().for_each(|step| self.step(step));
    }

    fn input(&mut self, input: Input) {
        self.core.handle(self.now, input);
        self.poll();
    }

    fn poll(&mut self) {
        loop {
            self.core.poll(self.now);
            let outputs = self.core.drain_outputs();
            if outputs.is_empty() {
                return;
            }
            outputs.into_iter().for_each(|output| self.judge(output));
        }
    }

    fn judge(&mut self, output: Output) {
        match output {
            Output::Rollup(rollup) => {
                assert!(self.connected && self.synced, "unknown demand or no session: nothing is sent");
                assert!(rollup.timestamp_unix_nanos > self.last_timestamp);
                assert_eq!(rollup.cluster_id, "c");
                let cpu: u64 = rollup
                    .needs
                    .iter()
                    .map(|n| n.aggregate_resources["cpu"].parse::<u64>().expect("cpu"))
                    .sum();
                assert!(cpu <= 3 * u64::try_from(self.live.len()).expect("few"), "never more than is there");
                self.last_timestamp = rollup.timestamp_unix_nanos;
                self.newest = rollup.timestamp_unix_nanos;
                self.told.insert(rollup.timestamp_unix_nanos, self.live.clone());
            }
            Output::Send(message) => {
                assert!(self.connected, "nothing is sent without a session");
                match message.payload {
                    Some(Up::BootstrapResponse(_)) => self.answered += 1,
                    Some(Up::ReclaimAck(_)) => self.reclaim_acks += 1,
                    other => panic!("{other:?}"),
                }
            }
            Output::Write { id, write } => {
                match &write {
                    Write::Evict { .. } | Write::DeletePod { .. } => {}
                    Write::Cordon { node, .. } => {
                        assert!(self.connected || self.accepted.contains(node), "no cordon is started");
                        self.accepted.insert(node.clone());
                    }
                    _ => assert!(self.connected, "without a session: {write:?}"),
                }
                if let Write::AcknowledgeRequest { uid, .. } = &write {
                    let uid = uid.to_string();
                    assert!(self.confirmed.contains(&uid), "acknowledged before the shard had it");
                    assert!(!self.acknowledged.contains(&uid), "acknowledged twice");
                }
                let about = |w: &Write| match w {
                    Write::PutUpcomingNode(o) => o.machine.as_ref().map(ToString::to_string),
                    Write::DeleteUpcomingNode { machine } => Some(machine.to_string()),
                    _ => None,
                };
                if let Some(machine) = about(&write) {
                    let same =
                        self.under_way.values().filter(|w| about(w).as_ref() == Some(&machine)).count();
                    assert_eq!(same, 0, "one write a machine");
                }
                self.under_way.insert(id, write);
            }
            Output::WatchPods { node } => {
                self.accepted.insert(node.clone());
                self.core.handle(self.now, Input::PodsListed(node));
            }
            Output::Event { .. } | Output::UnwatchPods { .. } | Output::DropSession { .. } => {}
        }
    }

    fn step(&mut self, step: Step) {
        let machine = |m: u8| format!("m-{m}");
        match step {
            Step::Request { uid, cpu } => {
                let uid = uid.to_string();
                self.live.insert(uid.clone());
                if let Some(listed) = &mut self.listed {
                    listed.insert(uid.clone());
                }
                let acknowledged = self.acknowledged.contains(&uid);
                let amount = cpu.to_string();
                let request = request(&uid, &[("cpu", &amount)]);
                let request = bigfleet_operator::io::CapacityRequest { acknowledged, ..request };
                self.input(Input::Request(Arc::new(request)));
            }
            Step::RequestGone(uid) => {
                if let Some(listed) = &mut self.listed {
                    listed.remove(&uid.to_string());
                }
                self.forget(&uid.to_string());
                self.input(Input::RequestGone(uid.to_string().as_str().into()));
            }
            Step::Listing => {
                self.listed = Some(BTreeSet::new());
                self.input(Input::Listing);
            }
            Step::Synced => {
                if let Some(listed) = self.listed.take() {
                    let gone: Vec<String> =
                        self.live.iter().filter(|uid| !listed.contains(*uid)).cloned().collect();
                    gone.iter().for_each(|uid| self.forget(uid));
                }
                self.synced = true;
                self.input(Input::Synced);
            }
            Step::Unsynced => {
                self.synced = false;
                self.input(Input::Unsynced);
            }
            Step::Node { machine: m, unschedulable, ready } => {
                let node = Node { unschedulable, ready, ..node(&format!("n-{m}"), &machine(m)) };
                self.input(Input::Node(Arc::new(node)));
            }
            Step::NodeGone(m) => self.input(Input::NodeGone(format!("n-{m}"))),
            Step::Pod { uid, machine, deleting } => {
                let pod = Pod { deleting, ..pod(&uid.to_string(), &format!("n-{machine}")) };
                self.input(Input::Pod(Arc::new(pod)));
            }
            Step::PodGone(uid) => self.input(Input::PodGone(uid.to_string().as_str().into())),
            Step::Connect => {
                self.connected = true;
                self.reclaim_acks = self.instructions;
                self.told.clear();
                self.input(Input::Connected);
            }
            Step::Disconnect => {
                self.connected = false;
                self.reclaim_acks = self.instructions;
                self.told.clear();
                self.input(Input::Disconnected);
            }
            Step::Ack(echo) => {
                // A bare confirmation may mean any roll-up of the session.
                if echo == "rollup" {
                    self.confirmed.extend(self.told.values().flatten().cloned());
                }
                self.input(frame(Down::Ack(Acknowledgement { echo: echo.to_owned(), ..Default::default() })));
            }
            Step::Confirm => {
                self.confirmed.extend(self.told.get(&self.newest).into_iter().flatten().cloned());
                self.input(frame(Down::Ack(Acknowledgement {
                    echo: "rollup".to_owned(),
                    rollup_timestamp_unix_nanos: self.newest,
                    ..Default::default()
                })));
            }
            Step::State { machine: m, state, ours } => {
                let cluster_id = if ours { "c" } else { "other" }.to_owned();
                let update = state_update(&machine(m), MachineState::Unspecified);
                self.input(frame(Down::NodeStateUpdate(NodeStateUpdate { state, cluster_id, ..update })));
            }
            Step::Reclaim { machine: m, grace } => {
                self.instructions += u64::from(self.connected);
                self.input(frame(Down::ReclaimInstruction(ReclaimInstruction {
                    instruction_id: self.instructions.to_string(),
                    nodes: vec![machine(m)],
                    grace_period_seconds: grace,
                    ..Default::default()
                })));
            }
            Step::Bootstrap => {
                self.asked += u64::from(self.connected);
                self.input(frame(Down::BootstrapRequest(BootstrapRequest::default())));
            }
            Step::Written => self.input(Input::RollupWritten { timestamp_unix_nanos: self.newest }),
            Step::Done { which, how } => self.done(usize::from(which), how),
            Step::Pass(millis) => self.pass(Duration::from_millis(millis)),
        }
        assert_eq!(self.asked, self.answered, "one answer a request, at once");
        let others = |w: &&Write| {
            !matches!(w, Write::AcknowledgeRequest { .. } | Write::Evict { .. } | Write::Cordon { .. })
        };
        assert!(self.under_way.values().filter(others).count() <= 32);
        let acks = |w: &&Write| matches!(w, Write::AcknowledgeRequest { .. });
        assert!(self.under_way.values().filter(acks).count() <= 16);
    }

    /// A request is gone. A uid never comes back in a cluster; here it does, so what was true of it is forgotten.
    fn forget(&mut self, uid: &str) {
        self.acknowledged.remove(uid);
        self.under_way.retain(|_, w| !matches!(w, Write::AcknowledgeRequest { uid: u, .. } if **u == *uid));
    }

    fn done(&mut self, which: usize, how: u8) {
        let Some((id, write)) = self.under_way.iter().nth(which % self.under_way.len().max(1)) else {
            return;
        };
        let id = *id;
        let result = match how {
            0 => Err(WriteError::Gone),
            1 => Err(WriteError::Conflict),
            2 => Err(WriteError::TooMany { retry_after: None, message: "no".to_owned() }),
            _ => Ok(()),
        };
        if let (Write::AcknowledgeRequest { uid, .. }, Ok(())) = (write, &result) {
            self.acknowledged.insert(uid.to_string());
        }
        self.under_way.remove(&id);
        self.input(Input::Done { write: id, result });
    }

    fn pass(&mut self, duration: Duration) {
        let target = self.now.after(duration);
        let mut stuck = 0;
        while let Some(wake) = self.core.next_wake(self.now).filter(|wake| *wake <= target) {
            stuck = if wake > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 5, "woken again and again");
            self.now = self.now.max(wake);
            self.poll();
        }
        self.now = target;
        self.poll();
        if duration >= Duration::from_secs(5) {
            assert_eq!(self.reclaim_acks, self.instructions, "every instruction is acknowledged within 5 s");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_happens(steps in prop::collection::vec(a_step(), 0..150)) {
        Judge::new().run(steps);
    }
}

/// A list that is interrupted and shows a request twice: what it showed last is what counts.
#[test]
fn a_request_that_a_list_shows_twice_is_acknowledged_once() {
    let shown = Step::Request { uid: 3, cpu: 0 };
    Judge::new().run([
        shown.clone(),
        Step::Synced,
        Step::Request { uid: 0, cpu: 0 },
        Step::Connect,
        Step::Pass(1_000),
        Step::Listing,
        Step::Confirm,
        shown.clone(),
        Step::Unsynced,
        Step::Done { which: 0, how: 3 },
        Step::Unsynced,
        shown,
        Step::Synced,
        Step::Connect,
        Step::Pass(1_000),
        Step::Confirm,
    ]);
}
