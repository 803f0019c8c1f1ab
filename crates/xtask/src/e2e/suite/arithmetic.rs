//! What a pod requests, against the scheduler's own helper, on generated pods that a real API server has admitted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bigfleet_types::Quantity;
use bigfleet_types::chance::{Chance, Seeded};
use serde_json::{Map, Value, json};

use super::super::kubectl::list;
use super::super::world::{World, ensure, name};

const PODS: u64 = 2_000;
const NAMESPACE: &str = "arithmetic";
/// Overheads by RuntimeClass, which the API server copies into the pods.
const OVERHEADS: [(&str, &str, &str); 2] = [("boxed", "250m", "64Mi"), ("sealed", "1", "130M")];
const CPU: [&str; 8] = ["1", "100m", "250m", "1500m", "0.3", "2", "1e-1", "7"];
const MEMORY: [&str; 8] = ["64Mi", "1Gi", "100M", "1.5Gi", "1500000", "1e8", "333Ki", "2G"];
const STORAGE: [&str; 3] = ["1Gi", "5G", "100Mi"];

pub(super) fn run(world: &mut World) -> Result<()> {
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    objects.extend(OVERHEADS.map(|(name, cpu, memory)| {
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
               "handler": name, "overhead": {"podFixed": {"cpu": cpu, "memory": memory}}})
    }));
    world.kubectl.apply(&list(&objects))?;
    world.until("the namespace's ServiceAccount", |world| {
        world.kubectl.run(&["get", "sa", "default", "-n", NAMESPACE])
    })?;
    let mut chance = Seeded::new(20_000);
    let pods: Vec<Value> = (0..PODS).map(|n| pod(n, &mut chance)).collect();
    // Half of them are there when the controller starts, half come later.
    let (first, later) = pods.split_at(pods.len() / 2);
    world.kubectl.create(first)?;
    world.fleet()?.start_controller()?;
    world.kubectl.create(later)?;
    let requests = world.until("a CapacityRequest for every pod", |world| {
        let requests = world.kubectl.list(&["capacityrequests", "-n", NAMESPACE])?;
        ensure(requests.len() == pods.len(), || format!("{} of {PODS} are there", requests.len()))?;
        Ok(requests)
    })?;
    let admitted = world.kubectl.get(&["pods", "-n", NAMESPACE])?;
    let expected = scheduler(world, &admitted.to_string())?;
    let mut differences = Vec::new();
    for request in &requests {
        let pod = request["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
        let ours = vector(&request["spec"]["resources"])?;
        let theirs = vector(&expected[format!("{NAMESPACE}/{pod}")])
            .with_context(|| format!("{} belongs to no pod", name(request)))?;
        if ours != theirs {
            differences
                .push(format!("{pod}: ours {}, the scheduler's {theirs:?}", request["spec"]["resources"]));
        }
    }
    if let Some(first) = differences.first() {
        bail!(
            "{} of {PODS} pods are added up otherwise than the scheduler does; the first is {first}",
            differences.len()
        );
    }
    world.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    world.until("the CapacityRequests to go with their pods", |world| {
        let left = world.kubectl.list(&["capacityrequests", "-n", NAMESPACE])?;
        ensure(left.is_empty(), || format!("{} are left", left.len()))
    })
}

/// The scheduler's sums by namespace/name.
fn scheduler(world: &World, pods: &str) -> Result<Value> {
    let mut program = Command::new(world.kubebox.program("podresources"));
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(pods.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure(output.status.success(), || format!("podresources ended with {}", output.status))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Amounts in billionths, without zeros.
fn vector(resources: &Value) -> Result<BTreeMap<String, i128>> {
    let mut vector = BTreeMap::new();
    for (name, amount) in resources.as_object().context("no resources")? {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        let nano = Quantity::parse(&text)?.nano();
        if nano != 0 {
            vector.insert(name.clone(), nano);
        }
    }
    Ok(vector)
}

fn pod(n: u64, chance: &mut Seeded) -> Value {
    let mut containers = Vec::new();
    for i in 0..=chance.below(3) {
        containers.push(container(&format!("main-{i}"), chance));
    }
    let mut before = Vec::new();
    for i in 0..chance.below(4) {
        let mut container = container(&format!("init-{i}"), chance);
        if chance.below(2) == 0 {
            container["restartPolicy"] = json!("Always");
        }
        before.push(container);
    }
    let mut spec = json!({
        // Nobody places them: they only have to be counted.
        "schedulerName": "nobody",
        "containers": containers,
        "initContainers": before,
    });
    if let Some((class, ..)) = OVERHEADS.get(usize::try_from(chance.below(6)).unwrap_or(usize::MAX)) {
        spec["runtimeClassName"] = json!(class);
    }
    if chance.below(8) == 0 {
        // At least what the containers sum up to: the API server insists.
        let whole = json!({"cpu": "64", "memory": "64Gi"});
        let some = if chance.below(2) == 0 { json!({"cpu": "65"}) } else { whole };
        spec["resources"] = json!({"requests": some});
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{n:04}"), "namespace": NAMESPACE}, "spec": spec})
}

fn container(name: &str, chance: &mut Seeded) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    let mut pick = |from: &[&str]| -> Value {
        let len = u64::try_from(from.len()).unwrap_or(1);
        from[usize::try_from(chance.below(len)).unwrap_or(0)].into()
    };
    let amounts = [("cpu", pick(&CPU)), ("memory", pick(&MEMORY)), ("ephemeral-storage", pick(&STORAGE))];
    for (resource, amount) in amounts {
        // Nothing; a request; a limit that becomes the request; zero.
        match chance.below(6) {
            0..=2 => drop(requests.insert(resource.to_owned(), amount)),
            3 => drop(limits.insert(resource.to_owned(), amount)),
            4 => drop(requests.insert(resource.to_owned(), "0".into())),
            _ => {}
        }
    }
    if chance.below(8) == 0 {
        limits.insert("nvidia.com/gpu".to_owned(), (1 + chance.below(8)).into());
    }
    json!({"name": name, "image": "x:1", "resources": {"requests": requests, "limits": limits}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_by_value_and_zeros_do_not_count() {
        let ours = vector(&json!({"cpu": "400m", "memory": "100M"})).unwrap();
        let theirs = vector(&json!({"cpu": "400e-3", "memory": "100e6", "nvidia.com/gpu": "0"})).unwrap();
        assert_eq!(ours, theirs);
        assert_ne!(ours, vector(&json!({"cpu": "401m", "memory": "100M"})).unwrap());
        assert!(vector(&json!({"cpu": "much"})).is_err() && vector(&json!(null)).is_err());
    }

    #[test]
    fn generated_pods_are_of_many_kinds() {
        let mut chance = Seeded::new(20_000);
        let pods: Vec<Value> = (0..PODS).map(|n| pod(n, &mut chance)).collect();
        let with = |field: &str| pods.iter().filter(|pod| !pod["spec"][field].is_null()).count();
        assert!(with("runtimeClassName") > 300 && with("resources") > 100);
        let sidecars = pods.iter().filter(|pod| pod["spec"]["initContainers"].to_string().contains("Always"));
        assert!(sidecars.count() > 500);
    }
}
