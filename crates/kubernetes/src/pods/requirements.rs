//! Which nodes a pod may run on: its node selector and required node affinity as conditions that must all hold.
//!
//! Affinity may offer alternatives, a CapacityRequest may not. Alternatives that differ in the values of one label are
//! joined; otherwise the first is taken, which is narrower than the pod but never wrong. A condition is never dropped:
//! that would buy machines which the pod cannot use.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod};

use crate::crd::Requirement;

/// The label that every node has.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// The conditions of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    /// They must all hold.
    pub all: Vec<Requirement>,
    /// Whether alternatives were left out.
    pub narrowed: bool,
}

/// Why a pod's node affinity has no form in a CapacityRequest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// It names its node: no new machine could ever help.
    #[error("required node affinity names the node by matchFields")]
    Pinned,
    /// No alternative can be expressed.
    #[error(
        "spec.affinity.nodeAffinity: no alternative uses only In, NotIn, Exists and DoesNotExist on labels; the pod gets no CapacityRequest"
    )]
    Inexpressible,
}

/// Reads the conditions off a pod. One without any gets a condition that every node meets.
///
/// # Errors
/// Every variant of [`Unsupported`].
pub fn of(pod: &Pod) -> Result<Requirements, Unsupported> {
    let Some(spec) = &pod.spec else { return Ok(Requirements::default()) };
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let mut found = match required {
        None => Requirements::default(),
        Some(required) => alternatives(&required.node_selector_terms)?,
    };
    let selector = spec.node_selector.iter().flatten();
    found.all.extend(selector.map(|(key, value)| condition(key, "In", vec![value.clone()])));
    if found.all.is_empty() {
        found.all.push(condition(INSTANCE_TYPE, "Exists", Vec::new()));
    }
    Ok(found)
}

fn condition(key: &str, operator: &str, values: Vec<String>) -> Requirement {
    Requirement { key: key.to_owned(), operator: operator.to_owned(), values }
}

fn alternatives(terms: &[NodeSelectorTerm]) -> Result<Requirements, Unsupported> {
    let empty = |term: &NodeSelectorTerm| {
        term.match_expressions.as_ref().is_none_or(Vec::is_empty)
            && term.match_fields.as_ref().is_none_or(Vec::is_empty)
    };
    // A term without conditions matches no node.
    let terms: Vec<&NodeSelectorTerm> = terms.iter().filter(|term| !empty(term)).collect();
    let pins = |term: &&NodeSelectorTerm| term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty());
    if !terms.is_empty() && terms.iter().all(pins) {
        return Err(Unsupported::Pinned);
    }
    let mut usable: Vec<Vec<Requirement>> = Vec::new();
    let mut dropped = false;
    for term in &terms {
        match expressible(term) {
            Some(conditions) if usable.contains(&conditions) => {}
            Some(conditions) => usable.push(conditions),
            None => dropped = true,
        }
    }
    let Some((first, others)) = usable.split_first() else { return Err(Unsupported::Inexpressible) };
    if others.is_empty() {
        return Ok(Requirements { all: first.clone(), narrowed: dropped });
    }
    Ok(match joined(first, others) {
        Some(all) => Requirements { all, narrowed: dropped },
        None => Requirements { all: first.clone(), narrowed: true },
    })
}

/// The conditions of one alternative in a canonical order; `None` when one has no form.
fn expressible(term: &NodeSelectorTerm) -> Option<Vec<Requirement>> {
    if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        return None;
    }
    let mut conditions = Vec::new();
    for one in term.match_expressions.iter().flatten() {
        if !matches!(one.operator.as_str(), "In" | "NotIn" | "Exists" | "DoesNotExist") {
            return None;
        }
        let mut values = one.values.clone().unwrap_or_default();
        values.sort_unstable();
        values.dedup();
        conditions.push(condition(&one.key, &one.operator, values));
    }
    conditions.sort_unstable();
    conditions.dedup();
    Some(conditions)
}

/// One set of conditions for alternatives that differ only in the values of one `In`.
fn joined(first: &[Requirement], others: &[Vec<Requirement>]) -> Option<Vec<Requirement>> {
    (0..first.len()).filter(|at| first[*at].operator == "In").find_map(|at| {
        let mut union = first[at].clone();
        for other in others {
            let same = |one: &Requirement| one.operator == "In" && one.key == union.key;
            let there =
                (0..other.len()).find(|i| same(&other[*i]) && without(other, *i) == without(first, at))?;
            union.values.extend(other[there].values.iter().cloned());
        }
        union.values.sort_unstable();
        union.values.dedup();
        let mut all: Vec<Requirement> = without(first, at).into_iter().cloned().collect();
        all.push(union);
        all.sort_unstable();
        Some(all)
    })
}

fn without(conditions: &[Requirement], at: usize) -> Vec<&Requirement> {
    conditions.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, one)| one).collect()
}
