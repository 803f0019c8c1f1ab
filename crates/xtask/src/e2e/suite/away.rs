//! BigFleet, or a part of it, is away. Nothing in the cluster may notice.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::fleet::NAMESPACE;
use super::super::world::{World, ensure, name};
use super::pods::{self, COUNT};

/// How things stood, to be compared later.
pub(super) struct Before {
    /// What has been recorded so far.
    mark: usize,
    /// The pods of the fifty.
    pods: BTreeSet<String>,
}

/// How things stand.
pub(super) fn before(world: &World) -> Result<Before> {
    Ok(Before { mark: world.recorder()?.mark(), pods: uids(&world.pods(pods::NAMESPACE)?) })
}

fn uids(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).collect()
}

const LEASE: [&str; 4] = ["lease", "bigfleet-operator", "-n", NAMESPACE];

fn holder(world: &World) -> Result<String> {
    let lease = world.kubectl.get(&LEASE)?;
    Ok(lease["spec"]["holderIdentity"].as_str().context("nobody holds the lease")?.to_owned())
}

pub(super) fn second_replica(world: &mut World) -> Result<()> {
    let first = holder(world)?;
    let before = before(world)?;
    let shard = world.fleet()?.shard_addr();
    world.fleet()?.start_operator(&shard, false)?;
    // Long enough for an operator that does not wait its turn to take the session.
    world.pass(std::time::Duration::from_secs(5))?;
    ensure(holder(world)? == first, || "the second operator took the lease from a living one".to_owned())?;
    let up = |world: &mut World, at: usize| {
        world.fleet()?.operators[at].metric("bigfleet_operator_session_up", &[])
    };
    ensure(up(world, 0)? == 1.0 && up(world, 1)? == 0.0, || "not the first alone has a session".to_owned())?;
    world.fleet()?.operators.remove(0).process.kill()?;
    world.until("the second operator to hold the lease and a session", |world| {
        let now = holder(world)?;
        ensure(now != first, || format!("{now} still holds the lease"))?;
        ensure(up(world, 0)? == 1.0, || "it has no session".to_owned())
    })?;
    // It serves: a new pod gets through.
    let spec =
        json!({"containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "7"}}}]});
    pods::namespace(world, "second")?;
    world.kubectl.apply(&pods::deployment("second", "big", 1, &spec).to_string())?;
    world.until_running("second", 1)?;
    undisturbed(world, &before)?;
    world.kubectl.run(&["delete", "namespace", "second", "--wait=false"])?;
    Ok(())
}

/// None of the fifty pods was deleted, and no node in use cordoned, since `before`.
pub(super) fn undisturbed(world: &World, before: &Before) -> Result<()> {
    // Whatever a watch may have missed: these are the same pods.
    let now = uids(&world.pods(pods::NAMESPACE)?);
    ensure(now == before.pods && now.len() == COUNT, || {
        format!(
            "the {COUNT} pods are not those that there were: {:?}",
            now.symmetric_difference(&before.pods)
        )
    })?;
    let recorder = world.recorder()?;
    for change in recorder.since(before.mark, "pod") {
        let ours = change.object["metadata"]["namespace"] == pods::NAMESPACE;
        let goes = change.what == "DELETED" || !change.object["metadata"]["deletionTimestamp"].is_null();
        ensure(!(ours && goes), || format!("pod {} was evicted or deleted", change.name()))?;
    }
    let used: Vec<String> = world
        .pods(pods::NAMESPACE)?
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
        .collect();
    for change in recorder.since(before.mark, "node") {
        let hurt = change.what == "DELETED" || change.object["spec"]["unschedulable"] == true;
        if hurt && used.iter().any(|node| node == change.name()) {
            bail!("node {}, which is in use, was cordoned or deleted", change.name());
        }
    }
    Ok(())
}

pub(super) fn silence(world: &mut World) -> Result<()> {
    let load =
        json!({"containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "3"}}}]});
    pods::namespace(world, "load")?;
    // Demand moves while nobody listens: some of it finds room, some waits.
    let before = before(world)?;
    world.kubectl.apply(&pods::deployment("load", "waiting", 2, &load).to_string())?;
    world.fleet()?.kill()?;
    // A call that was under way may still arrive, and a drain that was may have left its cordon, or its host may take the
    // Node along. Whatever is there and not cordoned after that nobody is to touch.
    world.pass(std::time::Duration::from_secs(3))?;
    let free = |node: &&Value| node["spec"]["unschedulable"] != true;
    let steady: BTreeSet<String> =
        world.kubectl.list(&["nodes"])?.iter().filter(free).map(|node| name(node).to_owned()).collect();
    let alone = world.recorder()?.mark();
    world.kubectl.run(&["scale", "deployment/waiting", "-n", "load", "--replicas=4"])?;
    let time = world.silence;
    world.pass(time)?;
    undisturbed(world, &before)?;
    for change in world.recorder()?.since(alone, "node") {
        let hurt = change.what == "DELETED" || change.object["spec"]["unschedulable"] == true;
        ensure(!(hurt && steady.contains(change.name())), || {
            format!("{} was cordoned or deleted though nobody of BigFleet runs", change.name())
        })?;
    }
    world.fleet()?.start()?;
    world.until_running("load", 4)?;
    world.until("the operator's session", |world| {
        let up = world.fleet()?.operators[0].metric("bigfleet_operator_session_up", &[])?;
        ensure(up == 1.0, || "it is down".to_owned())
    })?;
    // Several roll-ups and cycles, more than it takes to call anything excess.
    world.pass(std::time::Duration::from_secs(25))?;
    undisturbed(world, &before)?;
    let nodes = world.kubectl.list(&["nodes", "-l", "bigfleet.lucy.sh/machine-id"])?;
    for pod in world.pods("load")?.iter().chain(&world.pods(pods::NAMESPACE)?) {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let cordoned = nodes.iter().any(|n| name(n) == node && n["spec"]["unschedulable"] == true);
        ensure(!cordoned, || format!("{node}, on which {} runs, is being reclaimed", name(pod)))?;
    }
    world.kubectl.run(&["delete", "namespace", "load", "--wait=false"])?;
    Ok(())
}
