//! What goes into the operator core and what comes out of it. The core decides; a shell (the in-memory cluster, or
//! Kubernetes) watches and writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::{BootstrapRequest, ClusterCapacityNeeds, OperatorMessage, ShardMessage};
use bigfleet_types::{MachineId, UnixNanos};
use bytes::Bytes;

/// Something happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A CapacityRequest appeared or changed.
    Request(Arc<CapacityRequest>),
    /// A CapacityRequest is there and cannot be read. What it said before, if anything, stays in force.
    RequestUnreadable(Uid),
    /// A CapacityRequest is gone.
    RequestGone(Uid),
    /// A list of the CapacityRequests begins. The requests that follow, up to [`Input::Synced`], replace all that is
    /// known; until then the old ones stay in force. Needed for a second list only.
    Listing,
    /// Every object has been seen once: from now on the aggregate is the cluster's whole demand.
    Synced,
    /// The CapacityRequests cannot be read any more (forbidden, no such kind). No roll-up until the next
    /// [`Input::Synced`]; a watch that is merely interrupted is no reason to say so.
    Unsynced,
    /// An UpcomingNode of ours that the cluster holds, at start and when it changes.
    UpcomingNode(Box<UpcomingNode>),
    /// An UpcomingNode is gone.
    UpcomingNodeGone(MachineId),
    /// An AvailableCapacity of ours that the cluster holds, at start.
    AvailableCapacity(Box<AvailableCapacity>),
    /// The AvailableCapacity of this key is gone.
    AvailableCapacityGone(String),
    /// Every DaemonSet of the cluster, now and then; only of use with `Config::daemonset_overhead`.
    DaemonSets(Vec<DaemonSet>),
    /// The version of the API server, such as `v1.33.1`.
    ServerVersion(String),
    /// A node appeared or changed.
    Node(Arc<Node>),
    /// A node is gone.
    NodeGone(String),
    /// A pod that is bound to a node appeared or changed. Kept only for nodes under [`Output::WatchPods`]; others may
    /// be sent and are ignored.
    Pod(Arc<Pod>),
    /// Every pod of the node has been sent since [`Output::WatchPods`] asked for them. Before, no drain of the node
    /// can end.
    PodsListed(String),
    /// A pod is gone.
    PodGone(Uid),
    /// The session is up; Hello has been written by the shell.
    Connected,
    /// The session ended.
    Disconnected,
    /// A frame of the shard.
    Frame(Box<ShardMessage>),
    /// The roll-up with this timestamp has left for the shard.
    RollupWritten {
        /// The timestamp that it carried.
        timestamp_unix_nanos: i64,
    },
    /// A write that the core asked for was answered.
    Done {
        /// Which one.
        write: WriteId,
        /// How it went.
        result: Result<(), WriteError>,
    },
}

/// The uid of a Kubernetes object.
pub type Uid = Arc<str>;

/// One write, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// One CapacityRequest, as much of it as decides anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapacityRequest {
    /// Its uid.
    pub uid: Uid,
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.requirements`: key, operator as text, values.
    pub requirements: Vec<(String, String, Vec<String>)>,
    /// `spec.resources`: quantity strings by name.
    pub resources: BTreeMap<String, String>,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.interruptionPenalty`, a quantity of dollars.
    pub interruption_penalty: Option<String>,
    /// `spec.reclamationPenalty`, a quantity of dollars.
    pub reclamation_penalty: Option<String>,
    /// `spec.topologySpread`: topology key, max skew, when unsatisfiable as text.
    pub topology_spread: Vec<(String, i32, String)>,
    /// `spec.coLocation`.
    pub co_location: Option<CoLocation>,
    /// Whether its status says that it has been acknowledged.
    pub acknowledged: bool,
}

/// Pods that must run within one domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoLocation {
    /// The label whose value they share.
    pub topology_key: String,
    /// Who belongs together; `None` is no selector at all.
    pub selector: Option<LabelSelector>,
}

/// A label selector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// Exact labels.
    pub match_labels: BTreeMap<String, String>,
    /// Key, operator as text, values.
    pub match_expressions: Vec<(String, String, Vec<String>)>,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Uid,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`; empty when unset.
    pub provider_id: String,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether its Ready condition is true.
    pub ready: bool,
    /// Its taints: key, value, effect.
    pub taints: Vec<(String, String, String)>,
    /// What it offers pods.
    pub allocatable: Amounts,
}

/// Amounts of the two resources that every pod takes, in nano-units: of cores, and of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// Nano-cores.
    pub cpu: i128,
    /// Nano-bytes.
    pub memory: i128,
}

impl Amounts {
    /// Adds; stays within the numbers that there are.
    pub fn add(&mut self, more: Self) {
        self.cpu = self.cpu.saturating_add(more.cpu);
        self.memory = self.memory.saturating_add(more.memory);
    }
}

/// A DaemonSet, as much of it as says where its pods run and what they take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSet {
    /// What one pod of it takes.
    pub requests: Amounts,
    /// The one node that its pods name, if they do.
    pub node: Option<String>,
    /// Labels that a node must have.
    pub selector: BTreeMap<String, String>,
    /// Required node affinity, of which one term must hold; `None` without any.
    pub terms: Option<Vec<NodeTerm>>,
    /// What its pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Whether its pods share the network of their node.
    pub host_network: bool,
}

/// Conditions on a node that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeTerm {
    /// On its labels.
    pub labels: Vec<NodeCondition>,
    /// On its fields.
    pub fields: Vec<NodeCondition>,
}

/// One condition on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeCondition {
    /// The label or field.
    pub key: String,
    /// The operator as text.
    pub operator: String,
    /// What the operator is about.
    pub values: Vec<String>,
}

/// A toleration; an empty text stands for what is unset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toleration {
    /// The taint's key.
    pub key: String,
    /// `Exists`, else equality.
    pub operator: String,
    /// The taint's value.
    pub value: String,
    /// The taint's effect.
    pub effect: String,
}

/// A pod bound to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// Its uid.
    pub uid: Uid,
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is bound to.
    pub node: String,
    /// Whether it has run to its end.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a DaemonSet owns it.
    pub daemon_set: bool,
    /// Whether it mirrors a static pod.
    pub mirror: bool,
    /// Whether it is this operator itself.
    pub operator_itself: bool,
    /// Whether nothing makes it again once it is gone: no controller owns it.
    pub naked: bool,
    /// Its own termination grace.
    pub termination_grace: Duration,
}

/// How a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The object is gone, or is another one of the same name.
    Gone,
    /// A disruption budget forbids it for now, or the server is throttling.
    TooMany {
        /// When to try again, if the server said so.
        retry_after: Option<Duration>,
        /// What the server said.
        message: String,
    },
    /// Somebody else changed the object.
    Conflict,
    /// Anything else.
    Other(String),
}

/// Something is to be done.
#[derive(Debug, Clone)]
pub enum Output {
    /// Put a roll-up into the session's one slot, replacing one that still waits there.
    Rollup(Box<ClusterCapacityNeeds>),
    /// Queue a frame for the shard.
    Send(Box<OperatorMessage>),
    /// Write to the cluster; answered by [`Input::Done`].
    Write {
        /// Its number.
        id: WriteId,
        /// What.
        write: Write,
    },
    /// Send the pods of a node as [`Input::Pod`] (also those sent before), then [`Input::PodsListed`], then their
    /// changes.
    WatchPods {
        /// The node.
        node: String,
    },
    /// The node's pods are of no interest any more.
    UnwatchPods {
        /// The node.
        node: String,
    },
    /// Tell people (an Event on the object).
    Event {
        /// What it is about: kind and name.
        about: (String, String),
        /// `true` for Warning.
        warning: bool,
        /// CamelCase reason.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
    /// The session is dead though its stream is not: end it.
    DropSession {
        /// Why.
        reason: String,
    },
}

/// A write to the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Mark a CapacityRequest as acknowledged.
    AcknowledgeRequest {
        /// Which one.
        uid: Uid,
        /// Where it lives.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Cordon a node and note our drain on it, in one patch.
    Cordon {
        /// The node.
        node: String,
        /// Its uid: another node of the name is left alone.
        uid: Uid,
        /// Annotations to set.
        annotations: BTreeMap<String, String>,
    },
    /// Uncordon a node that we cordoned and remove our annotations.
    Uncordon {
        /// The node.
        node: String,
        /// Its uid: another node of the name is left alone.
        uid: Uid,
        /// Annotations to remove.
        annotations: Vec<String>,
    },
    /// Set labels on a node.
    LabelNode {
        /// The node.
        node: String,
        /// Its uid: another node of the name is left alone.
        uid: Uid,
        /// Labels to set.
        labels: BTreeMap<String, String>,
    },
    /// Ask for a pod's eviction, with its uid as precondition.
    Evict {
        /// The pod.
        pod: Uid,
        /// Where it lives.
        namespace: String,
        /// Its name.
        name: String,
        /// The grace to give it.
        grace: Duration,
    },
    /// Delete a pod without grace, with its uid as precondition.
    DeletePod {
        /// The pod.
        pod: Uid,
        /// Where it lives.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Delete a node whose machine has left, with its uid as precondition.
    DeleteNode {
        /// The node.
        node: String,
        /// Its uid.
        uid: Uid,
    },
    /// Create or update the UpcomingNode of a machine.
    PutUpcomingNode(Box<UpcomingNode>),
    /// Delete the UpcomingNode of a machine.
    DeleteUpcomingNode {
        /// The machine.
        machine: MachineId,
    },
    /// Create or update an AvailableCapacity.
    PutAvailableCapacity(Box<AvailableCapacity>),
    /// Delete an AvailableCapacity.
    DeleteAvailableCapacity {
        /// The key that names it.
        key: String,
    },
}

/// How far a machine is on its way into, or out of, the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// Being made.
    #[default]
    Provisioning,
    /// Made, not bound.
    Launched,
    /// Joining.
    Registered,
    /// Joined.
    Ready,
    /// Leaving.
    Draining,
    /// Emptied.
    Drained,
    /// Broken, or its drain ran out of time.
    Failed,
}

impl Phase {
    /// All of them, in the order of a machine's way.
    pub const ALL: [Self; 7] = [
        Self::Provisioning,
        Self::Launched,
        Self::Registered,
        Self::Ready,
        Self::Draining,
        Self::Drained,
        Self::Failed,
    ];
}

/// What the cluster is told of a machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UpcomingNode {
    /// The machine.
    pub machine: Option<MachineId>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it offers pods.
    pub resources: BTreeMap<String, String>,
    /// Its taints: key, value, effect.
    pub taints: Vec<(String, String, String)>,
    /// When the operator first heard of it.
    pub provisioning_start: Option<UnixNanos>,
    /// Its provider id; empty when unknown.
    pub provider_id: String,
    /// How far it is.
    pub phase: Phase,
    /// The node, once known.
    pub node: Option<String>,
    /// Why it failed; empty otherwise.
    pub last_error: String,
}

/// What the cluster is told of supply that it could have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AvailableCapacity {
    /// The key that names it.
    pub key: String,
    /// Requirements as text: key, operator, values.
    pub requirements: Vec<(String, String, Vec<String>)>,
    /// How many machines could come.
    pub count: u32,
    /// `None`, `Low`, `Medium` or `High`.
    pub confidence: &'static str,
    /// Dollars an hour, as a decimal.
    pub cost_per_hour: String,
    /// What one machine offers.
    pub resources: BTreeMap<String, String>,
}

/// Makes what lets a machine join the cluster. Works without I/O: the shard waits.
pub trait Render: Send + Sync {
    /// Renders the data for one machine.
    ///
    /// # Errors
    /// Why there is none, in one line without secrets.
    fn render(&self, request: &BootstrapRequest) -> Result<Rendered, String>;
}

/// What lets a machine join. A secret: neither printed nor kept.
pub struct Rendered {
    /// The data.
    pub user_data: Bytes,
    /// How long it may be used from now on.
    pub ttl: Duration,
}
