//! Which Node a machine is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bigfleet_types::{MachineId, keys};

use super::annotations;
use crate::io::Node;

/// Nodes with this label are never drained.
const PROTECTED: &str = "node-role.kubernetes.io/control-plane";

/// The cluster's nodes, indexed by what ties them to machines.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_name: BTreeMap<String, Arc<Node>>,
    by_label: HashMap<String, BTreeSet<String>>,
    by_provider_id: HashMap<String, BTreeSet<String>>,
    /// Nodes whose cordon is ours.
    cordoned: BTreeSet<String>,
}

/// The answer to "which Node is this machine?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resolution {
    None,
    One(String),
    /// More than one at the first level that has any.
    Ambiguous,
}

impl Nodes {
    /// Takes a node; says whether anything changed that ties nodes to machines or concerns drains.
    pub(super) fn put(&mut self, node: Arc<Node>) -> bool {
        let known = self.by_name.get(&node.name);
        if known.is_some_and(|known| known == &node) {
            return false;
        }
        self.remove(&node.name);
        if let Some(machine) = label(&node) {
            self.by_label.entry(machine.to_owned()).or_default().insert(node.name.clone());
        }
        for id in provider_ids(&node) {
            self.by_provider_id.entry(id.to_owned()).or_default().insert(node.name.clone());
        }
        if annotations::ours(&node) {
            self.cordoned.insert(node.name.clone());
        }
        self.by_name.insert(node.name.clone(), node);
        true
    }

    /// Forgets a node.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Node>> {
        let node = self.by_name.remove(name)?;
        let forget = |index: &mut HashMap<String, BTreeSet<String>>, key: &str| {
            if let Some(names) = index.get_mut(key) {
                names.remove(name);
                if names.is_empty() {
                    index.remove(key);
                }
            }
        };
        if let Some(machine) = label(&node) {
            forget(&mut self.by_label, machine);
        }
        for id in provider_ids(&node) {
            forget(&mut self.by_provider_id, id);
        }
        self.cordoned.remove(name);
        Some(node)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Node>> {
        self.by_name.get(name)
    }

    /// Every node.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.by_name.values()
    }

    /// Nodes whose cordon is ours.
    pub(super) fn cordoned(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.cordoned.iter().filter_map(|name| self.by_name.get(name))
    }

    /// The Node of a machine, by the first of: the machine-id label, the name that the shard knows, the provider id
    /// (whole or its last segment), a name equal to the machine's id. A node labelled for another machine is never it.
    pub(super) fn resolve(&self, machine: &MachineId, node_name: &str, provider_id: &str) -> Resolution {
        let id = machine.as_str();
        let unclaimed = |name: &&String| {
            self.by_name.get(*name).is_some_and(|node| label(node).is_none_or(|other| other == id))
        };
        let labelled = self.by_label.get(id).into_iter().flatten();
        let named = self.by_name.get_key_value(node_name).map(|(name, _)| name);
        let provided =
            self.by_provider_id.get(provider_id).filter(|_| !provider_id.is_empty()).into_iter().flatten();
        let same = self.by_name.get_key_value(id).map(|(name, _)| name);
        let levels: [Vec<&String>; 4] = [
            labelled.collect(),
            named.into_iter().filter(unclaimed).collect(),
            provided.filter(unclaimed).collect(),
            same.into_iter().filter(unclaimed).collect(),
        ];
        match levels.iter().find(|names| !names.is_empty()).map(Vec::as_slice) {
            None => Resolution::None,
            Some([name]) => Resolution::One((*name).clone()),
            Some(_) => Resolution::Ambiguous,
        }
    }
}

/// The machine that a node's label names.
pub(super) fn label(node: &Node) -> Option<&str> {
    node.labels.get(keys::MACHINE_ID).map(String::as_str).filter(|id| !id.is_empty())
}

/// Whether the node must never be drained.
pub(super) fn is_protected(node: &Node) -> bool {
    node.labels.contains_key(PROTECTED)
}

/// The whole provider id and its last segment.
fn provider_ids(node: &Node) -> BTreeSet<&str> {
    let whole = node.provider_id.as_str();
    let last = whole.rsplit('/').next().unwrap_or(whole);
    [whole, last].into_iter().filter(|id| !id.is_empty()).collect()
}
