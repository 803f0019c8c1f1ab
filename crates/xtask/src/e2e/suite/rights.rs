//! What our programs may do in a cluster: `deploy/rbac`, held against what they did.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::fleet::{Fleet, NAMESPACE};
use super::super::plane::KWOK;
use super::super::world::World;
use crate::workspace;

/// A manifest and the ServiceAccount that it gives rights to.
const ACCOUNTS: [(&str, &str); 3] = [
    ("deploy/rbac/operator.yaml", "bigfleet-operator"),
    // The operators here run with --daemonset-overhead=auto.
    ("deploy/rbac/operator-daemonset-overhead.yaml", "bigfleet-operator"),
    ("deploy/rbac/pod-controller.yaml", "bigfleet-unschedulable-pod-controller"),
];
/// A Node that is not BigFleet's.
pub(super) const FOREIGN: &str = "foreign";
/// Rights that this run gives no cause to use, each with the reason.
const IDLE: [(&str, &str, &str); 6] = [
    // Only after a quarter of an hour without news of a hint.
    ("bigfleet-operator", "availablecapacities", "delete"),
    // Only when the same Event comes again.
    ("bigfleet-operator", "events", "patch"),
    ("bigfleet-unschedulable-pod-controller", "events", "patch"),
    // A lease is made once and then updated; whether by update or by patch is up to the election.
    ("bigfleet-operator", "leases", "patch"),
    ("bigfleet-unschedulable-pod-controller", "leases", "patch"),
    // The default of the definition says Pending already; the patch is for API servers that do not.
    ("bigfleet-unschedulable-pod-controller", "capacityrequests/status", "patch"),
];

pub(super) fn ship(world: &mut World) -> Result<()> {
    for (file, _) in ACCOUNTS {
        let manifest = std::fs::read_to_string(workspace::root().join(file))?;
        world.kubectl.apply(&manifest)?;
    }
    for (account, verb, resource) in [
        ("bigfleet-operator", "delete", "nodes"),
        ("bigfleet-operator", "delete", "pods"),
        ("bigfleet-operator", "create", "capacityrequests.bigfleet.lucy.sh"),
        ("bigfleet-operator", "get", "secrets"),
        ("bigfleet-operator", "watch", "daemonsets.apps"),
        ("bigfleet-unschedulable-pod-controller", "patch", "nodes"),
        ("bigfleet-unschedulable-pod-controller", "create", "pods/eviction"),
    ] {
        let identity = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
        // It answers "no" with status 1.
        let ask = ["auth", "can-i", verb, resource, "-A", &identity];
        let answer = world.kubectl.command(&ask).output()?;
        if String::from_utf8_lossy(&answer.stdout).trim() != "no" {
            bail!("{account} may {verb} {resource}; expected that it may not");
        }
    }
    // Nothing of ours, with a pod on it that BigFleet is told to leave alone.
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": FOREIGN, "annotations": {KWOK.0: KWOK.1}, "labels": {"kubernetes.io/hostname": FOREIGN}},
        "spec": {"taints": [{"key": "foreign", "value": "yes", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
                   "capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
    });
    world.kubectl.call(&["create", "-f", "-"], &node.to_string())?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "bystander", "namespace": "default",
                     "annotations": {"bigfleet.lucy.sh/ignore": "true"}},
        "spec": {"nodeName": FOREIGN, "containers": [
            {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]},
    });
    world.kubectl.call(&["create", "-f", "-"], &pod.to_string())?;
    world.fleet = Some(Fleet::prepare(&world.plane, &world.executable, &world.folder, &world.reaper)?);
    Ok(())
}

pub(super) fn used(world: &mut World) -> Result<()> {
    let asked = requests(world)?;
    let mut faults = Vec::new();
    for (file, account) in ACCOUNTS {
        let its: Vec<&Value> = asked_by(&asked, account).collect();
        let granted = granted(world, file)?;
        let mut of_account = BTreeSet::new();
        for (file, _) in ACCOUNTS.iter().filter(|(_, its)| *its == account) {
            of_account.extend(self::granted(world, file)?);
        }
        // An API server that has just started refuses what it has not read the roles for yet; that is not for want of
        // rights.
        let missing = its.iter().find(|r| {
            r["annotations"]["authorization.k8s.io/decision"] == "forbid"
                && !of_account.contains(&verb_and_resource(r))
        });
        if let Some(refused) = missing {
            bail!("deploy/rbac does not give a right that {account} asks for: {refused}");
        }
        // A server-side apply that makes an object is a patch on the wire and needs the right to create.
        let made = its.iter().filter(|r| r["verb"] == "patch" && r["responseStatus"]["code"] == 201);
        let made = made.map(|r| (verb_and_resource(r).0, "create".to_owned()));
        let used: BTreeSet<(String, String)> = its.iter().map(|r| verb_and_resource(r)).chain(made).collect();
        for (resource, verb) in granted {
            let reads = ["get", "list", "watch"];
            // Reading is one right: who may list may get.
            let is_used = used.iter().any(|(r, v)| {
                *r == resource
                    && (*v == verb || reads.contains(&verb.as_str()) && reads.contains(&v.as_str()))
            });
            if !is_used && !IDLE.contains(&(account, &resource, &verb)) {
                faults.push(format!("{file} grants {verb} on {resource}, which {account} did not use"));
            }
        }
    }
    let writes = ["create", "update", "patch", "delete", "deletecollection"];
    faults.extend(asked.iter().filter(|r| writes.iter().any(|verb| r["verb"] == *verb)).filter_map(|r| {
        let target = &r["objectRef"];
        let touches = [FOREIGN, "bystander"].iter().any(|name| target["name"] == *name)
            && target["resource"] != "events";
        touches.then(|| format!("a foreign object was touched: {r}"))
    }));
    let node = world.kubectl.get(&["node", FOREIGN])?;
    if node["spec"]["unschedulable"] == true {
        faults.push("the foreign Node is cordoned".to_owned());
    }
    if world.kubectl.get(&["pod", "bystander", "-n", "default"])?["status"]["phase"] != "Running" {
        faults.push("the pod on the foreign Node does not run".to_owned());
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}

/// What the API server wrote down of our programs' requests.
pub(super) fn requests(world: &World) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(world.plane.audit_log())?;
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).context("the API server's audit log")).collect()
}

/// Those of one of our service accounts.
pub(super) fn asked_by<'a>(requests: &'a [Value], account: &str) -> impl Iterator<Item = &'a Value> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    requests.iter().filter(move |r| r["user"]["username"] == user.as_str())
}

fn verb_and_resource(request: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = &request["objectRef"];
    let resource = match target["subresource"].as_str() {
        Some(sub) => format!("{}/{sub}", text(&target["resource"])),
        None => text(&target["resource"]),
    };
    (resource, text(&request["verb"]))
}

/// The rights that a manifest gives, one resource and verb each.
fn granted(world: &World, file: &str) -> Result<BTreeSet<(String, String)>> {
    let manifest = std::fs::read_to_string(workspace::root().join(file))?;
    let read = world.kubectl.call(&["create", "--dry-run=client", "-o", "json", "-f", "-"], &manifest)?;
    let mut rights = BTreeSet::new();
    let objects: Vec<Value> =
        serde_json::Deserializer::from_str(&read).into_iter().collect::<Result<_, _>>()?;
    let items = objects.iter().flat_map(|object| match object["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![object.clone()],
    });
    for rule in items.filter_map(|object| object["rules"].as_array().cloned()).flatten() {
        let texts = |field: &str| -> Vec<String> {
            let all = rule[field].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for resource in texts("resources") {
            rights.extend(texts("verbs").into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    if rights.is_empty() {
        bail!("{file} gives no rights");
    }
    Ok(rights)
}
