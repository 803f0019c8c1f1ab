//! A core under test: time moves when told to, writes are answered as the test wants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::core::{Config, Core};
use bigfleet_operator::io::{
    CapacityRequest, Input, Node, Output, Pod, Render, Rendered, Uid, UpcomingNode, Write, WriteError,
    WriteId,
};
use bigfleet_proto::v1alpha1::operator_message::Payload as Up;
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{
    Acknowledgement, BootstrapRequest, ClusterCapacityNeeds, MachineState, NodeStateUpdate, ShardMessage,
};
use bigfleet_types::{ClusterId, UnixNanos};

pub(crate) const CLUSTER: &str = "prod-eu-1";

/// Renders the machine's id, or fails for machines called `broken`.
pub(crate) struct TestRender;

impl Render for TestRender {
    fn render(&self, request: &BootstrapRequest) -> Result<Rendered, String> {
        match request.machine_id.as_str() {
            "broken" => Err("line 1, column 4: unknown field .Nope".to_owned()),
            "empty" => Ok(Rendered { user_data: Vec::new().into(), ttl: Duration::from_secs(600) }),
            "huge" => Ok(Rendered { user_data: vec![0; 300 << 10].into(), ttl: Duration::from_secs(600) }),
            id => Ok(Rendered { user_data: id.to_owned().into(), ttl: Duration::from_secs(600) }),
        }
    }
}

/// What a write is answered with; `None` leaves it unanswered.
pub(crate) type Answer = Option<Result<(), WriteError>>;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) about: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) struct Rig {
    pub(crate) core: Core,
    pub(crate) now: UnixNanos,
    pub(crate) rollups: Vec<(UnixNanos, ClusterCapacityNeeds)>,
    pub(crate) sent: Vec<(UnixNanos, Up)>,
    pub(crate) writes: Vec<(UnixNanos, WriteId, Write)>,
    pub(crate) events: Vec<Event>,
    pub(crate) dropped: Vec<String>,
    pub(crate) watched: Vec<String>,
    /// Whether roll-ups leave for the shard as soon as they are there.
    pub(crate) writes_rollups: bool,
    /// Whether a watch of pods is answered, with these pods.
    pub(crate) pods: Option<Vec<Arc<Pod>>>,
    pub(crate) answer: Box<dyn FnMut(&Write) -> Answer>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(ClusterId::trusted(CLUSTER));
        change(&mut config);
        Self {
            core: Core::new(config, Arc::new(TestRender)),
            now: UnixNanos(1_700_000_000_000_000_000),
            rollups: Vec::new(),
            sent: Vec::new(),
            writes: Vec::new(),
            events: Vec::new(),
            dropped: Vec::new(),
            watched: Vec::new(),
            writes_rollups: true,
            pods: Some(Vec::new()),
            answer: Box::new(|_| Some(Ok(()))),
        }
    }

    /// Synced, connected, greeted, and past the first roll-up.
    pub(crate) fn running() -> Self {
        let mut rig = Self::new();
        rig.input(Input::Synced);
        rig.connect();
        rig
    }

    pub(crate) fn connect(&mut self) {
        self.input(Input::Connected);
        self.ack("hello");
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.core.handle(self.now, input);
        self.pump();
    }

    /// Several at once, as from a burst on the stream.
    pub(crate) fn burst(&mut self, inputs: impl IntoIterator<Item = Input>) {
        for input in inputs {
            self.core.handle(self.now, input);
        }
        self.pump();
    }

    pub(crate) fn frame(&mut self, payload: Down) {
        self.input(frame(payload));
    }

    pub(crate) fn ack(&mut self, echo: &str) {
        self.frame(Down::Ack(Acknowledgement { echo: echo.to_owned(), ..Default::default() }));
    }

    /// Confirms the newest roll-up by its timestamp.
    pub(crate) fn confirm(&mut self) {
        let timestamp = self.rollups.last().expect("a roll-up").1.timestamp_unix_nanos;
        self.frame(Down::Ack(Acknowledgement {
            echo: "rollup".to_owned(),
            rollup_timestamp_unix_nanos: timestamp,
            ..Default::default()
        }));
    }

    pub(crate) fn state(&mut self, machine: &str, state: MachineState) {
        self.input(state_frame(machine, state));
    }

    pub(crate) fn done(&mut self, id: WriteId, result: Result<(), WriteError>) {
        self.input(Input::Done { write: id, result });
    }

    fn pump(&mut self) {
        loop {
            self.core.poll(self.now);
            let outputs = self.core.drain_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                self.take(output);
            }
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Rollup(rollup) => {
                let timestamp_unix_nanos = rollup.timestamp_unix_nanos;
                self.rollups.push((self.now, *rollup));
                if self.writes_rollups {
                    self.core.handle(self.now, Input::RollupWritten { timestamp_unix_nanos });
                }
            }
            Output::Send(message) => self.sent.push((self.now, message.payload.expect("a payload"))),
            Output::Write { id, write } => {
                let answer = (self.answer)(&write);
                self.writes.push((self.now, id, write));
                if let Some(result) = answer {
                    self.core.handle(self.now, Input::Done { write: id, result });
                }
            }
            Output::Event { about, reason, message, .. } => {
                self.events.push(Event { about: format!("{} {}", about.0, about.1), reason, message });
            }
            Output::DropSession { reason } => self.dropped.push(reason),
            Output::WatchPods { node } => {
                self.watched.push(node.clone());
                for pod in self.pods.iter().flatten().filter(|pod| pod.node == node) {
                    self.core.handle(self.now, Input::Pod(pod.clone()));
                }
                if self.pods.is_some() {
                    self.core.handle(self.now, Input::PodsListed(node));
                }
            }
            Output::UnwatchPods { node } => self.watched.retain(|watched| *watched != node),
        }
    }

    /// Lets time pass, from wake to wake. Fails when the core asks to be woken without end.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let target = self.now.after(duration);
        let mut stuck = 0;
        while let Some(wake) = self.core.next_wake(self.now).filter(|wake| *wake <= target) {
            stuck = if wake > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 5, "the core wants to be woken at {wake:?} again and again");
            self.now = self.now.max(wake);
            self.pump();
        }
        self.now = target;
        self.pump();
    }

    pub(crate) fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// The writes since the last call.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        self.writes.drain(..).map(|(_, _, write)| write).collect()
    }

    /// What the writes since the last call say of UpcomingNodes: machine and phase, `None` for deleted.
    pub(crate) fn phases(&mut self) -> Vec<(String, Option<bigfleet_operator::io::Phase>)> {
        let of = |write| match write {
            Write::PutUpcomingNode(object) => {
                let UpcomingNode { machine, phase, .. } = *object;
                Some((machine.expect("a machine").to_string(), Some(phase)))
            }
            Write::DeleteUpcomingNode { machine } => Some((machine.to_string(), None)),
            _ => None,
        };
        self.take_writes().into_iter().filter_map(of).collect()
    }
}

pub(crate) fn frame(payload: Down) -> Input {
    Input::Frame(Box::new(ShardMessage { payload: Some(payload) }))
}

pub(crate) fn state_frame(machine: &str, state: MachineState) -> Input {
    frame(Down::NodeStateUpdate(state_update(machine, state)))
}

pub(crate) fn state_update(machine: &str, state: MachineState) -> NodeStateUpdate {
    NodeStateUpdate {
        machine_id: machine.to_owned(),
        cluster_id: CLUSTER.to_owned(),
        state: state.into(),
        ..Default::default()
    }
}

pub(crate) fn request(uid: &str, resources: &[(&str, &str)]) -> CapacityRequest {
    CapacityRequest {
        uid: uid.into(),
        namespace: "training".to_owned(),
        name: format!("cr-{uid}"),
        resources: strings(resources),
        ..Default::default()
    }
}

pub(crate) fn cpu(uid: &str, amount: &str) -> Input {
    Input::Request(Arc::new(request(uid, &[("cpu", amount)])))
}

pub(crate) fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

/// A ready node that carries the label of machine `machine`.
pub(crate) fn node(name: &str, machine: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}").into(),
        labels: strings(&[("bigfleet.lucy.sh/machine-id", machine)]),
        ready: true,
        ..Default::default()
    }
}

pub(crate) fn pod(uid: &str, node: &str) -> Pod {
    Pod {
        uid: uid.into(),
        namespace: "ns".to_owned(),
        name: format!("pod-{uid}"),
        node: node.to_owned(),
        termination_grace: Duration::from_secs(30),
        ..Default::default()
    }
}

pub(crate) fn uid(text: &str) -> Uid {
    text.into()
}
