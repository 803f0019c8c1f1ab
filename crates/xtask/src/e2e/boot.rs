//! The host that `fakecloud` starts at each Configure and again at each Drain: it joins by what the blob says.
//!
//! At Configure the blob is a JSON object: `kubeconfig` to join with, `machine`, `labels` and `taints` of the node. What
//! hardware the host has it knows itself, from the catalogue. It creates its Node, gives the operator time to see that,
//! lets its kubelet (kwok) make it Ready, settles, and only then ends well: what BigFleet says of it too early is seen
//! to be early. At Drain it waits until its pods have left or the grace is over, and takes its Node away.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::plane::{KWOK, OFF};
use super::watch::condition;
use super::world::ensure;

/// How long a host tries to do one thing.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(300);
/// How long a Node stays without a kubelet, unless the operator says before that it has registered.
const UNSEEN: Duration = Duration::from_secs(10);
/// From a Ready Node to the end of the boot.
const SETTLE: Duration = Duration::from_secs(2);
/// What hosts tell about themselves, a JSON object a line.
pub(super) const JOURNAL: &str = "hosts.jsonl";
/// The catalogue of machines.
pub(super) const CATALOGUE: &str = "machines.json";

/// Does what `BIGFLEET_OPERATION` says, with the files in `folder`.
///
/// # Errors
/// The host does not become a Ready node, or its Node cannot be taken away.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let host = Host {
        folder: folder.to_owned(),
        machine: variable("BIGFLEET_MACHINE_ID")?,
        instance_type: variable("BIGFLEET_INSTANCE_TYPE")?,
    };
    match variable("BIGFLEET_OPERATION")?.as_str() {
        "Configure" => {
            let mut blob = String::new();
            std::io::stdin().read_to_string(&mut blob).context("the bootstrap blob is no text")?;
            host.join(&serde_json::from_str(&blob).context("the bootstrap blob is no JSON")?)
        }
        "Drain" => {
            let grace = variable("BIGFLEET_GRACE_SECONDS")?.parse().context("BIGFLEET_GRACE_SECONDS")?;
            host.leave(Duration::from_secs(grace))
        }
        other => bail!("BIGFLEET_OPERATION is {other}, must be Configure or Drain"),
    }
}

struct Host {
    folder: PathBuf,
    machine: String,
    instance_type: String,
}

impl Host {
    fn node(&self) -> String {
        format!("node-{}", self.machine)
    }

    fn kubectl(&self) -> Kubectl {
        let kubeconfig = self.folder.join("hosts").join(format!("{}.kubeconfig", self.machine));
        Kubectl::new(self.folder.join("kubectl"), &kubeconfig)
    }

    fn join(&self, blob: &Value) -> Result<()> {
        if blob["machine"] != self.machine.as_str() {
            bail!("the blob is for machine {}, this host is {}", blob["machine"], self.machine);
        }
        let kubectl = self.kubectl();
        std::fs::create_dir_all(self.folder.join("hosts"))?;
        std::fs::write(kubectl.kubeconfig(), blob["kubeconfig"].to_string())?;
        let name = self.node();
        let mut labels = blob["labels"].as_object().context("the blob has no labels")?.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), name.clone().into());
        labels.insert("bigfleet.lucy.sh/machine-id".to_owned(), self.machine.clone().into());
        let hardware = self.hardware()?;
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {KWOK.0: KWOK.1, OFF: "yes"}},
            "spec": {"providerID": format!("fakecloud:///host-{}", self.machine), "taints": blob["taints"]},
            "status": {"allocatable": hardware, "capacity": hardware},
        });
        let node = node.to_string();
        insist(|| match kubectl.call(&["create", "--validate=false", "-f", "-"], &node) {
            // An answer that was lost.
            Err(error) if error.to_string().contains("AlreadyExists") => Ok(()),
            result => result.map(drop),
        })?;
        self.note("created")?;
        let created = Instant::now();
        let upcoming = format!("un-{}", self.machine);
        // An operator that is away must not keep a host from joining.
        while created.elapsed() < UNSEEN {
            let said = kubectl.get(&["upcomingnodes", &upcoming]);
            if said.is_ok_and(|said| said["status"]["phase"] == "Registered") {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        insist(|| kubectl.run(&["annotate", "node", &name, &format!("{OFF}-")]))?;
        insist(|| {
            let ready = condition(&kubectl.get(&["node", &name])?, "Ready") == Some("True");
            ensure(ready, || format!("{name} is not Ready"))
        })?;
        std::thread::sleep(SETTLE);
        self.note("done")
    }

    fn leave(&self, grace: Duration) -> Result<()> {
        let (kubectl, name) = (self.kubectl(), self.node());
        let start = Instant::now();
        let on_it = format!("--field-selector=spec.nodeName={name}");
        loop {
            let pods = insist(|| kubectl.list(&["pods", "-A", &on_it]))?;
            if !pods.iter().any(stays) {
                break;
            }
            if start.elapsed() > grace {
                self.note("grace is over")?;
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // It may be gone: an interrupted Drain runs again.
        insist(|| kubectl.run(&["delete", "node", &name, "--ignore-not-found"]))?;
        self.note("left")
    }

    fn hardware(&self) -> Result<Value> {
        let file = self.folder.join(CATALOGUE);
        let classes: Vec<Value> = serde_json::from_slice(&std::fs::read(&file)?)?;
        let class = classes.iter().find(|class| class["instance_type"] == self.instance_type.as_str());
        Ok(class.with_context(|| format!("{} has no {}", file.display(), self.instance_type))?["resources"]
            .clone())
    }

    fn note(&self, what: &str) -> Result<()> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let line = json!({"at": at, "machine": self.machine, "node": self.node(), "what": what});
        let mut file = File::options().create(true).append(true).open(self.folder.join(JOURNAL))?;
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }
}

/// Tries until it works, as a kubelet does: an API server that restarts is no reason to give up.
fn insist<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if start.elapsed() > PATIENCE => {
                return Err(error.context(format!("gave up after {} s", PATIENCE.as_secs())));
            }
            Err(_) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// Whether a pod holds up the end of its host.
fn stays(pod: &Value) -> bool {
    let ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let daemon = owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "DaemonSet"));
    !ended && !daemon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_and_daemon_pods_hold_nothing_up() {
        let owned = |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": kind}]}});
        assert!(stays(&json!({"status": {"phase": "Running"}})) && stays(&owned("ReplicaSet")));
        assert!(!stays(&json!({"status": {"phase": "Succeeded"}})) && !stays(&owned("DaemonSet")));
    }

    #[test]
    fn a_blob_for_another_machine_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let host =
            Host { folder: folder.path().to_owned(), machine: "m-1".into(), instance_type: "x".into() };
        let error = host.join(&json!({"machine": "m-2"})).unwrap_err().to_string();
        assert!(error.contains("m-2"), "{error}");
    }
}
