//! The custom resources on a real API server.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::super::watch::condition;
use super::super::world::{World, ensure};

const KINDS: [&str; 3] = ["capacityrequests", "upcomingnodes", "availablecapacities"];

pub(super) fn run(world: &mut World) -> Result<()> {
    for (verb, what) in [("install", "created"), ("install", "unchanged"), ("upgrade", "unchanged")] {
        let said = crds(world, verb)?;
        let lines = said.lines().filter(|line| line.ends_with(what)).count();
        ensure(lines == KINDS.len(), || {
            format!("`crds {verb}`: expected 3 lines that end in {what}: {said}")
        })?;
    }
    for kind in KINDS {
        let name = format!("{kind}.bigfleet.lucy.sh");
        let crd = world.kubectl.get(&["crd", &name])?;
        ensure(condition(&crd, "Established") == Some("True"), || {
            format!("{name} is not Established: {crd}")
        })?;
        let faulty = condition(&crd, "NonStructuralSchema") == Some("True");
        ensure(!faulty, || format!("{name} has no structural schema: {}", crd["status"]))?;
    }
    // Discovery lags behind a definition by a moment.
    world.until("`kubectl get fleet` to know all three kinds", |world| {
        world.kubectl.run(&["get", "fleet", "-A"])
    })?;
    world.until("a request to be accepted", |world| {
        world.kubectl.apply(&request("good", &json!({"resources": {"cpu": "1", "memory": 1024}})).to_string())
    })?;
    refusals(world)?;
    defaults_and_columns(world)?;
    world.kubectl.run(&["delete", "capacityrequests", "--all", "-n", "default"])?;
    world.recorder = Some(super::super::watch::Recorder::start(&world.kubectl)?);
    Ok(())
}

fn crds(world: &World, verb: &str) -> Result<String> {
    let mut command = std::process::Command::new(&world.executable);
    let output = command.args(["crds", verb, "--kubeconfig"]).arg(world.kubectl.kubeconfig()).output()?;
    if !output.status.success() {
        bail!("bigfleet crds {verb}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn request(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn refusals(world: &World) -> Result<()> {
    let requirement = |operator: &str, values: Value| json!({"resources": {}, "requirements": [{"key": "zone", "operator": operator, "values": values}]});
    let bad: [(&str, Value, &str); 8] = [
        ("in-without-values", requirement("In", json!([])), "requirements[0]"),
        ("exists-with-values", requirement("Exists", json!(["a"])), "requirements[0]"),
        ("gt", requirement("Gt", json!(["1"])), "requirements[0].operator"),
        ("same", requirement("Same", json!([])), "requirements[0].operator"),
        ("no-resources", json!({}), "spec.resources"),
        ("negative", json!({"resources": {"cpu": "-1"}}), "spec.resources"),
        ("negative-number", json!({"resources": {"cpu": -1}}), "spec.resources"),
        ("no-quantity", json!({"resources": {"cpu": "1Kib"}}), "spec.resources"),
    ];
    for (name, spec, because) in bad {
        let object = request(name, &spec).to_string();
        world.kubectl.refused(&["create", "--validate=false", "-f", "-"], &object, because)?;
    }
    Ok(())
}

fn defaults_and_columns(world: &World) -> Result<()> {
    let good = world.kubectl.get(&["capacityrequest", "good", "-n", "default"])?;
    ensure(good["status"]["phase"] == "Pending", || format!("expected phase Pending by default: {good}"))?;
    ensure(good["spec"]["priority"] == 0, || format!("expected priority 0 by default: {good}"))?;
    let by_phase = ["get", "cr", "-n", "default", "--field-selector=status.phase=Pending", "--no-headers"];
    let shown = world.kubectl.run(&by_phase)?;
    let cells: Vec<&str> = shown.split_whitespace().collect();
    ensure(cells[..3.min(cells.len())] == ["good", "Pending", "0"], || {
        format!("expected the columns name, phase, priority and age: {shown}")
    })?;
    // Status is written through its own subresource and not beside it.
    let patch = r#"{"status":{"phase":"Acknowledged","acknowledgedAt":"2026-04-30T12:00:00Z"}}"#;
    let target = ["capacityrequest", "good", "-n", "default", "--type=merge"];
    let beside: Vec<&str> = ["patch"].into_iter().chain(target).chain(["-p", patch]).collect();
    world.kubectl.run(&beside)?;
    let phase = |world: &World| -> Result<String> {
        let good = world.kubectl.get(&["cr", "good", "-n", "default"])?;
        Ok(good["status"]["phase"].as_str().unwrap_or_default().to_owned())
    };
    ensure(phase(world)? == "Pending", || "a write beside the status subresource changed the status".into())?;
    let through: Vec<&str> = beside.iter().copied().chain(["--subresource=status"]).collect();
    world.kubectl.run(&through)?;
    ensure(phase(world)? == "Acknowledged", || "the status subresource took no write".into())?;
    let upcoming = json!({
        "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "UpcomingNode", "metadata": {"name": "un-x"},
        "spec": {"resources": {"cpu": "8"}, "machineID": "x", "labels": {"node.kubernetes.io/instance-type": "t"}},
    });
    world.kubectl.apply(&upcoming.to_string())?;
    let wide = world.kubectl.run(&["get", "upn", "un-x", "-o", "wide"])?;
    let (head, row) = wide.split_once('\n').unwrap_or_default();
    ensure(["NAME", "PHASE", "NODE", "AGE", "MACHINE", "TYPE"].iter().all(|c| head.contains(c)), || {
        format!("expected the columns of an UpcomingNode: {wide}")
    })?;
    ensure(row.trim_end().ends_with('t'), || {
        format!("expected the instance type as the last column: {wide}")
    })?;
    world.kubectl.run(&["delete", "upn", "un-x"])?;
    Ok(())
}
