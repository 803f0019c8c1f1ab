//! The operator's core: a plain value. Inputs and time go in, outputs come out; it reads no clock and does no I/O.
//!
//! A shell calls [`Core::handle`] for what happens, [`Core::poll`] when [`Core::next_wake`] says so (and after a batch
//! of inputs), and carries out [`Core::drain_outputs`] in order.

mod acks;
mod annotations;
mod answers;
pub mod bootstrap;
mod cadence;
mod counters;
mod demand;
mod drain;
mod hints;
mod machines;
pub mod names;
mod nodes;
mod overhead;
pub mod phase;
mod reclaim;
mod retry;
mod reversal;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_proto::v1alpha1::{Acknowledgement, ShardMessage};
use bigfleet_types::chance::Seeded;
use bigfleet_types::{ClusterId, MachineId, UnixNanos};

pub use annotations::Order;
pub use counters::Counters;
use counters::bump;
use demand::{Demand, Session};
use drain::Drain;
use hints::Hint;
use machines::Machine;
use nodes::Nodes;
use overhead::Overhead;
use reclaim::PendingAck;
use writes::Writes;

use crate::io::{Input, Output, Render, Uid, Write, WriteId};

/// How often old objects are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// How the core behaves; [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster that it speaks for.
    pub cluster: ClusterId,
    /// The period of roll-ups.
    pub rollup_interval: Duration,
    /// Whether growing demand is sent ahead of the period.
    pub rollup_on_increase: bool,
    /// The largest roll-up that is sent, in encoded bytes.
    pub max_rollup_bytes: usize,
    /// Parallel writes that acknowledge requests.
    pub ack_concurrency: usize,
    /// Whether pods that outlive a drain are deleted.
    pub force_delete_at_deadline: bool,
    /// Whether the Node object of a machine that left is deleted.
    pub delete_node_on_release: bool,
    /// Whether the sums of cpu and memory are raised by what DaemonSets take of the fleet's nodes. Then no roll-up is
    /// sent before the DaemonSets are known.
    pub daemonset_overhead: bool,
    /// How many bootstrap requests are answered.
    pub bootstrap_limit: bootstrap::Limit,
    /// Seeds the jitter of retries.
    pub seed: u64,
}

impl Config {
    /// The defaults, for one cluster.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            rollup_interval: Duration::from_secs(10),
            rollup_on_increase: true,
            max_rollup_bytes: 64 << 20,
            ack_concurrency: 16,
            force_delete_at_deadline: false,
            delete_node_on_release: false,
            daemonset_overhead: false,
            bootstrap_limit: bootstrap::Limit::default(),
            seed: 0,
        }
    }
}

/// The core.
pub struct Core {
    config: Config,
    render: Arc<dyn Render>,
    counters: Counters,
    outputs: Outputs,
    chance: Seeded,
    /// The latest time that came in; time never goes back.
    now: UnixNanos,
    demand: Demand,
    session: Option<Session>,
    /// Sessions so far.
    sessions: u64,
    /// How long all sessions before this one lasted.
    connected_before: Duration,
    server_version: Option<String>,
    nodes: Nodes,
    overhead: Overhead,
    /// Whether machines must be looked up again.
    nodes_changed: bool,
    machines: BTreeMap<MachineId, Machine>,
    /// The machine that a node is.
    owners: HashMap<String, MachineId>,
    /// Nodes whose machine left, to be deleted.
    leaving: BTreeMap<String, Uid>,
    hints: BTreeMap<String, Hint>,
    writes: Writes,
    drains: BTreeMap<String, Drain>,
    drain_writes: HashMap<WriteId, String>,
    pending_acks: Vec<PendingAck>,
    turns: bootstrap::Turns,
    /// Nodes whose cordon has been taken back and that have not shown it yet.
    uncordoned: BTreeSet<String>,
    /// Machines whose drain is off and whose node may still show our cordon.
    called_off: BTreeSet<MachineId>,
    /// The first of two resyncs that ask for a large sweep.
    large_sweep: Option<UnixNanos>,
    housekeeping: UnixNanos,
}

/// What is to be done, in order.
#[derive(Default)]
struct Outputs {
    list: Vec<Output>,
    writes: u64,
}

impl Outputs {
    fn push(&mut self, output: Output) {
        self.list.push(output);
    }

    fn write(&mut self, write: Write) -> WriteId {
        self.writes += 1;
        let id = WriteId(self.writes);
        self.list.push(Output::Write { id, write });
        id
    }
}

impl Core {
    /// A core that knows nothing yet and is not connected.
    #[must_use]
    pub fn new(config: Config, render: Arc<dyn Render>) -> Self {
        Self {
            chance: Seeded::new(config.seed),
            config,
            render,
            counters: Counters::default(),
            outputs: Outputs::default(),
            now: UnixNanos(i64::MIN),
            demand: Demand::default(),
            session: None,
            sessions: 0,
            connected_before: Duration::ZERO,
            server_version: None,
            nodes: Nodes::default(),
            overhead: Overhead::default(),
            nodes_changed: false,
            machines: BTreeMap::new(),
            owners: HashMap::new(),
            leaving: BTreeMap::new(),
            hints: BTreeMap::new(),
            writes: Writes::default(),
            drains: BTreeMap::new(),
            drain_writes: HashMap::new(),
            pending_acks: Vec::new(),
            turns: bootstrap::Turns::default(),
            uncordoned: BTreeSet::new(),
            called_off: BTreeSet::new(),
            large_sweep: None,
            housekeeping: UnixNanos(i64::MIN),
        }
    }

    /// Takes one input. What needs no waiting is answered at once, the rest by the next [`Core::poll`].
    pub fn handle(&mut self, now: UnixNanos, input: Input) {
        let now = self.advance(now);
        match input {
            Input::Request(request) => self.on_request(now, &request),
            Input::RequestUnreadable(uid) => self.on_request_unreadable(&uid),
            Input::RequestGone(uid) => self.on_request_gone(&uid),
            Input::Listing => self.on_listing(),
            Input::Synced => self.on_synced(now),
            Input::Unsynced => {
                tracing::error!("the CapacityRequests cannot be read; no roll-up is sent until they can");
                self.demand.synced = false;
            }
            Input::UpcomingNode(object) => self.on_upcoming(now, *object),
            Input::UpcomingNodeGone(machine) => self.on_upcoming_gone(&machine),
            Input::AvailableCapacity(object) => self.on_stored_hint(now, *object),
            Input::AvailableCapacityGone(key) => self.on_hint_gone(&key),
            Input::DaemonSets(sets) => self.on_daemon_sets(now, &sets),
            Input::ServerVersion(version) => self.server_version = Some(version),
            Input::Node(node) => {
                let name = node.name.clone();
                if self.nodes.get(&name).is_some_and(|known| known.uid != node.uid) {
                    // Another one of the same name: what was true of the old one ends with it.
                    self.on_node_gone(&name);
                }
                if self.nodes.put(node) {
                    self.nodes_changed = true;
                    self.uncordoned.remove(&name);
                }
            }
            Input::NodeGone(name) => self.on_node_gone(&name),
            Input::Pod(pod) => {
                if let Some(drain) = self.drains.get_mut(&pod.node).filter(|drain| drain.is_active()) {
                    drain.pod(now, &pod);
                }
            }
            Input::PodGone(uid) => self.drains.values_mut().for_each(|drain| drain.pod_gone(&uid)),
            Input::PodsListed(node) => {
                if let Some(drain) = self.drains.get_mut(&node) {
                    drain.listed();
                }
            }
            Input::Connected => self.on_connected(now),
            Input::Disconnected => self.on_disconnected(now),
            Input::Frame(frame) => self.on_frame(now, *frame),
            Input::RollupWritten { timestamp_unix_nanos } => self.on_rollup_written(timestamp_unix_nanos),
            Input::Done { write, result } => self.on_done(now, write, result),
        }
    }

    fn on_node_gone(&mut self, name: &str) {
        self.nodes_changed |= self.nodes.remove(name).is_some();
        self.uncordoned.remove(name);
        self.leaving.remove(name);
        if let Some(drain) = self.drains.get_mut(name) {
            drain.cordon = drain::Cordon::Gone;
        }
    }

    /// Builds a roll-up if one is due; whether one was. [`Core::poll`] does so too: this is for who wants to know how
    /// long it takes.
    pub fn poll_rollup(&mut self, now: UnixNanos) -> bool {
        let now = self.advance(now);
        let before = self.counters.rollups;
        self.rollup_if_due(now);
        self.counters.rollups > before
    }

    /// Does what is due.
    pub fn poll(&mut self, now: UnixNanos) {
        let now = self.advance(now);
        self.rollup_if_due(now);
        if std::mem::take(&mut self.nodes_changed) {
            self.resolve_all(now);
        }
        self.poll_drains(now);
        self.poll_bootstraps(now);
        if self.session.is_some() {
            if self.housekeeping <= now {
                self.housekeeping = now.after(HOUSEKEEPING);
                self.housekeep(now);
            }
            while let Some((key, write)) = self.writes.next(now) {
                let id = self.outputs.write(write);
                self.writes.started(id, key);
            }
            while let Some((uid, write)) = self.demand.acks.next(now, self.config.ack_concurrency) {
                let id = self.outputs.write(write);
                self.demand.acks.writing(id, uid);
            }
        }
        self.counters.requests = u64::try_from(self.demand.aggregate.len()).unwrap_or(u64::MAX);
        self.counters.requests_pending = u64::try_from(self.demand.acks.pending()).unwrap_or(u64::MAX);
        self.counters.ack_queue = u64::try_from(self.demand.acks.depth()).unwrap_or(u64::MAX);
        let active = self.drains.values().filter(|drain| drain.is_active()).count();
        self.counters.drains_active = u64::try_from(active).unwrap_or(u64::MAX);
    }

    /// When [`Core::poll`] has something to do next; `None` when only an input can change that. Not later than `now`
    /// when something is due.
    #[must_use]
    pub fn next_wake(&self, now: UnixNanos) -> Option<UnixNanos> {
        let mut wakes = [None; 7];
        wakes[0] = self.next_drain_wake();
        wakes[1] = self.nodes_changed.then_some(now);
        wakes[6] = self.turns.next_wake();
        if let Some(session) = &self.session {
            wakes[2] = self.demand_is_known().then(|| session.cadence.next_wake());
            wakes[3] = self.writes.next_wake();
            wakes[4] = self.demand.acks.next_wake(self.config.ack_concurrency);
            wakes[5] = Some(self.housekeeping);
        }
        wakes.into_iter().flatten().min()
    }

    /// What is to be done, in order.
    pub fn drain_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs.list)
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn advance(&mut self, now: UnixNanos) -> UnixNanos {
        self.now = self.now.max(now);
        self.now
    }

    fn on_connected(&mut self, now: UnixNanos) {
        self.on_disconnected(now);
        self.sessions += 1;
        self.session = Some(Session::new(now, self.config.rollup_interval));
        self.housekeeping = now.after(HOUSEKEEPING);
    }

    /// Nothing is started without a session: what waits is dropped, drains under way go on.
    fn on_disconnected(&mut self, now: UnixNanos) {
        if self.session.is_some() {
            self.connected_before = self.connected_time(now);
        }
        self.session = None;
        self.pending_acks.clear();
        self.turns.disconnected();
        self.uncordoned.clear();
        self.writes.clear();
        self.demand.acks.disconnected();
        self.forget_frames();
    }

    fn on_frame(&mut self, now: UnixNanos, frame: ShardMessage) {
        if self.session.is_none() {
            return bump(&mut self.counters.frames_ignored, "no_session");
        }
        match frame.payload {
            Some(Payload::Ack(ack)) => self.on_ack(now, &ack),
            Some(Payload::BootstrapRequest(request)) => self.on_bootstrap_request(now, request),
            Some(Payload::ReclaimInstruction(instruction)) => self.on_reclaim(now, instruction),
            Some(Payload::NodeStateUpdate(update)) => self.on_node_state(now, update),
            Some(Payload::AvailableCapacity(update)) => self.on_hint(now, update),
            None => bump(&mut self.counters.frames_ignored, "unknown_payload"),
        }
    }

    fn on_ack(&mut self, now: UnixNanos, ack: &Acknowledgement) {
        match ack.echo.as_str() {
            "hello" => {
                tracing::debug!(term = ack.coordinator_term, epoch = ack.shard_epoch, "the shard answered");
                if let Some(session) = &mut self.session {
                    session.epoch = ack.shard_epoch;
                    session.cadence.hello(now);
                }
            }
            "rollup" => self.on_rollup_acked(now, ack),
            "rollup_rejected" => self.on_rollup_rejected(ack),
            "resync" => {
                if let Some(session) = &mut self.session {
                    session.resynced = true;
                }
                self.call_off_superseded();
                self.sweep_after_resync(now);
            }
            _ => bump(&mut self.counters.frames_ignored, "unknown_echo"),
        }
    }

    fn housekeep(&mut self, now: UnixNanos) {
        if self.session.as_ref().is_some_and(|session| !session.resynced) {
            self.sweep_unconfirmed(now);
        }
        self.sweep_hints(now);
        self.delete_left_nodes(now);
    }

    /// How long there has been a session, all in all.
    fn connected_time(&self, now: UnixNanos) -> Duration {
        let current = self.session.as_ref().map_or(Duration::ZERO, |session| now.since(session.since));
        self.connected_before + current
    }

    fn event(&mut self, about: (&str, &str), warning: bool, reason: &'static str, message: String) {
        let about = (about.0.to_owned(), about.1.to_owned());
        self.outputs.push(Output::Event { about, warning, reason, message });
    }
}
