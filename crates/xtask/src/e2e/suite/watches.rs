//! Watches that end and cannot go on where they were.

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::json;

use super::super::fleet::CLUSTER;
use super::super::world::{World, ensure};
use super::{away, pods, rights};

/// The operator sleeps; meanwhile requests come and go, the store forgets the past and the API server restarts. Awake,
/// the operator must see that it missed something, and read everything anew without a dip in demand.
pub(super) fn compaction(world: &mut World) -> Result<()> {
    // On a busy machine the API server is away for longer than a lease lives, and who loses his lease must end. This is
    // about those who live on.
    world.fleet()?.stop_cluster_side()?;
    world.fleet()?.start_lone_operator()?;
    story(world)?;
    world.fleet()?.stop_cluster_side()?;
    world.fleet()?.start()
}

fn story(world: &mut World) -> Result<()> {
    let before = away::before(world)?;
    let request = |name: &str, cpu: &str| {
        json!({"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
               "metadata": {"name": name, "namespace": "default"}, "spec": {"priority": 7, "resources": {"cpu": cpu}}})
    };
    world.kubectl.apply(&request("goes", "1").to_string())?;
    world.until("the shard to know of the first request", |world| {
        ensure(cpu_rows(world)? == 1, || "it does not".to_owned())
    })?;
    let lists = lists(world)?;
    world.fleet()?.operators[0].process.signal(Signal::STOP)?;
    let result = miss(world, &request);
    world.fleet()?.operators[0].process.signal(Signal::CONT)?;
    result?;
    world.until("the new request to be acknowledged", |world| {
        let comes = world.kubectl.get(&["cr", "comes", "-n", "default"])?;
        ensure(comes["status"]["phase"] == "Acknowledged", || format!("it is {}", comes["status"]))
    })?;
    // It cannot go on where it was, and notices; the new request may have waited in its socket, and says nothing of that.
    world.until("the operator to read the requests anew", |world| {
        ensure(self::lists(world)? > lists, || "it has not listed them since".to_owned())
    })?;
    away::undisturbed(world, &before)?;
    world.kubectl.run(&["delete", "cr", "comes", "-n", "default"])?;
    world.until("the shard to know that both are gone", |world| {
        ensure(cpu_rows(world)? == 0, || "it does not".to_owned())
    })?;
    away::undisturbed(world, &before)
}

fn miss(world: &mut World, request: &impl Fn(&str, &str) -> serde_json::Value) -> Result<()> {
    world.kubectl.run(&["delete", "cr", "goes", "-n", "default"])?;
    world.kubectl.apply(&request("comes", "2").to_string())?;
    // The API server comes back without its memory of recent changes, and the store has none of older ones.
    world.plane.stop_api_server()?;
    world.plane.start_api_server()?;
    world.kubectl.run(&["annotate", "cr", "comes", "-n", "default", "touched=yes"])?;
    world.plane.compact().context("compaction")?;
    // The pods must be as they were before anything is judged.
    world.until_running(pods::NAMESPACE, pods::COUNT)?;
    Ok(())
}

/// Needs of the priority that only this step uses.
fn cpu_rows(world: &mut World) -> Result<usize> {
    let needs = world.fleet()?.ctl(&["needs", "--cluster", CLUSTER])?;
    Ok(needs.iter().filter(|need| need["priority"] == 7).count())
}

/// How often operators have listed all requests.
fn lists(world: &World) -> Result<usize> {
    let asked = rights::requests(world)?;
    let lists = rights::asked_by(&asked, "bigfleet-operator")
        .filter(|r| r["verb"] == "list" && r["objectRef"]["resource"] == "capacityrequests");
    Ok(lists.count())
}
