//! Emptying one node: a state machine that knows its pods and its deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::chance::Chance;
use bigfleet_types::{MachineId, UnixNanos};

use super::retry;
use crate::io::{Pod, Uid, Write, WriteError, WriteId};

/// Other failures than a refusal wait this long.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// A pod blocked for longer is worth an event.
const BLOCKED: Duration = Duration::from_secs(30);
/// Tries of a cordon in the first five seconds, by when the next follows.
const CORDON_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Drained,
    /// Time ran out; says what is left.
    Failed(String),
}

/// How far the cordon is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cordon {
    Due {
        at: UnixNanos,
        tries: usize,
    },
    Asked {
        id: WriteId,
        tries: usize,
    },
    Done,
    /// There is no such node any more.
    Gone,
}

/// What a drain wants done.
#[derive(Debug)]
pub(super) enum Step {
    Cordon,
    /// List and watch the node's pods.
    Watch,
    Evict {
        uid: Uid,
        write: Write,
        first: bool,
        /// Whether nothing makes the pod again.
        naked: bool,
    },
    /// The eviction has been refused for long.
    Blocked {
        namespace: String,
        name: String,
        message: String,
    },
    Delete(Write),
    Ended,
}

/// An Event about a drain's node.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug)]
pub(super) struct Drain {
    pub(super) node: String,
    pub(super) machine: MachineId,
    pub(super) instruction: String,
    pub(super) deadline: UnixNanos,
    /// What the deadline was made of.
    pub(super) grace: Duration,
    /// The epoch of the shard's process that ordered it last; 0 when it is not known.
    pub(super) epoch: i64,
    /// The session in which an instruction for it came last; `None` for a drain that nobody ordered.
    pub(super) ordered_in: Option<u64>,
    pub(super) cordon: Cordon,
    pub(super) outcome: Option<Outcome>,
    /// What to tell people once the cordon is there.
    pub(super) notice: Option<Notice>,
    /// Whether the list has been asked for that [`Drain::listed`] is about.
    watched: bool,
    /// Whether [`Drain::pods`] are all there are.
    listed: bool,
    pods: BTreeMap<Uid, Evictee>,
}

#[derive(Debug)]
struct Evictee {
    pod: Arc<Pod>,
    ask: Ask,
    asked_before: bool,
    refused_since: Option<UnixNanos>,
    told: bool,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Due(UnixNanos),
    Asked(WriteId),
    /// The pod is on its way out.
    Accepted,
}

impl Drain {
    pub(super) fn new(
        now: UnixNanos,
        node: String,
        machine: MachineId,
        instruction: String,
        deadline: UnixNanos,
        cordoned: bool,
    ) -> Self {
        let cordon = if cordoned { Cordon::Done } else { Cordon::Due { at: now, tries: 0 } };
        let grace = deadline.since(now);
        let pods = BTreeMap::new();
        Self {
            node,
            machine,
            instruction,
            deadline,
            grace,
            epoch: 0,
            ordered_in: None,
            cordon,
            outcome: None,
            notice: None,
            watched: false,
            listed: false,
            pods,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.outcome.is_none()
    }

    pub(super) fn pod(&mut self, now: UnixNanos, pod: &Arc<Pod>) {
        match self.pods.get_mut(&pod.uid) {
            Some(known) => known.pod = pod.clone(),
            None => {
                let evictee = Evictee {
                    pod: pod.clone(),
                    ask: Ask::Due(now),
                    asked_before: false,
                    refused_since: None,
                    told: false,
                    message: "not evicted yet".to_owned(),
                };
                self.pods.insert(pod.uid.clone(), evictee);
            }
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    pub(super) fn listed(&mut self) {
        self.listed = true;
    }

    /// The eviction of `uid` has this number.
    pub(super) fn evicting(&mut self, uid: &str, id: WriteId) {
        if let Some(evictee) = self.pods.get_mut(uid) {
            evictee.ask = Ask::Asked(id);
            evictee.asked_before = true;
        }
    }

    /// A write was answered; `None` when it is none of this drain, else the label of the answer for evictions.
    pub(super) fn answered(
        &mut self,
        now: UnixNanos,
        id: WriteId,
        result: &Result<(), WriteError>,
        chance: &mut dyn Chance,
    ) -> Option<Option<&'static str>> {
        if let Cordon::Asked { id: asked, tries } = self.cordon
            && asked == id
        {
            self.cordon = match result {
                Ok(()) => {
                    // A list of before may lack a pod that was bound just ahead of the cordon.
                    self.watched = false;
                    self.listed = false;
                    Cordon::Done
                }
                Err(WriteError::Gone) => Cordon::Gone,
                Err(_) => {
                    let pause = CORDON_PAUSES.get(tries).copied().unwrap_or(FAILURE_PAUSE);
                    Cordon::Due { at: now.after(pause), tries: tries + 1 }
                }
            };
            return Some(None);
        }
        let (uid, evictee) = self.pods.iter_mut().find(|(_, evictee)| evictee.ask == Ask::Asked(id))?;
        let label = match result {
            Ok(()) => {
                evictee.ask = Ask::Accepted;
                evictee.message = "terminating".to_owned();
                "accepted"
            }
            Err(WriteError::Gone | WriteError::Conflict) => {
                let uid = uid.clone();
                self.pods.remove(&uid);
                return Some(Some("gone"));
            }
            Err(WriteError::TooMany { retry_after, message }) => {
                let pause = retry_after.unwrap_or_else(|| retry::after_refusal(chance));
                evictee.ask = Ask::Due(now.after(pause));
                evictee.refused_since.get_or_insert(now);
                evictee.message.clone_from(message);
                "refused"
            }
            Err(WriteError::Other(message)) => {
                evictee.ask = Ask::Due(now.after(FAILURE_PAUSE));
                evictee.refused_since.get_or_insert(now);
                evictee.message.clone_from(message);
                "failed"
            }
        };
        Some(Some(label))
    }

    /// What is to be done now. `evict` is false while too many other drains are under way.
    pub(super) fn step(&mut self, now: UnixNanos, evict: bool, force: bool) -> Vec<Step> {
        if self.outcome.is_some() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        match self.cordon {
            Cordon::Gone => return self.end(Outcome::Drained, steps),
            Cordon::Due { at, .. } if at <= now => steps.push(Step::Cordon),
            _ => {}
        }
        if self.may_evict() && !self.watched {
            self.watched = true;
            steps.push(Step::Watch);
        }
        let remaining = self.pods.values().filter(|evictee| counts(&evictee.pod)).count();
        // A node that still takes pods is not empty for good.
        if self.listed && remaining == 0 && (self.cordon == Cordon::Done || now >= self.deadline) {
            return self.end(Outcome::Drained, steps);
        }
        if now >= self.deadline {
            if force && self.listed {
                let left = self.pods.values().filter(|evictee| counts(&evictee.pod));
                steps.extend(left.map(|evictee| Step::Delete(delete(&evictee.pod))));
                return self.end(Outcome::Drained, steps);
            }
            let left = self.left(remaining);
            return self.end(Outcome::Failed(left), steps);
        }
        if evict && self.may_evict() {
            self.evictions(now, &mut steps);
        }
        steps
    }

    /// A pod evicted from a node that still takes pods would come right back; but when the cordon keeps failing, that
    /// is better than to be killed.
    fn may_evict(&self) -> bool {
        match self.cordon {
            Cordon::Done => true,
            Cordon::Due { tries, .. } | Cordon::Asked { tries, .. } => tries > CORDON_PAUSES.len(),
            Cordon::Gone => false,
        }
    }

    /// Whether nothing but pods of the operator itself has to go.
    fn only_operator_left(&self) -> bool {
        self.listed && !self.pods.values().any(|e| counts(&e.pod) && !e.pod.operator_itself)
    }

    fn evictions(&mut self, now: UnixNanos, steps: &mut Vec<Step>) {
        let operator_too = self.only_operator_left();
        let left = self.deadline.since(now);
        for (uid, evictee) in &mut self.pods {
            let pod = &evictee.pod;
            if !counts(pod) || pod.deleting || (pod.operator_itself && !operator_too) {
                continue;
            }
            if !evictee.told && evictee.refused_since.is_some_and(|since| now.since(since) > BLOCKED) {
                evictee.told = true;
                steps.push(Step::Blocked {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    message: evictee.message.clone(),
                });
            }
            if let Ask::Due(at) = evictee.ask
                && at <= now
            {
                let grace = Duration::from_secs(pod.termination_grace.min(left).as_secs().max(1));
                let write = Write::Evict {
                    pod: uid.clone(),
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    grace,
                };
                let first = !evictee.asked_before;
                steps.push(Step::Evict { uid: uid.clone(), write, first, naked: pod.naked });
            }
        }
    }

    fn end(&mut self, outcome: Outcome, mut steps: Vec<Step>) -> Vec<Step> {
        self.outcome = Some(outcome);
        self.pods.clear();
        steps.push(Step::Ended);
        steps
    }

    /// What is left when time runs out.
    fn left(&self, remaining: usize) -> String {
        let seconds = self.grace.as_secs();
        if !self.listed {
            return format!("{DEADLINE_EXCEEDED} after {seconds}s: the node's pods could not be listed");
        }
        let pods: Vec<String> = self
            .pods
            .values()
            .filter(|evictee| counts(&evictee.pod))
            .map(|Evictee { pod, message, .. }| {
                let why = if pod.deleting { "terminating" } else { message };
                format!("{}/{}: {why}", pod.namespace, pod.name)
            })
            .collect();
        let plural = if remaining == 1 { "pod remains" } else { "pods remain" };
        format!("{DEADLINE_EXCEEDED} after {seconds}s: {remaining} {plural} ({})", pods.join("; "))
    }

    /// When [`Drain::step`] has something to do next, given the same `evict`.
    pub(super) fn next_wake(&self, evict: bool) -> Option<UnixNanos> {
        if self.outcome.is_some() {
            return None;
        }
        let cordon = match self.cordon {
            Cordon::Due { at, .. } => Some(at),
            _ => None,
        };
        let evict = evict && self.may_evict();
        let operator_too = self.only_operator_left();
        let asks = self.pods.values().filter_map(|e| match e.ask {
            Ask::Due(at) if evict && counts(&e.pod) && !e.pod.deleting => {
                (operator_too || !e.pod.operator_itself).then_some(at)
            }
            _ => None,
        });
        let watch = (self.may_evict() && !self.watched).then_some(UnixNanos(i64::MIN));
        asks.chain(cordon).chain(watch).chain([self.deadline]).min()
    }
}

/// How the message of an expired drain begins.
pub(super) const DEADLINE_EXCEEDED: &str = "drain deadline exceeded";

/// Whether the node is not empty while this pod is there.
fn counts(pod: &Pod) -> bool {
    !(pod.daemon_set || pod.mirror || pod.finished)
}

fn delete(pod: &Pod) -> Write {
    Write::DeletePod { pod: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() }
}
