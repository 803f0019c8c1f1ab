//! Capacity that is no longer wanted goes back.

use anyhow::Result;
use serde_json::{Value, json};

use super::super::fleet::CLUSTER;
use super::super::world::{World, ensure, name};
use super::pods;

/// How many Needs the cluster has, and how many machines they claim.
fn demand(world: &mut World) -> Result<(usize, i64)> {
    let needs = world.fleet()?.ctl(&["needs", "--cluster", CLUSTER])?;
    Ok((needs.len(), needs.iter().filter_map(|need| need["claimed"].as_i64()).sum()))
}

pub(super) fn freed(world: &mut World) -> Result<()> {
    let before = demand(world)?;
    pods::namespace(world, "jobs")?;
    let container = |cpu: &str| json!({"name": "c", "image": "x:1", "resources": {"requests": {"cpu": cpu}}});
    // Too much for what is left on the machines that serve already.
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "short", "namespace": "jobs"},
        "spec": {"completions": 2, "parallelism": 2, "template": {"spec": {
            "restartPolicy": "Never", "containers": [container("4")]}}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "long", "namespace": "jobs"},
        "spec": {"containers": [container("1")]},
    });
    world.kubectl.apply(&job.to_string())?;
    world.kubectl.apply(&pod.to_string())?;
    world.until("the Job to be done", |world| {
        let job = world.kubectl.get(&["job", "short", "-n", "jobs"])?;
        ensure(job["status"]["succeeded"] == 2, || format!("its status is {}", job["status"]))
    })?;
    // Its pods are still there; they only want nothing any more.
    world.until("one CapacityRequest, that of the pod that runs", |world| {
        let left = world.kubectl.list(&["capacityrequests", "-n", "jobs"])?;
        ensure(world.pods("jobs")?.len() == 3, || "the Job's pods are gone".to_owned())?;
        let owners: Vec<&Value> = left.iter().map(|r| &r["metadata"]["ownerReferences"][0]["name"]).collect();
        ensure(owners == ["long"], || format!("they are of {owners:?}"))
    })?;
    world.kubectl.run(&["delete", "pod", "long", "-n", "jobs"])?;
    world.until("no CapacityRequest, no Need and no claim more than before", |world| {
        let left = world.kubectl.list(&["capacityrequests", "-n", "jobs"])?;
        ensure(left.is_empty(), || format!("{} requests are left", left.len()))?;
        let now = demand(world)?;
        ensure(now.0 <= before.0 && now.1 <= before.1, || {
            format!("Needs and claimed machines are {now:?}, were {before:?}")
        })
    })?;
    world.kubectl.run(&["delete", "namespace", "jobs", "--wait=false"])?;
    Ok(())
}

pub(super) fn back_to_idle(world: &mut World) -> Result<()> {
    world.kubectl.run(&["delete", "deployments", "--all", "-n", pods::NAMESPACE])?;
    // One machine in ten seconds: the rail against losing many at once is at its default.
    world.until("every machine Idle, or a slot", |world| {
        let machines = world.fleet()?.ctl(&["machines"])?;
        let busy: Vec<(&Value, &Value)> = machines
            .iter()
            .filter(|m| m["state"] != "Idle" && m["state"] != "Speculative")
            .map(|m| (&m["id"], &m["state"]))
            .collect();
        ensure(!machines.is_empty() && busy.is_empty(), || format!("{busy:?}"))
    })?;
    world.until("no Node of BigFleet's and no UpcomingNode", |world| {
        let nodes = world.kubectl.list(&["nodes", "-l", "bigfleet.lucy.sh/machine-id"])?;
        let upcoming = world.kubectl.list(&["upcomingnodes"])?;
        let names: Vec<&str> = nodes.iter().chain(&upcoming).map(name).collect();
        ensure(names.is_empty(), || format!("{names:?} are left"))
    })?;
    let failed = world.fleet()?.ctl(&["machines", "--state", "Failed"])?;
    ensure(failed.is_empty(), || format!("machines failed: {failed:?}"))
}
