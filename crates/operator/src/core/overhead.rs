//! What DaemonSets take of the fleet's nodes. A machine never offers all of itself to the pods that are counted, so that
//! the sums of the demand are raised by as much.

use std::collections::BTreeMap;

use bigfleet_types::UnixNanos;

use super::{Core, nodes};
use crate::aggregate::Raise;
use crate::io::{Amounts, DaemonSet, Node, NodeCondition, NodeTerm, Toleration};

/// Taints that the DaemonSet controller makes its pods tolerate.
const TOLERATED: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];
/// The same, for pods in the network of their node.
const NETWORK: &str = "node.kubernetes.io/network-unavailable";
/// The largest share that is believed, in percent: what is above is a mistake in some object, and a demand without bound.
const MOST: u8 = 90;
/// A share falls once it is this far below its step, in half percents: it does not swing between two steps.
const SLACK_HALVES: i128 = 3;

/// The shares in force.
#[derive(Debug, Default)]
pub(super) struct Overhead {
    /// Whether DaemonSets have ever been read.
    pub(super) known: bool,
    pub(super) raise: Raise,
}

impl Core {
    /// All DaemonSets, as they are now.
    pub(super) fn on_daemon_sets(&mut self, now: UnixNanos, sets: &[DaemonSet]) {
        if !self.config.daemonset_overhead {
            return;
        }
        let before = self.overhead.raise;
        let fleet = self
            .nodes
            .all()
            .filter(|node| nodes::label(node).is_some() || self.owners.contains_key(&node.name));
        let (taken, offered) = sums(sets, fleet.map(|node| &**node));
        let raise = Raise {
            cpu: step(before.cpu, taken.cpu, offered.cpu),
            memory: step(before.memory, taken.memory, offered.memory),
        };
        self.overhead = Overhead { known: true, raise };
        self.counters.daemonset_overhead =
            BTreeMap::from([("cpu", u64::from(raise.cpu)), ("memory", u64::from(raise.memory))]);
        if raise != before {
            tracing::info!(
                cpu = raise.cpu,
                memory = raise.memory,
                "DaemonSets take another share of the nodes, in percent"
            );
        }
        if raise.cpu > before.cpu || raise.memory > before.memory {
            self.grew(now);
        }
    }
}

/// What DaemonSets take of these nodes, and what the nodes offer.
fn sums<'a>(sets: &[DaemonSet], fleet: impl Iterator<Item = &'a Node>) -> (Amounts, Amounts) {
    let mut both = (Amounts::default(), Amounts::default());
    for node in fleet {
        both.1.add(node.allocatable);
        sets.iter().filter(|set| runs_on(set, node)).for_each(|set| both.0.add(set.requests));
    }
    both
}

/// The step that follows `before`: whole percents, rounded up, at most [`MOST`]. Without nodes the step stays.
fn step(before: u8, taken: i128, offered: i128) -> u8 {
    if offered <= 0 {
        return before;
    }
    let hundredfold = taken.max(0).saturating_mul(100);
    let percent = hundredfold / offered + i128::from(hundredfold % offered > 0);
    let percent = u8::try_from(percent).unwrap_or(MOST).min(MOST);
    let edge = (2 * i128::from(before) - SLACK_HALVES).saturating_mul(offered);
    let far_below = taken <= 0 || hundredfold.saturating_mul(2) <= edge;
    if percent > before || far_below { percent } else { before }
}

/// Whether the DaemonSet controller puts a pod of the set on the node.
fn runs_on(set: &DaemonSet, node: &Node) -> bool {
    let tolerated = |(key, value, effect): &(String, String, String)| {
        TOLERATED.contains(&key.as_str())
            || (set.host_network && key == NETWORK)
            || !matches!(effect.as_str(), "NoSchedule" | "NoExecute")
            || set.tolerations.iter().any(|one| tolerates(one, key, value, effect))
    };
    set.node.as_ref().is_none_or(|name| *name == node.name)
        && set.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && set.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| meets(term, node)))
        && node.taints.iter().all(tolerated)
}

fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let any_value = toleration.operator == "Exists";
    // Without a key, Exists means every taint.
    let of_key = toleration.key == key || (toleration.key.is_empty() && any_value);
    let of_effect = toleration.effect.is_empty() || toleration.effect == effect;
    of_key && of_effect && (any_value || toleration.value == value)
}

/// A term without conditions matches nothing.
fn meets(term: &NodeTerm, node: &Node) -> bool {
    let fields = |one: &NodeCondition| {
        let name = Some(node.name.as_str()).filter(|_| one.key == "metadata.name");
        holds(one, name)
    };
    let empty = term.labels.is_empty() && term.fields.is_empty();
    !empty
        && term.labels.iter().all(|one| holds(one, node.labels.get(&one.key).map(String::as_str)))
        && term.fields.iter().all(fields)
}

fn holds(condition: &NodeCondition, value: Option<&str>) -> bool {
    let among = || value.is_some_and(|value| condition.values.iter().any(|one| one == value));
    let numbers = || {
        let bound = condition.values.first()?.parse::<i64>().ok()?;
        Some((value?.parse::<i64>().ok()?, bound))
    };
    match condition.operator.as_str() {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_to_whole_percents_and_falls_with_slack() {
        assert_eq!(step(0, 0, 1_000), 0);
        assert_eq!(step(0, 1, 1_000), 1, "0.1 %");
        assert_eq!(step(0, 125, 1_000), 13, "12.5 %");
        assert_eq!(step(0, 130, 1_000), 13, "13 %");
        assert_eq!(step(13, 131, 1_000), 14, "it rises at once");
        assert_eq!(step(14, 130, 1_000), 14, "and does not fall back at once");
        assert_eq!(step(14, 126, 1_000), 14);
        assert_eq!(step(14, 125, 1_000), 13, "a percent and a half below its step");
        assert_eq!(step(1, 1, 1_000), 1);
        assert_eq!(step(1, 0, 1_000), 0, "no DaemonSet at all is no swing");
    }

    #[test]
    fn a_share_is_bounded_and_stays_without_nodes() {
        assert_eq!(step(0, 899, 1_000), 90);
        assert_eq!(step(0, 999, 1_000), 90);
        assert_eq!(step(0, 5_000, 1_000), 90, "more than there is");
        assert_eq!(step(0, i128::MAX, 1), 90);
        assert_eq!(step(90, 500, 1_000), 50);
        assert_eq!(step(13, 0, 0), 13);
        assert_eq!(step(13, 7, 0), 13);
    }

    fn text(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn node() -> Node {
        let labels = [("os", "linux"), ("cores", "8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        Node { name: "n".to_owned(), labels: labels.into(), ..Node::default() }
    }

    fn condition(key: &str, operator: &str, values: &[&str]) -> NodeCondition {
        NodeCondition { key: key.to_owned(), operator: operator.to_owned(), values: text(values) }
    }

    #[test]
    fn a_set_runs_where_its_selector_and_its_affinity_say() {
        let with = |labels: &[NodeCondition], fields: &[NodeCondition]| DaemonSet {
            terms: Some(vec![NodeTerm { labels: labels.to_vec(), fields: fields.to_vec() }]),
            ..DaemonSet::default()
        };
        let runs = |set: &DaemonSet| runs_on(set, &node());
        assert!(runs(&DaemonSet::default()));
        let selector = |value: &str| BTreeMap::from([("os".to_owned(), value.to_owned())]);
        assert!(runs(&DaemonSet { selector: selector("linux"), ..DaemonSet::default() }));
        assert!(!runs(&DaemonSet { selector: selector("windows"), ..DaemonSet::default() }));
        assert!(!runs(&DaemonSet { node: Some("other".to_owned()), ..DaemonSet::default() }));
        for (operator, values, expected) in [
            ("In", &["4", "8"][..], true),
            ("In", &["4"], false),
            ("NotIn", &["8"], false),
            ("Exists", &[], true),
            ("DoesNotExist", &[], false),
            ("Gt", &["7"], true),
            ("Gt", &["8"], false),
            ("Lt", &["9"], true),
            ("Lt", &["many"], false),
            ("Like", &["8"], false),
        ] {
            assert_eq!(
                runs(&with(&[condition("cores", operator, values)], &[])),
                expected,
                "{operator} {values:?}"
            );
        }
        assert!(runs(&with(&[condition("none", "NotIn", &["8"])], &[])), "what is not there is not in");
        assert!(runs(&with(&[], &[condition("metadata.name", "In", &["n"])])));
        assert!(!runs(&with(&[], &[condition("metadata.name", "In", &["m"])])));
        assert!(!runs(&with(&[], &[])), "a term without conditions matches nothing");
        let mut two = with(&[condition("os", "In", &["windows"])], &[]);
        two.terms
            .get_or_insert_default()
            .extend(with(&[condition("os", "Exists", &[])], &[]).terms.unwrap_or_default());
        assert!(runs(&two), "one term is enough");
    }

    #[test]
    fn a_set_runs_where_it_tolerates_every_taint() {
        let tainted = |key: &str, effect: &str| Node {
            taints: vec![(key.to_owned(), "v".to_owned(), effect.to_owned())],
            ..node()
        };
        let tolerating = |key: &str, operator: &str, value: &str, effect: &str| DaemonSet {
            tolerations: vec![Toleration {
                key: key.to_owned(),
                operator: operator.to_owned(),
                value: value.to_owned(),
                effect: effect.to_owned(),
            }],
            ..DaemonSet::default()
        };
        let gpu = tainted("gpu", "NoSchedule");
        assert!(!runs_on(&DaemonSet::default(), &gpu));
        assert!(runs_on(&DaemonSet::default(), &tainted("gpu", "PreferNoSchedule")));
        assert!(runs_on(&DaemonSet::default(), &tainted(TOLERATED[5], "NoSchedule")), "a cordoned node");
        assert!(!runs_on(&DaemonSet::default(), &tainted(NETWORK, "NoSchedule")));
        assert!(runs_on(
            &DaemonSet { host_network: true, ..DaemonSet::default() },
            &tainted(NETWORK, "NoSchedule")
        ));
        assert!(runs_on(&tolerating("gpu", "Equal", "v", ""), &gpu));
        assert!(runs_on(&tolerating("gpu", "", "v", "NoSchedule"), &gpu));
        assert!(!runs_on(&tolerating("gpu", "Equal", "w", ""), &gpu));
        assert!(!runs_on(&tolerating("gpu", "Exists", "", "NoExecute"), &gpu));
        assert!(runs_on(&tolerating("", "Exists", "", ""), &gpu), "everything");
        assert!(!runs_on(&tolerating("", "Equal", "v", ""), &gpu));
    }
}
