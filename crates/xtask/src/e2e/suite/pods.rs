//! Pods in, machines, Nodes and running pods out; and in which order things are said.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::boot::JOURNAL;
use super::super::fleet::CLUSTER;
use super::super::kubectl::list;
use super::super::watch::condition;
use super::super::world::{World, ensure, name};
use super::rights;

/// Where the fifty pods live.
pub(super) const NAMESPACE: &str = "shapes";
/// How many there are.
pub(super) const COUNT: usize = 50;

/// Creates a namespace and waits until pods can be created in it.
pub(super) fn namespace(world: &mut World, name: &str) -> Result<()> {
    world.kubectl.run(&["create", "namespace", name])?;
    world.until("the namespace's ServiceAccount", |world| {
        world.kubectl.run(&["get", "sa", "default", "-n", name])
    })?;
    Ok(())
}

/// A Deployment: its controller brings pods back that are evicted.
pub(super) fn deployment(namespace: &str, name: &str, replicas: usize, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "image": "x:1", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}})
}

pub(super) fn fifty(world: &mut World) -> Result<()> {
    namespace(world, NAMESPACE)?;
    world.fleet()?.start()?;
    let zone = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b"]}]}]}}});
    let gpu = json!({"name": "c", "image": "x:1", "resources": {
        "requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"nvidia.com/gpu": "1"}}});
    // First those that fit few machines: the scheduler puts the others anywhere, also in their place.
    let shape = |name: &str, replicas, spec: Value| deployment(NAMESPACE, name, replicas, &spec);
    let picky = [
        shape("selector", 8, json!({"nodeSelector": {"disk": "ssd"}, "containers": [container("c", "1")]})),
        shape("affinity", 8, json!({"affinity": zone, "containers": [container("c", "1")]})),
        shape("gpu", 8, json!({"containers": [gpu]})),
    ];
    world.kubectl.apply(&list(&picky))?;
    world.until_running(NAMESPACE, 24)?;
    let sidecar = json!({"name": "sidecar", "image": "x:1", "restartPolicy": "Always",
                         "resources": {"requests": {"cpu": "500m"}}});
    let easy = [
        shape("plain", 10, json!({"containers": [container("c", "500m")]})),
        shape(
            "init",
            8,
            json!({
            "initContainers": [sidecar, container("init", "1500m")], "containers": [container("c", "500m")]}),
        ),
        shape("overhead", 8, json!({"runtimeClassName": "boxed", "containers": [container("c", "250m")]})),
    ];
    world.kubectl.apply(&list(&easy))?;
    let pods = world.until_running(NAMESPACE, COUNT)?;
    placed_by_the_scheduler(world, &pods)?;
    let requests = world.kubectl.list(&["capacityrequests", "-n", NAMESPACE])?;
    ensure(requests.len() == COUNT, || {
        format!("expected one CapacityRequest a pod, there are {}", requests.len())
    })?;
    world.until("every Need to be satisfied", |world| {
        let needs = world.fleet()?.ctl(&["needs", "--cluster", CLUSTER])?;
        let unmet: Vec<&Value> = needs.iter().filter(|need| need["satisfied"] != true).collect();
        ensure(!needs.is_empty() && unmet.is_empty(), || {
            format!("{} Needs, unmet are {unmet:?}", needs.len())
        })
    })
}

/// Every pod is on a node that is BigFleet's, put there by the scheduler and by nobody else.
fn placed_by_the_scheduler(world: &mut World, pods: &[Value]) -> Result<()> {
    let nodes = world.kubectl.list(&["nodes", "-l", "bigfleet.lucy.sh/machine-id"])?;
    for pod in pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        ensure(nodes.iter().any(|n| name(n) == node), || {
            format!("{} is on {node:?}, no node of BigFleet's", name(pod))
        })?;
    }
    // The scheduler writes its events on the side, and the last of them late.
    world.until("the scheduler's word for every pod", |world| {
        let events = world.kubectl.list(&["events.events.k8s.io", "-n", NAMESPACE])?;
        let scheduled: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Scheduled").collect();
        pods.iter().try_for_each(|pod| {
            let bound = scheduled.iter().any(|event| {
                event["regarding"]["name"] == pod["metadata"]["name"]
                    && event["reportingController"] == "default-scheduler"
            });
            ensure(bound, || format!("no event says that the scheduler bound {}", name(pod)))
        })
    })
}

/// What hosts told, by machine: when its boot ended, which is the earliest that a provider can call it Configured.
fn hosts_done(world: &World) -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(world.folder.join(JOURNAL))?;
    let mut done = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        if line["what"] == "done" {
            let machine = line["machine"].as_str().unwrap_or_default().to_owned();
            done.insert(machine, line["at"].as_f64().unwrap_or_default());
        }
    }
    Ok(done)
}

/// For every machine: its UpcomingNode says Registered before its Node is Ready; the provider takes it for Configured
/// when its boot has ended, a while after that; and only then its UpcomingNode says Ready.
pub(super) fn order(world: &mut World) -> Result<()> {
    // The pods run as soon as their Nodes are Ready; the word that the machines are Configured takes its way.
    let upcoming = world.until("every UpcomingNode to be Ready", |world| {
        let upcoming = world.kubectl.list(&["upcomingnodes"])?;
        let waiting: Vec<&str> =
            upcoming.iter().filter(|object| object["status"]["phase"] != "Ready").map(name).collect();
        ensure(upcoming.len() >= 8 && waiting.is_empty(), || {
            format!("expected at least 8, there are {}; not Ready are {waiting:?}", upcoming.len())
        })?;
        Ok(upcoming)
    })?;
    for object in &upcoming {
        let machine = object["spec"]["machineID"].as_str().context("an UpcomingNode without machine id")?;
        let node = format!("node-{machine}");
        ensure(object["status"]["nodeRef"]["name"] == node.as_str(), || {
            format!("{} does not name its Node {node}: {object}", name(object))
        })?;
        world.until("the recorder to have seen it all", |world| {
            one_order(world, name(object), machine, &node)
        })?;
    }
    Ok(())
}

fn one_order(world: &mut World, object: &str, machine: &str, node: &str) -> Result<()> {
    let recorder = world.recorder()?;
    let upcoming = recorder.since(0, "upcoming");
    let phase = |phase: &str| {
        let found = upcoming.iter().find(|c| c.name() == object && c.object["status"]["phase"] == phase);
        found.with_context(|| format!("{object} was never {phase}"))
    };
    let nodes = recorder.since(0, "node");
    let node_ready = nodes
        .iter()
        .find(|c| c.name() == node && condition(&c.object, "Ready") == Some("True"))
        .with_context(|| format!("{node} was never Ready"))?
        .revision;
    let (registered, ready) = (phase("Registered")?.revision, phase("Ready")?);
    if !(registered < node_ready && node_ready < ready.revision) {
        bail!(
            "{machine}: expected Registered, Node Ready, UpcomingNode Ready; revisions are {registered}, {node_ready}, {}",
            ready.revision
        );
    }
    let ready_at = ready.seen.duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
    let done = *hosts_done(world)?
        .get(machine)
        .with_context(|| format!("{machine} never told that its boot is done"))?;
    ensure(done <= ready_at, || {
        format!(
            "{machine}: its UpcomingNode was Ready at {ready_at}, before it can have been Configured at {done}"
        )
    })?;
    // The provider says so only after the boot has ended well.
    let machines = world.fleet()?.ctl(&["machines", "--state", "Configured"])?;
    ensure(machines.iter().any(|m| m["id"] == machine), || format!("{machine} is not Configured"))
}

/// Every request is acknowledged, by exactly one write.
pub(super) fn acknowledged_once(world: &mut World) -> Result<()> {
    world.until("every CapacityRequest to be acknowledged", |world| {
        let requests = world.kubectl.list(&["capacityrequests", "-n", NAMESPACE])?;
        let waiting = requests.iter().filter(|r| r["status"]["phase"] != "Acknowledged").count();
        ensure(requests.len() == COUNT && waiting == 0, || format!("{waiting} of {} wait", requests.len()))
    })?;
    let mut writes: BTreeMap<String, usize> = BTreeMap::new();
    for request in rights::requests(world)? {
        let target = &request["objectRef"];
        let counts = target["resource"] == "capacityrequests"
            && target["subresource"] == "status"
            && target["namespace"] == NAMESPACE;
        if counts {
            *writes.entry(target["name"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    let off: Vec<_> = writes.iter().filter(|(_, count)| **count != 1).collect();
    ensure(writes.len() == COUNT && off.is_empty(), || {
        format!(
            "expected one status write for each of {COUNT}; {} were written, not once: {off:?}",
            writes.len()
        )
    })
}
