//! A drain that a budget blocks, with an operator that dies in it. A scripted shard sends the short grace.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::fleet::{CLUSTER, stop};
use super::super::plane::{KWOK, free_ports};
use super::super::process::Process;
use super::super::watch::condition;
use super::super::world::{World, ensure};
use super::pods;
use super::rights::FOREIGN;

const NAMESPACE: &str = "budget";
/// Longer than a lease lives, so that the second operator comes in time to see the end.
const GRACE_SECONDS: u64 = 45;
const DEADLINE: &str = "bigfleet.lucy.sh/drain-deadline";

/// The shard, and the script that it follows.
struct Shard {
    process: Process,
    script: File,
}

impl Shard {
    fn say(&mut self, line: &Value) -> Result<()> {
        Ok(self.script.write_all(format!("{line}\n").as_bytes())?)
    }

    fn machine(&mut self, id: &str, state: &str) -> Result<()> {
        self.say(&json!({"machine": {"id": id, "state": state, "cluster": CLUSTER}}))
    }

    /// What operators have sent, one of these fields each.
    fn heard(&mut self, field: &str) -> Result<Vec<Value>> {
        self.process.check()?;
        let printed = self.process.printed()?;
        let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.filter_map(|mut line| Some(line.get_mut(field)?.take())).collect())
    }
}

pub(super) fn run(world: &mut World) -> Result<()> {
    // Whatever is BigFleet's rests; the pod controller goes on.
    let fleet = world.fleet()?;
    for operator in std::mem::take(&mut fleet.operators) {
        stop(operator)?;
    }
    if fleet.controller.is_none() {
        fleet.start_controller()?;
    }
    let [port] = free_ports()?;
    let address = format!("127.0.0.1:{port}");
    let path = world.folder.join("script.jsonl");
    let script = File::options().create(true).append(true).open(&path)?;
    let mut command = Command::new(&world.scripted_shard);
    command.arg(&address).arg(&path);
    let process = Process::start("scripted-shard", command, &world.folder, &world.reaper)?;
    let mut shard = Shard { process, script };
    shard.process.ready("shard", Duration::from_secs(60))?;
    let result = story(world, &mut shard, &address);
    // The programs that the steps after this one need.
    let operators = std::mem::take(&mut world.fleet()?.operators);
    operators.into_iter().try_for_each(stop)?;
    result?;
    world.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    world.kubectl.run(&["delete", "node", "node-s1", "node-s2"])?;
    Ok(())
}

fn story(world: &mut World, shard: &mut Shard, address: &str) -> Result<()> {
    prepare(world)?;
    for machine in ["s1", "s2"] {
        shard.machine(machine, "CONFIGURED")?;
    }
    world.fleet()?.start_operator(address, true)?;
    for machine in ["s1", "s2"] {
        phase(world, machine, "Ready")?;
    }
    // The DaemonSet takes one core of the eight that each node offers: 12.5 %, and so 13 %. 2 / 0.87 is 2.2989.
    world.until("a roll-up that makes room for the DaemonSet", |_| {
        let newest = shard.heard("rollup")?.pop().unwrap_or_default();
        let raised = newest["sums"].as_array().into_iter().flatten().filter(|sum| sum["cpu"] == "2299m");
        ensure(raised.count() == 2, || format!("the newest is {newest}"))
    })?;

    let begun = SystemTime::now();
    shard.say(&json!({"reclaim": {
        "id": "i-1", "machines": ["s1", "s2", FOREIGN], "grace_seconds": GRACE_SECONDS}}))?;
    world.until("an acknowledgement of two nodes", |_| {
        let acks = shard.heard("ack")?;
        ensure(acks == [json!({"id": "i-1", "nodes": 2})], || format!("heard {acks:?}"))
    })?;
    for machine in ["s1", "s2"] {
        shard.machine(machine, "DRAINING")?;
    }
    // What no budget holds leaves; what one holds stays.
    phase(world, "s2", "Drained")?;
    world.until("evictions that the budget refuses", |world| {
        let refused = world.fleet()?.operators[0].metric("bigfleet_operator_eviction_total", &["refused"])?;
        ensure(refused >= 1.0, || format!("{refused} were refused"))
    })?;
    held_pods_run(world)?;
    let deadline = deadline(world)?;

    let hellos = shard.heard("hello")?.len();
    world.fleet()?.operators.remove(0).process.kill()?;
    world.fleet()?.start_operator(address, false)?;
    world.until("a second session", |_| {
        let now = shard.heard("hello")?.len();
        ensure(now > hellos, || format!("{now} sessions so far"))
    })?;
    world.until("the second operator to go on with the drain", |world| {
        let active = world.fleet()?.operators[0].metric("bigfleet_operator_drain_active", &[])?;
        ensure(active >= 1.0, || format!("{active} drains are on"))
    })?;
    ensure(self::deadline(world)? == deadline, || "the deadline moved".to_owned())?;
    held_pods_run(world)?;

    let failed = phase(world, "s1", "Failed")?;
    let lasted = SystemTime::now().duration_since(begun)?;
    ensure(lasted >= Duration::from_secs(GRACE_SECONDS), || format!("it was given up after {lasted:?}"))?;
    let error = failed["status"]["lastError"].as_str().unwrap_or_default();
    let names_it = ["disruption budget held", "PDB budget/held"].iter().any(|name| error.contains(name));
    ensure(error.contains("deadline") && names_it, || {
        format!("expected an error that names the deadline and the budget: {error:?}")
    })?;
    held_pods_run(world)?;
    let node = world.kubectl.get(&["node", "node-s1"])?;
    ensure(node["spec"]["unschedulable"] == true, || "the node is no longer cordoned".to_owned())?;
    ensure(shard.heard("ack")?.len() == 1, || "the instruction was acknowledged again".to_owned())?;
    let (now, end) =
        (SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(), begun.duration_since(UNIX_EPOCH)?);
    ensure(now >= end.as_secs() + GRACE_SECONDS, || "the clock ran backwards".to_owned())?;

    // The machines are free: nothing is left of them in the cluster.
    for machine in ["s1", "s2"] {
        shard.machine(machine, "IDLE")?;
        shard.say(&json!({"forget": machine}))?;
    }
    world.until("both UpcomingNodes to go", |world| {
        let left = world.kubectl.list(&["upcomingnodes"])?;
        ensure(left.is_empty(), || format!("{} are left", left.len()))
    })
}

/// Two nodes of ours with two pods each, and a DaemonSet; a budget holds the pods of the first.
fn prepare(world: &mut World) -> Result<()> {
    for machine in ["s1", "s2"] {
        let name = format!("node-{machine}");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {KWOK.0: KWOK.1}, "labels": {
                "kubernetes.io/hostname": name, "bigfleet.lucy.sh/machine-id": machine}},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
                       "capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
        });
        world.kubectl.call(&["create", "-f", "-"], &node.to_string())?;
    }
    pods::namespace(world, NAMESPACE)?;
    for (name, machine) in [("held", "s1"), ("free", "s2")] {
        let spec = json!({
            "nodeSelector": {"bigfleet.lucy.sh/machine-id": machine},
            "containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}],
        });
        world.kubectl.apply(&pods::deployment(NAMESPACE, name, 2, &spec).to_string())?;
    }
    let on_ours = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "bigfleet.lucy.sh/machine-id", "operator": "Exists"}]}]}}});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"affinity": on_ours, "containers": [
                {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]}}},
    });
    world.kubectl.apply(&set.to_string())?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "held", "namespace": NAMESPACE},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "held"}}},
    });
    world.kubectl.apply(&budget.to_string())?;
    // Two of each, and one of the DaemonSet on each node.
    world.until_running(NAMESPACE, 6)?;
    world.until("the budget to count its pods, and the nodes to be Ready", |world| {
        let budget = world.kubectl.get(&["pdb", "held", "-n", NAMESPACE])?;
        ensure(budget["status"]["currentHealthy"] == 2, || format!("its status is {}", budget["status"]))?;
        let nodes = world.kubectl.list(&["nodes", "-l", "bigfleet.lucy.sh/machine-id"])?;
        let ready = nodes.iter().filter(|node| condition(node, "Ready") == Some("True")).count();
        ensure(ready == 2, || format!("{ready} nodes are Ready"))
    })
}

fn phase(world: &mut World, machine: &str, phase: &str) -> Result<Value> {
    let name = format!("un-{machine}");
    world.until(&format!("{name} to be {phase}"), |world| {
        let object = world.kubectl.get(&["upn", &name])?;
        ensure(object["status"]["phase"] == phase, || format!("its status is {}", object["status"]))?;
        Ok(object)
    })
}

fn deadline(world: &World) -> Result<String> {
    let node = world.kubectl.get(&["node", "node-s1"])?;
    let deadline = node["metadata"]["annotations"][DEADLINE].as_str();
    Ok(deadline.context("the node carries no deadline")?.to_owned())
}

fn held_pods_run(world: &World) -> Result<()> {
    let pods = world.kubectl.list(&["pods", "-n", NAMESPACE, "-l", "app=held"])?;
    let run = pods.iter().filter(|pod| {
        pod["status"]["phase"] == "Running"
            && pod["spec"]["nodeName"] == "node-s1"
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let run = run.count();
    ensure(run == 2, || format!("expected both held pods to run on node-s1, {run} do"))
}
