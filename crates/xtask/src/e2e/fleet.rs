//! Our own programs beside the control plane, each with no more rights than we ship.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::boot::CATALOGUE;
use super::http;
use super::plane::{Plane, free_ports};
use super::process::{Process, Reaper};

/// The cluster's id.
pub(super) const CLUSTER: &str = "e2e";
/// Where the ServiceAccounts live.
pub(super) const NAMESPACE: &str = "bigfleet-system";
const OPERATOR: &str = "bigfleet-operator";
const CONTROLLER: &str = "bigfleet-unschedulable-pod-controller";
const READY_WITHIN: Duration = Duration::from_secs(120);

/// What machines need to join: a Node of their own, and a look at their pods and at what is said of them.
const JOIN: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: host, namespace: bigfleet-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-host}
rules:
  - {apiGroups: [''], resources: [nodes], verbs: [get, create, patch, delete]}
  - {apiGroups: [bigfleet.lucy.sh], resources: [upcomingnodes], verbs: [get]}
  - {apiGroups: [''], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-host}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-host}
subjects: [{kind: ServiceAccount, name: host, namespace: bigfleet-system}]
";

/// One of our programs, and where its metrics are.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) process: Process,
    pub(super) metrics: String,
}

impl Program {
    /// The sum of a metric's samples with these labels; 0 when there is none.
    pub(super) fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        Ok(http::metric(&self.metrics, name, labels)?.unwrap_or(0.0))
    }
}

/// Our programs. A program that does not run is `None`.
#[derive(Debug)]
pub(super) struct Fleet {
    folder: PathBuf,
    executable: PathBuf,
    reaper: Reaper,
    provider_addr: String,
    shard_addr: String,
    /// Metrics: provider, shard, pod controller.
    metrics: [String; 3],
    operator_config: PathBuf,
    controller_config: PathBuf,
    pub(super) provider: Option<Program>,
    pub(super) shard: Option<Program>,
    pub(super) controller: Option<Program>,
    pub(super) operators: Vec<Program>,
    started: u32,
}

/// The machines: seven that idle, of which three are special, and a slot for one more with devices.
fn catalogue() -> Value {
    let class = |name: &str, count: u32, idle: bool, zones: Value, resources: Value, labels: Value| {
        json!({
            "name": name, "count": count, "idle": idle, "instance_type": format!("{name}.8"), "zones": zones,
            "capacity_type": if idle { "bare-metal" } else { "on-demand" },
            "price_per_hour": if idle { 0.0 } else { 4.0 },
            "resources": resources, "labels": labels,
        })
    };
    let plain = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    let gpu = json!({"cpu": "32", "memory": "128Gi", "pods": "110", "nvidia.com/gpu": "4"});
    json!([
        class("general", 7, true, json!(["zone-b", "zone-a"]), plain.clone(), json!({})),
        class("ssd", 2, true, json!(["zone-a"]), plain, json!({"disk": "ssd"})),
        class("gpu", 1, true, json!(["zone-a"]), gpu.clone(), json!({})),
        class("gpu-slot", 2, false, json!(["zone-a"]), gpu, json!({})),
    ])
}

impl Fleet {
    /// Writes what the programs need into `folder` and makes their identities. Starts nothing.
    ///
    /// # Errors
    /// The API server refuses, or a file cannot be written.
    pub(super) fn prepare(plane: &Plane, executable: &Path, folder: &Path, reaper: &Reaper) -> Result<Self> {
        plane.admin().apply(JOIN)?;
        std::fs::write(folder.join(CATALOGUE), serde_json::to_string_pretty(&catalogue())?)?;
        let token = plane.admin().run(&["create", "token", "host", "-n", NAMESPACE, "--duration", "24h"])?;
        let kubeconfig = plane.kubeconfig_of("host", token.trim(), "default")?;
        std::fs::write(folder.join("bootstrap.tmpl"), template(&kubeconfig))?;
        let [provider, shard, a, b, c] = free_ports()?.map(|port: u16| format!("127.0.0.1:{port}"));
        Ok(Self {
            folder: folder.to_owned(),
            executable: executable.to_owned(),
            reaper: reaper.clone(),
            provider_addr: provider,
            shard_addr: shard,
            metrics: [a, b, c],
            operator_config: plane.service_account(OPERATOR, NAMESPACE)?,
            controller_config: plane.service_account(CONTROLLER, NAMESPACE)?,
            provider: None,
            shard: None,
            controller: None,
            operators: Vec::new(),
            started: 0,
        })
    }

    /// Starts what does not run: provider, shard, pod controller and one operator.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.provider.is_none() {
            self.start_provider()?;
        }
        if self.shard.is_none() {
            self.start_shard()?;
        }
        if self.controller.is_none() {
            self.start_controller()?;
        }
        if self.operators.is_empty() {
            let addr = self.shard_addr.clone();
            self.start_operator(&addr, true)?;
        }
        Ok(())
    }

    fn start_provider(&mut self) -> Result<()> {
        let boot = format!("{} e2e-boot {}", self.folder.join("xtask").display(), self.folder.display());
        if boot.split_whitespace().count() != 3 {
            bail!("a path with blanks cannot be part of a boot command: {boot}");
        }
        let state = self.folder.join("provider-state");
        let catalogue = self.folder.join(CATALOGUE);
        let addr = self.provider_addr.clone();
        // A host boots faster here than an operator writes; with nothing to wait for, no order could be told.
        let slow = ["--configure-latency", "500ms"];
        let args = ["provider", "fakecloud", "--addr", &addr, "--boot-command", &boot, slow[0], slow[1]];
        let paths = [("--state", state), ("--archetypes", catalogue)];
        self.provider = Some(self.run("provider", &args, &paths, self.metrics[0].clone())?);
        Ok(())
    }

    fn start_shard(&mut self) -> Result<()> {
        let (listen, provider) = (self.shard_addr.clone(), self.provider_addr.clone());
        // Every rail at its default but the wait before a reclaim, which would only cost time here.
        let args = ["shard", "--listen", &listen, "--provider-addr", &provider, "--reclaim-after", "3s"];
        let paths = [
            ("--data-dir", self.folder.join("shard-data")),
            ("--audit-log", self.folder.join("audit.jsonl")),
        ];
        self.shard = Some(self.run("shard", &args, &paths, self.metrics[1].clone())?);
        Ok(())
    }

    /// Starts the pod controller.
    pub(super) fn start_controller(&mut self) -> Result<()> {
        let paths = [("--kubeconfig", self.controller_config.clone())];
        let program = self.run("pod-controller", &["pod-controller"], &paths, self.metrics[2].clone())?;
        self.controller = Some(program);
        Ok(())
    }

    /// Starts one more operator that dials `shard`. With `ready` it waits until the operator is; a second one is not,
    /// or not before the first is gone, depending on what its readiness means.
    pub(super) fn start_operator(&mut self, shard: &str, ready: bool) -> Result<()> {
        let mut program = self.operator(shard, &[])?;
        if ready {
            wait_ready(&mut program)?;
        }
        self.operators.push(program);
        Ok(())
    }

    /// Starts an operator without election, which outlives any absence of the API server; it must be the only one.
    pub(super) fn start_lone_operator(&mut self) -> Result<()> {
        let shard = self.shard_addr();
        let mut program = self.operator(&shard, &["--leader-elect=false"])?;
        wait_ready(&mut program)?;
        self.operators.push(program);
        Ok(())
    }

    fn operator(&mut self, shard: &str, more: &[&str]) -> Result<Program> {
        let [port] = free_ports()?;
        self.started += 1;
        let settings = ["--cluster-id", CLUSTER, "--shard-addr", shard, "--daemonset-overhead=auto"];
        let args = [&["operator"], &settings[..], more].concat();
        let paths = [
            ("--kubeconfig", self.operator_config.clone()),
            ("--bootstrap-template-file", self.folder.join("bootstrap.tmpl")),
        ];
        self.spawn(&format!("operator-{}", self.started), &args, &paths, format!("127.0.0.1:{port}"))
    }

    /// Stops the operators and the pod controller in order; each must end well.
    pub(super) fn stop_cluster_side(&mut self) -> Result<()> {
        std::mem::take(&mut self.operators).into_iter().chain(self.controller.take()).try_for_each(stop)
    }

    /// Where operators dial.
    pub(super) fn shard_addr(&self) -> String {
        self.shard_addr.clone()
    }

    /// Kills every program of ours at once, without a word.
    pub(super) fn kill(&mut self) -> Result<()> {
        let operators = std::mem::take(&mut self.operators);
        let rest = [self.controller.take(), self.shard.take(), self.provider.take()];
        operators.into_iter().chain(rest.into_iter().flatten()).try_for_each(|p| p.process.kill())
    }

    /// Stops every program of ours in order; each must end well.
    pub(super) fn stop(&mut self) -> Result<()> {
        let operators = std::mem::take(&mut self.operators);
        let rest = [self.controller.take(), self.shard.take(), self.provider.take()];
        for program in operators.into_iter().chain(rest.into_iter().flatten()) {
            stop(program)?;
        }
        Ok(())
    }

    /// Fails when a program has ended that nobody stopped.
    pub(super) fn check(&mut self) -> Result<()> {
        let rest = [&mut self.controller, &mut self.shard, &mut self.provider];
        let mut all = self.operators.iter_mut().chain(rest.into_iter().flatten());
        all.try_for_each(|program| program.process.check())
    }

    /// Lets every program live on.
    pub(super) fn let_go(&mut self) -> Vec<u32> {
        let operators = std::mem::take(&mut self.operators);
        let rest = [self.controller.take(), self.shard.take(), self.provider.take()];
        operators.into_iter().chain(rest.into_iter().flatten()).map(|p| p.process.let_go()).collect()
    }

    /// What `bigfleet ctl` answers.
    pub(super) fn ctl(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut command = self.command(&["ctl", "--output", "json"]);
        command.args(["--shard", &self.shard_addr, "--provider", &self.provider_addr]).args(args);
        let output = command.output().context("cannot start bigfleet ctl")?;
        if !output.status.success() {
            bail!("bigfleet ctl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The executable, in an environment without settings of ours.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIGFLEET_")) {
            command.env_remove(name);
        }
        command.args(args);
        command
    }

    fn spawn(
        &self,
        name: &str,
        args: &[&str],
        paths: &[(&str, PathBuf)],
        metrics: String,
    ) -> Result<Program> {
        let mut command = self.command(args);
        command.args(["--metrics-addr", &metrics]).current_dir(&self.folder);
        for (flag, path) in paths {
            command.arg(flag).arg(path);
        }
        let process = Process::start(name, command, &self.folder, &self.reaper)?;
        Ok(Program { process, metrics })
    }

    fn run(&self, name: &str, args: &[&str], paths: &[(&str, PathBuf)], metrics: String) -> Result<Program> {
        let mut program = self.spawn(name, args, paths, metrics)?;
        wait_ready(&mut program)?;
        Ok(program)
    }
}

/// Ends a program with SIGTERM; it must end with status 0.
pub(super) fn stop(program: Program) -> Result<()> {
    let id = program.process.id();
    let status = program.process.stop()?;
    if !status.success() {
        bail!("process {id} ended with {status} when it was asked to stop; expected 0");
    }
    Ok(())
}

fn wait_ready(program: &mut Program) -> Result<()> {
    let start = Instant::now();
    loop {
        let Err(error) = http::get(&program.metrics, "/readyz") else { return Ok(()) };
        program.process.check()?;
        if start.elapsed() > READY_WITHIN {
            bail!("not ready within {} s: {error:#}", READY_WITHIN.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A bootstrap template that gives a host all it needs, as JSON.
fn template(kubeconfig: &str) -> String {
    format!(
        r#"{{
  "cluster": {{{{ quote .ClusterID }}}},
  "machine": {{{{ quote .MachineID }}}},
  "labels": {{{{ toJson .NodeLabels }}}},
  "taints": [{{{{ range $i, $taint := .Taints }}}}{{{{ if $i }}}}, {{{{ end }}}}{{"key": {{{{ quote $taint.Key }}}}, "value": {{{{ quote $taint.Value }}}}, "effect": {{{{ quote $taint.Effect }}}} }}{{{{ end }}}}],
  "kubeconfig": {kubeconfig}
}}
"#
    )
}
