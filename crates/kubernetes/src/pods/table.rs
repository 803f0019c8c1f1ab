//! Whose turn it is: everything that is known, the keys that something happened to, and what waits for its time.
//!
//! A plain value: events and time in, jobs out. A key is at work once at a time; what happens to it meanwhile brings it
//! back. Nothing is decided before everything has been listed once, and a list replaces what was known at its end, not
//! at its beginning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::backoff::Backoff;
use bigfleet_types::UnixNanos;

use super::core::{Action, Current, Decision, Outcome, Rules, decide};
use super::facts::Facts;
use super::store::Store;

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// When what the API server refuses for what it says is tried again: only a change of the pod or of the API server
/// can help.
const REFUSED_RETRY: Duration = Duration::from_secs(300);

/// How long nothing is made in a namespace that ends; one of its name that follows is noticed after that.
const ENDING_RETRY: Duration = Duration::from_secs(30);

/// How long a watch may take to show what an answer has shown.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(60);

/// Namespace and name.
pub type Key = Arc<(String, String)>;

/// Makes a key.
#[must_use]
pub fn key(namespace: &str, name: &str) -> Key {
    Arc::new((namespace.to_owned(), name.to_owned()))
}

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Pods.
    Pod,
    /// CapacityRequests.
    CapacityRequest,
    /// Nodes whose machines are not the fleet's.
    Node,
}

/// A pod as it was last read.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// It can be read.
    Readable(Arc<Facts>),
    /// It cannot: nothing is changed for it. Its uid.
    Unreadable(String),
}

/// A CapacityRequest as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What decides.
    pub current: Current,
    /// The name of the pod that owns it, if one does.
    pub pod_name: Option<String>,
}

/// What a watch says.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A list begins; what follows up to its end replaces what is known.
    Listing(Kind),
    /// The list has ended.
    Listed(Kind),
    /// A pod is there.
    Pod(Key, Seen),
    /// A pod is gone.
    PodGone(Key),
    /// A CapacityRequest is there.
    Request(Key, Held),
    /// A CapacityRequest is gone.
    RequestGone(Key),
    /// A node whose machine is not the fleet's is there.
    Node(String),
    /// It is gone, or is the fleet's now.
    NodeGone(String),
}

impl Event {
    /// The kind that it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Listing(kind) | Self::Listed(kind) => *kind,
            Self::Pod(..) | Self::PodGone(_) => Kind::Pod,
            Self::Request(..) | Self::RequestGone(_) => Kind::CapacityRequest,
            Self::Node(_) | Self::NodeGone(_) => Kind::Node,
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Done; the CapacityRequest as the API server answered with it, if it did.
    Done(Option<Current>),
    /// The namespace ends, and its pods with it.
    Moot,
    /// To be tried again, not before the given time if there is one.
    Retry(Option<Duration>),
    /// The API server will not have it as it is.
    Refused,
}

/// Something to do for a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The pod's key.
    pub key: Key,
    /// The pod; `None` when it is gone.
    pub pod: Option<Arc<Facts>>,
    /// What to do and say.
    pub decision: Decision,
}

/// A CapacityRequest whose pod is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its own key.
    pub key: Key,
    /// Its uid.
    pub uid: String,
}

/// Everything that is known and everything that waits.
#[derive(Debug)]
pub struct Table {
    rules: Rules,
    pods: Store<Key, Seen>,
    requests: Store<Key, Held>,
    nodes: Store<String, ()>,
    queue: VecDeque<Key>,
    queued: BTreeSet<Key>,
    running: BTreeSet<Key>,
    later: BTreeSet<(UnixNanos, Key)>,
    failures: BTreeMap<Key, Backoff>,
    orphans: VecDeque<Orphan>,
    /// CapacityRequests that are known from an answer only, since then.
    unconfirmed: BTreeMap<Key, UnixNanos>,
    /// Namespaces that end, and until when nothing is made in them.
    ending: BTreeMap<String, UnixNanos>,
}

impl Table {
    /// An empty table. Without `watches_nodes` no node counts as unmanaged.
    #[must_use]
    pub fn new(rules: Rules, watches_nodes: bool) -> Self {
        let mut nodes = Store::new();
        nodes.listed = !watches_nodes;
        Self {
            rules,
            pods: Store::new(),
            requests: Store::new(),
            nodes,
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            later: BTreeSet::new(),
            failures: BTreeMap::new(),
            orphans: VecDeque::new(),
            unconfirmed: BTreeMap::new(),
            ending: BTreeMap::new(),
        }
    }

    /// The kinds that have not been listed yet. While there is one, no job is given out.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        let all = [
            (Kind::Pod, self.pods.listed),
            (Kind::CapacityRequest, self.requests.listed),
            (Kind::Node, self.nodes.listed),
        ];
        all.into_iter().filter(|(_, listed)| !listed).map(|(kind, _)| kind).collect()
    }

    /// How many pods and CapacityRequests are known.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.pods.live.len(), self.requests.live.len())
    }

    /// How many pods wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Puts new rules in force: every pod is looked at again.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let keys: Vec<Key> = self.pods.live.keys().cloned().collect();
        keys.into_iter().for_each(|key| self.enqueue(key));
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes in what a watch says. Gives the uids of pods that are gone.
    pub fn on(&mut self, event: Event) -> Vec<String> {
        let mut gone = Vec::new();
        match event {
            Event::Listing(Kind::Pod) => self.pods.fresh = Some(BTreeMap::new()),
            Event::Listing(Kind::CapacityRequest) => self.requests.fresh = Some(BTreeMap::new()),
            Event::Listing(Kind::Node) => self.nodes.fresh = Some(BTreeMap::new()),
            Event::Listed(Kind::Pod) => {
                for (key, before) in self.pods.listed() {
                    gone.extend(
                        before
                            .filter(|before| self.uid_at(&key) != Some(uid(before)))
                            .map(|one| uid(&one).to_owned()),
                    );
                    self.touched(key);
                }
            }
            Event::Listed(Kind::CapacityRequest) => {
                for (key, before) in self.requests.listed() {
                    let now = self.requests.live.get(&key).cloned();
                    self.pod_of(&key, before.as_ref());
                    self.pod_of(&key, now.as_ref());
                }
            }
            Event::Listed(Kind::Node) => {
                let changed: BTreeSet<String> =
                    self.nodes.listed().into_iter().map(|(node, _)| node).collect();
                self.on_nodes(&changed);
            }
            Event::Pod(key, seen) => {
                let before = self.uid_at(&key).map(str::to_owned);
                let now = uid(&seen).to_owned();
                if self.pods.put(key.clone(), seen) {
                    gone.extend(before.filter(|before| *before != now));
                    self.touched(key);
                }
            }
            Event::PodGone(key) => {
                if let Some(before) = self.pods.remove(&key) {
                    gone.push(uid(&before).to_owned());
                    self.touched(key);
                }
            }
            Event::Request(key, held) => {
                self.unconfirmed.remove(&key);
                if self.requests.put(key.clone(), held.clone()) {
                    self.pod_of(&key, Some(&held));
                }
            }
            Event::RequestGone(key) => {
                self.unconfirmed.remove(&key);
                let before = self.requests.remove(&key);
                self.pod_of(&key, before.as_ref());
            }
            Event::Node(node) => {
                if self.nodes.put(node.clone(), ()) {
                    self.on_nodes(&BTreeSet::from([node]));
                }
            }
            Event::NodeGone(node) => {
                if self.nodes.remove(&node).is_some() {
                    self.on_nodes(&BTreeSet::from([node]));
                }
            }
        }
        gone
    }

    fn uid_at(&self, key: &Key) -> Option<&str> {
        self.pods.live.get(key).map(uid)
    }

    /// The pod itself changed: what went wrong with it before says nothing any more.
    fn touched(&mut self, key: Key) {
        self.failures.remove(&key);
        self.enqueue(key);
    }

    fn pod_of(&mut self, request: &Key, held: Option<&Held>) {
        if let Some(pod) = held.and_then(|held| held.pod_name.as_deref()) {
            self.enqueue(key(&request.0, pod));
        }
    }

    fn on_nodes(&mut self, changed: &BTreeSet<String>) {
        let on = |seen: &Seen| match seen {
            Seen::Readable(pod) => pod.node.as_ref().is_some_and(|node| changed.contains(node)),
            Seen::Unreadable(_) => false,
        };
        let keys: Vec<Key> =
            self.pods.live.iter().filter(|(_, seen)| on(seen)).map(|(key, _)| key.clone()).collect();
        keys.into_iter().for_each(|key| self.enqueue(key));
    }

    fn enqueue(&mut self, key: Key) {
        if self.queued.insert(key.clone()) && !self.running.contains(&key) {
            self.queue.push_back(key);
        }
    }

    /// When the next pod's time comes, if one waits for it.
    #[must_use]
    pub fn wakes(&self) -> Option<UnixNanos> {
        self.later.first().map(|(at, _)| *at)
    }

    /// The next job; its key is at work until [`Self::done`].
    pub fn next(&mut self, now: UnixNanos) -> Option<Job> {
        if !self.missing().is_empty() {
            return None;
        }
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.enqueue(key);
            }
        }
        loop {
            let key = self.queue.pop_front()?;
            self.queued.remove(&key);
            let pod = match self.pods.live.get(&key) {
                Some(Seen::Unreadable(_)) => continue,
                Some(Seen::Readable(pod)) => Arc::clone(pod),
                None => {
                    let decision = Decision {
                        action: Action::Nothing,
                        outcome: Outcome::PodGone,
                        notices: Vec::new(),
                        again: None,
                    };
                    self.running.insert(key.clone());
                    return Some(Job { key, pod: None, decision });
                }
            };
            let request = Arc::new((pod.namespace.clone(), pod.request_name()));
            if self.unconfirmed.get(&request).is_some_and(|at| now.since(*at) >= CONFIRMED_WITHIN) {
                self.unconfirmed.remove(&request);
                self.requests.live.remove(&request);
            }
            let current = self.requests.live.get(&request).map(|held| &held.current);
            let nodes = &self.nodes.live;
            let mut decision = decide(&pod, current, &self.rules, &|node| nodes.contains_key(node), now);
            if let (Action::Apply(_), Some(until)) = (&decision.action, self.ending.get(&pod.namespace)) {
                if *until > now {
                    decision = Decision {
                        action: Action::Nothing,
                        outcome: Outcome::PodGone,
                        notices: Vec::new(),
                        again: Some(*until),
                    };
                } else {
                    self.ending.remove(&pod.namespace);
                }
            }
            self.running.insert(key.clone());
            return Some(Job { key, pod: Some(pod), decision });
        }
    }

    /// A job has ended. `chance` is any 64 random bits.
    pub fn done(&mut self, job: &Job, ended: Ended, now: UnixNanos, chance: u64) {
        let key = &job.key;
        self.running.remove(key);
        if self.queued.contains(key) {
            self.queue.push_back(Arc::clone(key));
        }
        match ended {
            Ended::Done(answer) => {
                self.failures.remove(key);
                self.take_answer(job, answer, now);
                if let Some(at) = job.decision.again {
                    self.later.insert((at, Arc::clone(key)));
                }
            }
            Ended::Moot => {
                self.failures.remove(key);
                let until = now.after(ENDING_RETRY);
                self.ending.insert(key.0.clone(), until);
                self.later.insert((until, Arc::clone(key)));
            }
            Ended::Refused => {
                self.later.insert((now.after(REFUSED_RETRY), Arc::clone(key)));
            }
            Ended::Retry(least) => {
                let backoff = self
                    .failures
                    .entry(Arc::clone(key))
                    .or_insert_with(|| Backoff::new(FIRST_RETRY, LAST_RETRY));
                let delay = backoff.next_delay(chance).max(least.unwrap_or_default());
                self.later.insert((now.after(delay), Arc::clone(key)));
            }
        }
    }

    /// What the API server answered is known before the watch says it, so that the pod is not decided twice.
    /// If the watch never does, the object went away in between.
    fn take_answer(&mut self, job: &Job, answer: Option<Current>, now: UnixNanos) {
        let Some(pod) = &job.pod else { return };
        let request = key(&pod.namespace, &pod.request_name());
        match (&job.decision.action, answer) {
            (Action::Apply(_), Some(current)) => {
                let held = Held { current, pod_name: Some(pod.name.clone()) };
                if self.requests.live.get(&request) != Some(&held) {
                    self.unconfirmed.insert(Arc::clone(&request), now);
                    self.later.insert((now.after(CONFIRMED_WITHIN), Arc::clone(&job.key)));
                }
                self.requests.live.insert(request, held);
            }
            (Action::Delete { .. }, _) => {
                if let Some(held) = self.requests.live.get_mut(&request) {
                    held.current.deleting = true;
                }
            }
            _ => {}
        }
    }

    /// Looks for CapacityRequests of pods that are not there, and for second ones of a pod. Normally the garbage
    /// collector has been faster.
    pub fn sweep(&mut self) {
        if !self.missing().is_empty() {
            return;
        }
        let pods: BTreeMap<&str, Option<&Arc<Facts>>> = self
            .pods
            .live
            .values()
            .map(|seen| match seen {
                Seen::Readable(pod) => (pod.uid.as_str(), Some(pod)),
                Seen::Unreadable(uid) => (uid.as_str(), None),
            })
            .collect();
        let orphaned = |key: &Key, held: &Held| {
            let Some(owner) = held.current.pod.as_deref() else { return false };
            match pods.get(owner) {
                None => true,
                Some(None) => false,
                Some(Some(pod)) => pod.request_name() != key.1 || pod.namespace != key.0,
            }
        };
        let all = self.requests.live.iter().filter(|(_, held)| !held.current.deleting);
        self.orphans = all
            .filter(|(key, held)| orphaned(key, held))
            .map(|(key, held)| Orphan { key: Arc::clone(key), uid: held.current.uid.clone() })
            .collect();
    }

    /// Whether orphans wait.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The next orphan to delete.
    pub fn next_orphan(&mut self) -> Option<Orphan> {
        self.orphans.pop_front()
    }
}

fn uid(seen: &Seen) -> &str {
    match seen {
        Seen::Readable(pod) => &pod.uid,
        Seen::Unreadable(uid) => uid,
    }
}
