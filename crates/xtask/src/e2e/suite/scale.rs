//! 25,000 CapacityRequests in one cluster, measured.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::world::{World, ensure};
use super::rights;

const COUNT: usize = 25_000;
const NAMESPACE: &str = "scale";
/// What one operator may hold, in MiB.
const MEMORY_MIB: u64 = 150;

pub(super) fn run(world: &mut World) -> Result<()> {
    super::pods::namespace(world, NAMESPACE)?;
    world.fleet()?.start()?;
    let start = Instant::now();
    let requests: Vec<Value> = (0..COUNT).map(request).collect();
    for some in requests.chunks(1000) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": some});
        world.kubectl.call(&["create", "--validate=false", "-f", "-"], &list.to_string())?;
    }
    println!("       {COUNT} created in {:.0} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    world.until("every request to be acknowledged", |world| {
        let done = world.fleet()?.operators[0].metric("bigfleet_operator_crs", &["Acknowledged"])?;
        let count = f64::from(u32::try_from(COUNT)?);
        ensure(done >= count, || format!("{done} of {COUNT} are"))
    })?;
    println!("       all acknowledged {:.0} s later", start.elapsed().as_secs_f64());
    let operator = &world.fleet()?.operators[0];
    let (id, metric) = (operator.process.id(), |name: &str| operator.metric(name, &[]));
    let sum = metric("bigfleet_operator_rollup_duration_seconds_sum")?;
    let count = metric("bigfleet_operator_rollup_duration_seconds_count")?;
    ensure(count > 0.0, || "no roll-up was measured".to_owned())?;
    let mean = sum / count * 1000.0;
    let memory = resident_mib(id)?;
    let patches = rights::requests(world)?
        .iter()
        .filter(|r| r["objectRef"]["namespace"] == NAMESPACE && r["objectRef"]["subresource"] == "status")
        .count();
    println!("       roll-up turn {mean:.2} ms on average, {memory} MiB resident, {patches} status patches");
    ensure(patches == COUNT, || {
        format!("expected {COUNT} status patches, one a request; there were {patches}")
    })?;
    ensure(memory <= MEMORY_MIB, || format!("{memory} MiB resident, at most {MEMORY_MIB} expected"))?;
    ensure(mean <= 10.0, || format!("a roll-up took {mean:.2} ms on average, at most 10 ms expected"))?;
    world.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    Ok(())
}

/// Of a hundred shapes; no machine matches, so that nothing is bought.
fn request(n: usize) -> Value {
    json!({
        "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
        "metadata": {"name": format!("r-{n}"), "namespace": NAMESPACE},
        "spec": {
            "priority": n % 10,
            "resources": {"cpu": format!("{}m", 100 + n % 100), "memory": "64Mi"},
            "requirements": [{"key": "nowhere", "operator": "In", "values": [format!("v{}", n % 10)]}],
        },
    })
}

/// What a process holds in memory.
fn resident_mib(id: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
