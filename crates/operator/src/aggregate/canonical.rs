//! From a CapacityRequest to the row that it belongs to: requests that mean the same have equal rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use bigfleet_proto::gate::MAX_TEXT_BYTES;
use bigfleet_proto::gate::rollup::{MAX_REQUIREMENTS, MAX_VALUES};
use bigfleet_types::{
    Group, Operator, PenaltyBucket, Profile, Quantity, Requirement, SpreadTerm, WhenUnsatisfiable,
    is_extended,
};
use sha2::{Digest, Sha256};

use super::RowKey;
use super::shape::{Shape, ShapeError};
use crate::io::{CapacityRequest, CoLocation, LabelSelector};

/// Resource names in one request, as many as a shard takes in one row.
const MAX_RESOURCES: usize = 32;

/// Why a request contributes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// It is being deleted: withdrawn, not wrong.
    Deleted,
    /// An operator that has no meaning here, or values that do not fit it.
    BadOperator,
    /// An amount that is none.
    BadQuantity,
    /// No node can ever satisfy it.
    Contradiction,
    /// More or longer terms than a shard takes; sent, it would spoil the whole roll-up.
    TooLarge,
}

impl SkipReason {
    /// The label in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::BadOperator => "bad_operator",
            Self::BadQuantity => "bad_quantity",
            Self::Contradiction => "contradiction",
            Self::TooLarge => "too_large",
        }
    }
}

/// A request that contributes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The kind of reason.
    pub reason: SkipReason,
    /// Which field, and what is wrong with it.
    pub detail: String,
}

fn skip<T>(reason: SkipReason, detail: impl Into<String>) -> Result<T, Skip> {
    Err(Skip { reason, detail: detail.into() })
}

/// Reads what a request asks for. Says too whether an amount was cut to the largest.
pub(super) fn shape(resources: &BTreeMap<String, String>) -> Result<(Shape, bool), Skip> {
    let (shape, saturated) = Shape::parse(resources).or_else(|error| match error {
        ShapeError::Quantity(name, error) => {
            skip(SkipReason::BadQuantity, format!("spec.resources[{name}] {error}"))
        }
        ShapeError::Negative(name) => {
            skip(SkipReason::BadQuantity, format!("spec.resources[{name}] is below zero"))
        }
    })?;
    if resources.len() > MAX_RESOURCES {
        return skip(SkipReason::TooLarge, format!("spec.resources has more than {MAX_RESOURCES} names"));
    }
    for name in shape.names() {
        bounded("spec.resources", name)?;
    }
    Ok((shape, saturated))
}

/// Reads to which row a request of this shape belongs.
pub(super) fn row(request: &CapacityRequest, shape: &Shape) -> Result<RowKey, Skip> {
    let mut requirements = requirements(&request.requirements)?;
    let mut group = kinds_group(shape.names());
    if let Some(place) = request.co_location.as_ref().filter(|place| !place.topology_key.is_empty()) {
        bounded("spec.coLocation.topologyKey", &place.topology_key)?;
        let key = Arc::from(place.topology_key.as_str());
        requirements.push(Requirement { key, operator: Operator::Same, values: Vec::new() });
        group = gang_group(&request.namespace, place);
    }
    if requirements.len() > MAX_REQUIREMENTS {
        let detail = format!("spec.requirements has more than {MAX_REQUIREMENTS} terms");
        return skip(SkipReason::TooLarge, detail);
    }
    let profile = Profile::new(
        requirements,
        spread(&request.topology_spread)?,
        request.priority,
        bucket("spec.interruptionPenalty", request.interruption_penalty.as_deref())?,
        bucket("spec.reclamationPenalty", request.reclamation_penalty.as_deref())?,
    );
    Ok(RowKey { profile, group: Group::new(&group) })
}

fn bounded(field: &str, text: &str) -> Result<(), Skip> {
    if text.is_empty() {
        return skip(SkipReason::BadOperator, format!("{field} has an empty key"));
    }
    if text.len() > MAX_TEXT_BYTES {
        let detail = format!("{field} has a text of {} bytes, at most {MAX_TEXT_BYTES} fit", text.len());
        return skip(SkipReason::TooLarge, detail);
    }
    Ok(())
}

/// What all terms on one key say together.
#[derive(Default)]
struct Terms<'a> {
    within: Option<BTreeSet<&'a str>>,
    without: BTreeSet<&'a str>,
    present: bool,
    absent: bool,
}

fn requirements(terms: &[(String, String, Vec<String>)]) -> Result<Vec<Requirement>, Skip> {
    let mut keys: BTreeMap<&str, Terms> = BTreeMap::new();
    for (i, (key, operator, values)) in terms.iter().enumerate() {
        let field = format!("spec.requirements[{i}]");
        bounded(&field, key)?;
        let entry = keys.entry(key).or_default();
        let set = values.iter().map(String::as_str);
        match (operator.as_str(), values.is_empty()) {
            ("In", _) => {
                let set = set.collect();
                entry.within = Some(match entry.within.take() {
                    None => set,
                    Some(known) => &known & &set,
                });
            }
            ("NotIn", _) => entry.without.extend(set),
            ("Exists", true) => entry.present = true,
            ("DoesNotExist", true) => entry.absent = true,
            ("Exists" | "DoesNotExist", false) => {
                let detail = format!("{field}: {operator} on {key:?} takes no values");
                return skip(SkipReason::BadOperator, detail);
            }
            _ => {
                let detail =
                    format!("{field}.operator is {operator:?}; known are In, NotIn, Exists and DoesNotExist");
                return skip(SkipReason::BadOperator, detail);
            }
        }
    }
    let mut canonical = Vec::with_capacity(keys.len());
    for (key, terms) in keys {
        settle(key, terms, &mut canonical)?;
    }
    Ok(canonical)
}

/// Writes down what is left of the terms on `key`.
fn settle(key: &str, terms: Terms, out: &mut Vec<Requirement>) -> Result<(), Skip> {
    let name: Arc<str> = key.into();
    let mut push = |operator, values: BTreeSet<&str>| -> Result<(), Skip> {
        if values.len() > MAX_VALUES {
            let detail = format!("spec.requirements on {key:?} have more than {MAX_VALUES} values");
            return skip(SkipReason::TooLarge, detail);
        }
        let values = values.into_iter().map(Arc::from).collect();
        out.push(Requirement { key: name.clone(), operator, values });
        Ok(())
    };
    if let Some(value) =
        terms.within.iter().flatten().chain(&terms.without).find(|value| value.len() > MAX_TEXT_BYTES)
    {
        bounded("spec.requirements", value)?;
    }
    if terms.absent && (terms.present || terms.within.is_some()) {
        let detail = format!("spec.requirements want the label {key:?} both present and absent");
        return skip(SkipReason::Contradiction, detail);
    }
    match terms.within {
        Some(within) => {
            let left = &within - &terms.without;
            if left.is_empty() {
                let detail = format!("spec.requirements leave no value for the label {key:?}");
                return skip(SkipReason::Contradiction, detail);
            }
            push(Operator::In, left)?;
        }
        None => {
            if !terms.without.is_empty() {
                push(Operator::NotIn, terms.without)?;
            }
            if terms.present {
                push(Operator::Exists, BTreeSet::new())?;
            }
        }
    }
    if terms.absent {
        push(Operator::DoesNotExist, BTreeSet::new())?;
    }
    Ok(())
}

/// Only enforced terms: nothing reads the others, they would only split rows.
fn spread(terms: &[(String, i32, String)]) -> Result<Vec<SpreadTerm>, Skip> {
    let mut enforced = Vec::new();
    for (key, max_skew, when) in terms {
        if when == "DoNotSchedule" {
            bounded("spec.topologySpread", key)?;
            enforced.push(SpreadTerm {
                topology_key: key.as_str().into(),
                max_skew: (*max_skew).max(1),
                when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
            });
        }
    }
    Ok(enforced)
}

fn bucket(field: &str, dollars: Option<&str>) -> Result<PenaltyBucket, Skip> {
    let Some(text) = dollars else {
        return Ok(PenaltyBucket::ZERO);
    };
    match Quantity::parse(text) {
        Ok(dollars) => Ok(PenaltyBucket::from_dollars(dollars)),
        Err(error) => skip(SkipReason::BadQuantity, format!("{field} {error}")),
    }
}

/// Keeps pods that need devices apart from those that do not, because a row's `min_unit` is what every machine must
/// offer. Empty when none of the names is a device.
#[must_use]
pub fn kinds_group<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let devices: BTreeSet<&str> = names.into_iter().filter(|name| is_extended(name)).collect();
    if devices.is_empty() {
        return String::new();
    }
    let joined = devices.into_iter().collect::<Vec<_>>().join("\u{1f}");
    format!("kinds/{}", hex32(&joined))
}

/// The identity of a gang: the same for all its pods, whatever way they spell their selector.
#[must_use]
pub fn gang_group(namespace: &str, place: &CoLocation) -> String {
    let selector = place.selector.as_ref().map_or_else(|| "!".to_owned(), selector);
    let identity = format!("{namespace}\u{1f}{}\u{1f}{selector}", place.topology_key);
    format!("{namespace}/{}", hex32(&identity))
}

fn selector(selector: &LabelSelector) -> String {
    let labels =
        selector.match_labels.iter().map(|(key, value)| (key.as_str(), "In", value.as_str().to_owned()));
    let expressions = selector.match_expressions.iter().map(|(key, operator, values)| {
        let values: BTreeSet<&str> = values.iter().map(String::as_str).collect();
        (key.as_str(), operator.as_str(), values.into_iter().collect::<Vec<_>>().join(","))
    });
    let terms: BTreeSet<_> = labels.chain(expressions).collect();
    terms.into_iter().map(|(key, operator, values)| format!("{key} {operator} {values};")).collect()
}

/// The first 32 hex digits of SHA-256.
fn hex32(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest[..16].iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
