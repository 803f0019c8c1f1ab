//! A machine entry: the provider's record and the facts that only the shard knows.

use std::sync::Arc;

use bigfleet_engine::{Eligibility, Facts, PreemptedFor, Purpose};
use bigfleet_proto::gate::metadata;
use bigfleet_proto::v1alpha1 as wire;
use bigfleet_types::{
    CapacityType, ClusterId, Fingerprint, Group, Machine, MachineId, MachineState, NanoDollars, NeedKey,
    Probability, Quantity, ResourceName, Resources, Rounding, UnixNanos,
};

use crate::json::{Ids, Node, Refused, shown};

/// Reads `{"machine": ..., facts}`.
pub(super) fn read(node: Node<'_>, ids: &mut Ids) -> Result<(Machine, Facts), Refused> {
    let mut entry = node.object()?;
    let machine = entry.take("machine", |node| record(node, ids));
    let idle_since = entry.take("idleSinceUnixNanos", Node::int64);
    let created_for = entry.take("createdFor", |node| need_key(node, |_| Ok(())).map(|(key, ())| key));
    let excess_since = entry.take("excessSinceUnixNanos", Node::int64);
    let preempted_for = entry.take("preemptedFor", |node| {
        need_key(node, |object| Ok(object.take("priority", Node::int32).unwrap_or_default()))
            .map(|(need, priority)| PreemptedFor { need, priority })
    });
    let unknown = entry.take("preemptedForUnknown", Node::boolean).unwrap_or_default();
    let withheld = entry.take("withheld", Node::boolean).unwrap_or_default();
    entry.finish()?;
    let Some(machine) = machine else {
        return Err(Refused::at("machine", "is missing"));
    };

    let state = machine.state;
    let only_on = |fact: &str, given: bool, allowed: MachineState| {
        let wrong = given && state != allowed;
        if wrong { Err(cannot_have(fact, state)) } else { Ok(()) }
    };
    only_on("idleSinceUnixNanos", idle_since.is_some(), MachineState::Idle)?;
    only_on("createdFor", created_for.is_some(), MachineState::Creating)?;
    only_on("excessSinceUnixNanos", excess_since.is_some(), MachineState::Configured)?;
    only_on("preemptedFor", preempted_for.is_some(), MachineState::Draining)?;
    only_on("preemptedForUnknown", unknown, MachineState::Draining)?;
    if withheld && state == MachineState::Configured {
        return Err(cannot_have("withheld", state));
    }
    let preempted_for = match (preempted_for, unknown) {
        (Some(_), true) => {
            return Err(Refused::at("preemptedForUnknown", "is true although preemptedFor says for whom"));
        }
        (Some(known), false) => Purpose::Preemption(known),
        (None, true) => Purpose::Unknown,
        (None, false) => Purpose::None,
    };
    let facts = Facts {
        eligibility: if withheld { Eligibility::WITHHELD } else { Eligibility::ALL },
        idle_since: idle_since.map(UnixNanos),
        created_for,
        preempted_for,
        excess_since: excess_since.map(UnixNanos),
    };
    Ok((machine, facts))
}

fn cannot_have(fact: &str, state: MachineState) -> Refused {
    Refused::at(fact, format_args!("is nothing that a machine in state {state} can have"))
}

/// `{cluster, fingerprint, group}` and what `more` takes beside.
fn need_key<T>(
    node: Node<'_>,
    more: impl FnOnce(&mut crate::json::Object<'_>) -> Result<T, Refused>,
) -> Result<(NeedKey, T), Refused> {
    let mut object = node.object()?;
    let cluster = object.take("cluster", Node::text).unwrap_or_default();
    let fingerprint = object.take("fingerprint", Node::text).unwrap_or_default();
    let group = object.take("group", Node::text).unwrap_or_default();
    let more = more(&mut object)?;
    object.finish()?;
    if cluster.is_empty() {
        return Err(Refused::at("cluster", "must not be empty"));
    }
    // What another implementation calls its profiles names none of ours, whatever it says exactly.
    let fingerprint = Fingerprint::parse(&fingerprint).unwrap_or(Fingerprint([0; 16]));
    Ok((NeedKey { cluster: ClusterId::trusted(cluster), fingerprint, group: Group::new(&group) }, more))
}

/// Reads a `Machine`; `ids` are those that may not come again.
///
/// # Errors
/// The first field that is unknown or breaks a rule.
pub fn record(node: Node<'_>, ids: &mut Ids) -> Result<Machine, Refused> {
    let mut object = node.object()?;
    let id = object.take("id", |node| {
        let text = node.text()?;
        ids.take(&text)?;
        Ok(text)
    });
    let state = object.take("state", state);
    object.take("host", host);
    let instance_type = object.take("instanceType", Node::text).unwrap_or_default();
    let zone = object.take("zone", Node::text).unwrap_or_default();
    let capacity_type = object.take("capacityType", capacity_type).unwrap_or_default();
    let price = object.take("pricePerHour", price).unwrap_or_default();
    let interruption_probability = object.take("interruptionProbability", probability).unwrap_or_default();
    let resources = object.take("resources", vector).unwrap_or_default();
    let labels = object.take("labels", Node::text_map).unwrap_or_default();
    object.take("lastError", Node::text);
    let allocatable = object.take("allocatable", vector).unwrap_or_default();
    let cluster = object.take("cluster", Node::text).unwrap_or_default();
    let stamps = object.take("shardMetadata", Node::text_map).unwrap_or_default();
    object.finish()?;

    let Some(id) = id else {
        return Err(Refused::at("id", "must not be empty"));
    };
    let Some(state) = state else {
        return Err(Refused::at("state", "must be specified"));
    };
    let must_have = state.is_bound();
    let must_not = !must_have && state != MachineState::Failed;
    if must_have && cluster.is_empty() {
        return Err(Refused::at("cluster", format_args!("must not be empty in state {state}")));
    }
    if must_not && !cluster.is_empty() {
        return Err(Refused::at("cluster", format_args!("must be empty in state {state}")));
    }
    let text = |text: String| -> Arc<str> { text.into() };
    Ok(Machine {
        cluster: (!cluster.is_empty()).then(|| ClusterId::trusted(cluster)),
        instance_type: text(instance_type),
        zone: text(zone),
        capacity_type,
        price,
        interruption_probability,
        resources,
        allocatable,
        labels: labels.into_iter().map(|(key, value)| (text(key), text(value))).collect(),
        // Of a machine without a cluster the stamps are of an earlier life; a malformed one is as good as none.
        attribution: if must_have { metadata::decode(&stamps).0 } else { Default::default() },
        ..Machine::new(MachineId::trusted(id), state)
    })
}

fn state(node: Node<'_>) -> Result<MachineState, Refused> {
    match node.enumeration(wire::MachineState::from_str_name)? {
        0 => Err(Refused::here("must be specified")),
        number => MachineState::from_number(number).ok_or_else(|| unknown(number)),
    }
}

fn capacity_type(node: Node<'_>) -> Result<CapacityType, Refused> {
    let number = node.enumeration(wire::CapacityType::from_str_name)?;
    CapacityType::from_number(number).ok_or_else(|| unknown(number))
}

/// An enum number that the protocol does not have.
pub(super) fn unknown(number: i32) -> Refused {
    Refused::here(format_args!("{number} is not a known number"))
}

/// Not used, but not anything either.
fn host(node: Node<'_>) -> Result<(), Refused> {
    let mut object = node.object()?;
    object.take("provider", Node::text);
    object.take("ref", Node::text);
    object.finish()
}

fn price(node: Node<'_>) -> Result<NanoDollars, Refused> {
    let dollars = node.double()?;
    let wrong = || Refused::here(format_args!("{dollars} is not a finite price of 0 or more"));
    NanoDollars::from_dollars(dollars).ok_or_else(wrong)
}

fn probability(node: Node<'_>) -> Result<Probability, Refused> {
    let value = node.double()?;
    Probability::new(value)
        .ok_or_else(|| Refused::here(format_args!("{value} is not a probability from 0 to 1")))
}

fn vector(node: Node<'_>) -> Result<Resources, Refused> {
    let mut object = node.object()?;
    let resources = object.take("resources", |node| amounts(node, Rounding::Down));
    object.finish()?;
    Ok(resources.unwrap_or_default())
}

/// A map of quantity strings, each rounded by itself. Negative ones are refused.
pub(super) fn amounts(node: Node<'_>, rounding: Rounding) -> Result<Resources, Refused> {
    let mut amounts = Vec::new();
    for (name, text) in node.text_map()? {
        let wrong = |reason: String| Refused::here(reason).within(&name);
        let quantity = Quantity::parse(&text).map_err(|error| wrong(format!("{} {error}", shown(&text))))?;
        if quantity.is_negative() {
            return Err(wrong(format!("{} is negative", shown(&text))));
        }
        amounts.push((ResourceName::new(&name), Resources::amount(&name, quantity, rounding)));
    }
    Ok(Resources::from_amounts(amounts))
}
