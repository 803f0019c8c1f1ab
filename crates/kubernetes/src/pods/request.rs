//! What a pod takes of a node, by the scheduler's own arithmetic.
//!
//! A pod's request of a resource is the larger of what its containers and sidecars take together and of what any
//! stage of its start takes, plus its overhead. A stage is one init container beside the sidecars declared before it.
//! Pod-level requests replace the containers' for the resources that they name. While a pod is being resized, the
//! largest of what is wanted, promised and in force counts.

use std::collections::BTreeMap;

use bigfleet_types::{Quantity, family};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

type Texts = BTreeMap<String, Text>;
/// Nano-units by resource name.
type Amounts = BTreeMap<String, i128>;

/// A quantity of a pod that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource {name}: quantity {text:?} {problem}; the pod gets no CapacityRequest")]
pub struct BadQuantity {
    /// The resource.
    pub name: String,
    /// What it says.
    pub text: String,
    /// What is wrong with that.
    pub problem: String,
}

/// The pod's effective request: canonical quantities by resource name, zeros left out.
///
/// # Errors
/// A quantity that cannot be read or is negative.
pub fn of(pod: &Pod) -> Result<Texts, BadQuantity> {
    let Some(spec) = &pod.spec else { return Ok(Texts::new()) };
    let status = pod.status.as_ref();
    let infeasible = status.is_some_and(resize_infeasible);
    let mut total = containers(spec, status, infeasible)?;
    if let Some(requests) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        for (name, amount) in pod_level(requests, status, infeasible)? {
            total.insert(name, amount);
        }
    }
    add(&mut total, &amounts(spec.overhead.iter().flatten())?);
    Ok(total
        .into_iter()
        .filter(|(_, nano)| *nano > 0)
        .map(|(name, nano)| {
            let quantity = Quantity::from_nano(nano, family(&name));
            (name, Text(quantity.to_string()))
        })
        .collect())
}

/// The larger of what is wanted, promised and in force, each summed over the containers.
fn containers(spec: &PodSpec, status: Option<&PodStatus>, infeasible: bool) -> Result<Amounts, BadQuantity> {
    let wanted = |container: &Container| container_request(container);
    // A resize that the node can never grant will not come.
    let or_wanted = |container: &Container| match infeasible {
        true => Ok(Amounts::new()),
        false => container_request(container),
    };
    let of_container =
        |container: &Container| status.and_then(|status| container_status(status, &container.name));
    let promised = |container: &Container| match of_container(container)
        .and_then(|one| one.allocated_resources.as_ref())
    {
        Some(allocated) => amounts(allocated),
        None => or_wanted(container),
    };
    let in_force = |container: &Container| match of_container(container)
        .and_then(|one| requests(one.resources.as_ref()))
    {
        Some(requests) => amounts(requests),
        None => promised(container),
    };
    // Of the pod as a whole, where the node says so.
    let whole = status.and_then(|status| {
        Some((status.allocated_resources.as_ref()?, requests(status.resources.as_ref())?))
    });
    let (promised, in_force) = match whole {
        Some((allocated, actual)) => (amounts(allocated)?, amounts(actual)?),
        None => (staged(spec, &promised)?, staged(spec, &in_force)?),
    };
    let mut total = if infeasible { Amounts::new() } else { staged(spec, &wanted)? };
    maximise(&mut total, &promised);
    maximise(&mut total, &in_force);
    Ok(total)
}

/// The larger of the running pod and of every stage of its start.
fn staged(
    spec: &PodSpec,
    request: &dyn Fn(&Container) -> Result<Amounts, BadQuantity>,
) -> Result<Amounts, BadQuantity> {
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &request(container)?);
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = request(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            maximise(&mut peak, &sidecars);
        } else {
            let mut stage = own;
            add(&mut stage, &sidecars);
            maximise(&mut peak, &stage);
        }
    }
    maximise(&mut running, &peak);
    Ok(running)
}

/// What the pod asks for as a whole. Only cpu, memory and huge pages can be asked for that way.
fn pod_level(wanted: &Texts, status: Option<&PodStatus>, infeasible: bool) -> Result<Amounts, BadQuantity> {
    let mut effective = amounts(wanted)?;
    if let Some(actual) = status.and_then(|status| status.resources.as_ref()) {
        if infeasible {
            effective.clear();
        }
        maximise(&mut effective, &amounts(actual.requests.iter().flatten())?);
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        maximise(&mut effective, &amounts(allocated.into_iter().flatten())?);
    }
    effective.retain(|name, _| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
    Ok(effective)
}

/// The request of a container; where it has only a limit, that is the request.
fn container_request(container: &Container) -> Result<Amounts, BadQuantity> {
    let Some(resources) = &container.resources else { return Ok(Amounts::new()) };
    let mut all = amounts(resources.limits.iter().flatten())?;
    all.extend(amounts(resources.requests.iter().flatten())?);
    Ok(all)
}

fn requests(resources: Option<&ResourceRequirements>) -> Option<&Texts> {
    resources.and_then(|resources| resources.requests.as_ref())
}

fn container_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let mut all =
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.find(|one| one.name == name)
}

fn resize_infeasible(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .find(|one| one.type_ == "PodResizePending")
        .is_some_and(|one| one.reason.as_deref() == Some("Infeasible"))
}

fn amounts<'a>(texts: impl IntoIterator<Item = (&'a String, &'a Text)>) -> Result<Amounts, BadQuantity> {
    texts.into_iter().map(|(name, text)| Ok((name.clone(), amount(name, text)?))).collect()
}

fn amount(name: &str, text: &Text) -> Result<i128, BadQuantity> {
    let bad = |problem: String| BadQuantity { name: name.to_owned(), text: text.0.clone(), problem };
    let quantity = Quantity::parse(&text.0).map_err(|error| bad(error.to_string()))?;
    if quantity.is_negative() {
        return Err(bad("is negative".to_owned()));
    }
    Ok(quantity.nano())
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

fn maximise(largest: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = largest.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}
