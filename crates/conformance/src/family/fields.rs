//! B801 to B807: what a machine says of itself.

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{Family, Quantity};
use pb::MachineState as S;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, broken, ensure, equal, ok};
use crate::context::{Context, metadata};
use crate::record;

/// Labels under which careless providers put what has a field of its own.
const SMUGGLED: [&str; 9] = [
    "instance-type",
    "instance_type",
    "instanceType",
    "zone",
    "availability-zone",
    "availability_zone",
    "capacity-type",
    "capacity_type",
    "capacityType",
];

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B801" [Core] => fields_are_top_level;
        "Every machine has an id, a state and instance_type; type, zone and capacity type are not hidden in labels."
        "Fill the fields; labels are for what has no field."
    "B802" [Core Spot] => prices_are_possible;
        "price_per_hour is finite and not negative, interruption_probability in [0, 1], above 0 for SPOT."
        "Give SPOT machines the rate that their market shows; a probability of 0 makes them look like on-demand."
    "B803" [Core] => fields_follow_the_state;
        "No host and no cluster at Speculative, a host at Idle, both at Configured, on Get and List."
        "Let one function write a state together with the fields it demands."
    "B804" [Core] => both_vectors_count;
        "Where resources and allocatable are both given, both can be computed with, in every dimension they share."
        "Write Kubernetes quantities; leave a dimension out rather than giving it no amount."
    "B805" [Core] => the_host_keeps_its_provider;
        "host.provider stays the same from Idle over Configured back to Idle, on Get and List."
        "Write the host once, when the Create completes."
    "B806" [Core] => hosts_are_somewhere;
        "A machine with a host has a capacity type and a zone."
        "Fill both from the offer, before there is a host."
    "B807" [Cloud] needs Delete => deleted_is_blank;
        "A deleted machine has no host, no cluster and no metadata."
        "Clear all three when the Delete completes."
];

async fn inventory(c: &Context) -> Check<Vec<pb::Machine>> {
    let machines = c.listed(&[]).await?;
    ensure(!machines.is_empty(), || "List gives no machine at all".to_owned())?;
    Ok(machines)
}

pub(super) fn named(m: &pb::Machine) -> Check {
    ensure(!m.id.is_empty(), || format!("a machine has no id: {}", record::machine(m)))?;
    ensure(m.state() != S::Unspecified, || format!("{} has no state", m.id))?;
    ensure(!m.instance_type.is_empty(), || format!("{} has no instance_type", m.id))
}

pub(super) fn priced(m: &pb::Machine) -> Check {
    let (price, chance) = (m.price_per_hour, m.interruption_probability);
    ensure(price.is_finite() && price >= 0.0, || format!("{}: price_per_hour is {price}", m.id))?;
    ensure((0.0..=1.0).contains(&chance), || format!("{}: interruption_probability is {chance}", m.id))?;
    let spot = m.capacity_type() == pb::CapacityType::Spot;
    ensure(!spot || chance > 0.0, || format!("{} is SPOT and its interruption_probability is {chance}", m.id))
}

pub(super) fn placed(m: &pb::Machine) -> Check {
    let known = m.capacity_type() != pb::CapacityType::Unspecified;
    ensure(known, || format!("{} has no capacity_type", m.id))?;
    ensure(!m.zone.is_empty(), || format!("{} has no zone", m.id))
}

fn hosted(m: &pb::Machine) -> bool {
    m.host.as_ref().is_some_and(|h| !(h.provider.is_empty() && h.r#ref.is_empty()))
}

fn in_shape(m: &pb::Machine) -> Check {
    let (host, bound) = (hosted(m), !m.cluster.is_empty());
    let fits = match m.state() {
        S::Speculative => !host && !bound,
        S::Idle => host && !bound,
        S::Configured => host && bound,
        _ => true,
    };
    ensure(fits, || format!("host and cluster do not fit the state: {}", record::machine(m)))
}

async fn fields_are_top_level(c: &Context) -> Check {
    for m in inventory(c).await? {
        named(&m)?;
        if let Some(key) = SMUGGLED.iter().find(|key| m.labels.contains_key(**key)) {
            return broken(format!("{} hides {key} in its labels", m.id));
        }
    }
    Ok(())
}

async fn prices_are_possible(c: &Context) -> Check {
    inventory(c).await?.iter().try_for_each(priced)
}

async fn fields_follow_the_state(c: &Context) -> Check {
    inventory(c).await?.iter().try_for_each(in_shape)?;
    let id = c.speculative().await?;
    in_shape(&c.machine(&id).await?)?;
    ok("Create", c.create(&id).await)?;
    in_shape(&c.reach(&id, S::Idle).await?)?;
    in_shape(&c.bind(&id, "conformance-b803", &metadata()).await?)?;
    let listed = c.listed(&[S::Configured]).await?;
    let Some(m) = listed.iter().find(|m| m.id == id) else {
        return broken(format!("List of Configured machines lacks {id}"));
    };
    in_shape(m)?;
    in_shape(&c.free(&id).await?)
}

async fn both_vectors_count(c: &Context) -> Check {
    for m in inventory(c).await? {
        let (Some(has), Some(usable)) = (&m.resources, &m.allocatable) else { continue };
        for (name, amount) in &usable.resources {
            let Some(total) = has.resources.get(name) else { continue };
            let read = |field: &str, text: &str| {
                text.parse::<Quantity>()
                    .or_else(|error| broken(format!("{}: {field}[{name}] {text:?}: {error}", m.id)))
            };
            let (usable, total) = (read("allocatable", amount)?, read("resources", total)?);
            let zero = Quantity::from_nano(0, Family::Decimal);
            ensure(total > zero && usable >= zero, || {
                format!("{}: resources[{name}] is {total}, allocatable[{name}] is {usable}", m.id)
            })?;
        }
    }
    Ok(())
}

async fn the_host_keeps_its_provider(c: &Context) -> Check {
    let id = c.idle().await?;
    let provider = |m: &pb::Machine| m.host.as_ref().map(|h| h.provider.clone()).unwrap_or_default();
    let first = provider(&c.machine(&id).await?);
    ensure(!first.is_empty(), || "an Idle machine has no host.provider".to_owned())?;
    let observe = async |stage: &str| {
        equal(&format!("host.provider on Get, {stage}"), &provider(&c.machine(&id).await?), &first)?;
        let listed = c.listed(&[]).await?;
        let found = listed.iter().find(|m| m.id == id).map(provider);
        equal(&format!("host.provider on List, {stage}"), &found.as_ref(), &Some(&first))
    };
    observe("Idle").await?;
    c.bind(&id, "conformance-b805", &metadata()).await?;
    observe("Configured").await?;
    c.free(&id).await?;
    observe("Idle again").await
}

async fn hosts_are_somewhere(c: &Context) -> Check {
    let id = c.configured("conformance-b806").await?;
    placed(&c.machine(&id).await?)?;
    for m in inventory(c).await? {
        if hosted(&m) && matches!(m.state(), S::Idle | S::Configured) {
            placed(&m)?;
        }
    }
    Ok(())
}

async fn deleted_is_blank(c: &Context) -> Check {
    let id = c.configured("conformance-b807").await?;
    let idle = c.free(&id).await?;
    ensure(hosted(&idle), || format!("no host to be cleared: {}", record::machine(&idle)))?;
    ok("Delete", c.delete(&id).await)?;
    let m = c.reach(&id, S::Speculative).await?;
    ensure(!hosted(&m) && m.cluster.is_empty() && m.shard_metadata.is_empty(), || {
        format!("the Delete left something: {}", record::machine(&m))
    })
}
