//! A control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok as the kubelets.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::kubebox::Kubebox;
use super::kubectl::Kubectl;
use super::process::{Process, Reaper};
use super::{certs, http};

/// The annotation of Nodes whose kubelet kwok plays. Others never become Ready.
pub(super) const KWOK: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// The annotation of Nodes that kwok does not make Ready yet.
pub(super) const OFF: &str = "bigfleet-e2e/kubelet-off";
/// How the stage begins that makes Nodes Ready; another condition fits behind it.
const INITIALIZE: &str = "  name: node-initialize\nspec:\n  resourceRef:\n    apiGroup: v1\n    kind: Node\n  selector:\n    matchExpressions:\n";
/// How long the whole plane may take to come up. On an idle machine it takes six seconds.
const UP_WITHIN: Duration = Duration::from_secs(180);

/// What our programs ask of the API server is written down, to be compared with what they may.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ['system:serviceaccounts:bigfleet-system']
  - level: None
";

/// A running control plane.
#[derive(Debug)]
pub(super) struct Plane {
    folder: PathBuf,
    kubebox: Kubebox,
    reaper: Reaper,
    ports: Ports,
    /// In the order of their start.
    running: Vec<(&'static str, Process)>,
    admin: Kubectl,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    api: u16,
    etcd: u16,
    peer: u16,
    scheduler: u16,
    controllers: u16,
    kwok: u16,
}

impl Plane {
    /// Starts everything in `folder` and waits until pods can be created.
    ///
    /// # Errors
    /// A part does not start, or not in time.
    pub(super) fn start(kubebox: &Kubebox, folder: &Path, reaper: &Reaper) -> Result<Self> {
        certs::make(folder)?;
        let [api, etcd, peer, scheduler, controllers, kwok] = free_ports()?;
        let admin = Kubectl::new(kubebox.program("kubectl"), &folder.join("admin.kubeconfig"));
        let mut plane = Self {
            folder: folder.to_owned(),
            kubebox: kubebox.clone(),
            reaper: reaper.clone(),
            ports: Ports { api, etcd, peer, scheduler, controllers, kwok },
            running: Vec::new(),
            admin,
        };
        let mut users = String::new();
        let identities = [
            ("admin", "admin", "system:masters"),
            ("kwok", "kwok", "system:masters"),
            ("scheduler", "system:kube-scheduler", ""),
            ("controllers", "system:kube-controller-manager", ""),
        ];
        for (name, user, group) in identities {
            let token = random_token()?;
            writeln!(users, "{token},{user},{user},\"{group}\"")?;
            plane.kubeconfig(name, &token, "default")?;
        }
        std::fs::write(folder.join("tokens.csv"), users)?;
        std::fs::write(folder.join("audit-policy.yaml"), AUDIT)?;
        plane.start_etcd()?;
        plane.start_api_server()?;
        plane.start_controllers()?;
        plane.start_scheduler()?;
        plane.start_kwok()?;
        // Pods are refused before it exists.
        plane.until("the default ServiceAccount", |plane| plane.admin.run(&["get", "sa", "default"]))?;
        for port in [plane.ports.scheduler, plane.ports.controllers, plane.ports.kwok] {
            plane.until("every part to listen", |_| {
                std::net::TcpStream::connect(("127.0.0.1", port)).map_err(anyhow::Error::from)
            })?;
        }
        Ok(plane)
    }

    /// kubectl as the administrator.
    pub(super) fn admin(&self) -> &Kubectl {
        &self.admin
    }

    /// Where the API server is reached.
    pub(super) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The audit log of what our programs asked.
    pub(super) fn audit_log(&self) -> PathBuf {
        self.folder.join("api-audit.log")
    }

    /// A kubeconfig for a token, as JSON, which is YAML.
    pub(super) fn kubeconfig_of(&self, user: &str, token: &str, namespace: &str) -> Result<String> {
        let ca = std::fs::read(self.folder.join("ca.crt"))?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {
                "server": self.server(),
                "certificate-authority-data": base64(&ca),
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user, "namespace": namespace}}],
            "current-context": "e2e",
        });
        Ok(serde_json::to_string_pretty(&config)?)
    }

    /// Writes a kubeconfig into the working folder.
    pub(super) fn kubeconfig(&self, user: &str, token: &str, namespace: &str) -> Result<PathBuf> {
        let file = self.folder.join(format!("{user}.kubeconfig"));
        std::fs::write(&file, self.kubeconfig_of(user, token, namespace)?)?;
        Ok(file)
    }

    /// A kubeconfig for a ServiceAccount, with a token made by the API server.
    pub(super) fn service_account(&self, name: &str, namespace: &str) -> Result<PathBuf> {
        let token = self.admin.run(&["create", "token", name, "-n", namespace, "--duration", "24h"])?;
        self.kubeconfig(name, token.trim(), namespace)
    }

    /// Fails when a part has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.running.iter_mut().try_for_each(|(_, process)| process.check())
    }

    /// Makes etcd forget every revision before the present one.
    pub(super) fn compact(&self) -> Result<()> {
        let address = format!("127.0.0.1:{}", self.ports.etcd);
        let answer = http::post(&address, "/v3/kv/range", r#"{"key":"AA==","limit":"1"}"#)?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        let revision = answer["header"]["revision"].as_str().context("etcd names no revision")?;
        http::post(&address, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#))?;
        Ok(())
    }

    /// Takes the API server away.
    pub(super) fn stop_api_server(&mut self) -> Result<()> {
        let at = self.running.iter().position(|(name, _)| *name == "kube-apiserver");
        let (_, process) = self.running.remove(at.context("the API server does not run")?);
        // It would wait a minute for watches to end.
        process.kill()
    }

    /// Starts it, and waits until it is ready.
    pub(super) fn start_api_server(&mut self) -> Result<()> {
        let mut api = Command::new(self.kubebox.program("kube-apiserver"));
        let ports = self.ports;
        api.args(["--etcd-servers", &format!("http://127.0.0.1:{}", ports.etcd)])
            .args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"])
            .args(["--secure-port", &ports.api.to_string(), "--endpoint-reconciler-type", "none"])
            .args(["--tls-cert-file", "server.crt", "--tls-private-key-file", "server.key"])
            .args(["--client-ca-file", "ca.crt", "--cert-dir", ".", "--token-auth-file", "tokens.csv"])
            .args(["--authorization-mode", "Node,RBAC", "--allow-privileged"])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args(["--service-account-key-file", "sa.key", "--service-account-signing-key-file", "sa.key"])
            .args(["--service-cluster-ip-range", "10.0.0.0/16"])
            .args(["--requestheader-client-ca-file", "ca.crt"])
            .args(["--requestheader-allowed-names", "front-proxy-client"])
            .args(["--requestheader-username-headers", "X-Remote-User"])
            .args(["--requestheader-group-headers", "X-Remote-Group"])
            .args(["--requestheader-extra-headers-prefix", "X-Remote-Extra-"])
            .args(["--proxy-client-cert-file", "front-proxy.crt"])
            .args(["--proxy-client-key-file", "front-proxy.key"])
            .args(["--audit-policy-file", "audit-policy.yaml", "--audit-log-path", "api-audit.log"])
            // In one piece: steps count in it.
            .args(["--audit-log-maxsize", "100000"])
            // Only what we compact is compacted.
            .args(["--etcd-compaction-interval", "0"]);
        self.run("kube-apiserver", api)?;
        self.until("the API server", |plane| plane.admin.run(&["get", "--raw", "/readyz"]))
    }

    fn start_etcd(&mut self) -> Result<()> {
        let (client, peer) = (self.ports.etcd, self.ports.peer);
        let [client, peer] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let mut etcd = Command::new(self.kubebox.program("etcd"));
        etcd.args(["--data-dir", "etcd", "--unsafe-no-fsync", "--log-level", "warn"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--quota-backend-bytes", &(4u64 << 30).to_string()]);
        self.run("etcd", etcd)
    }

    fn start_controllers(&mut self) -> Result<()> {
        let mut controllers = Command::new(self.kubebox.program("kube-controller-manager"));
        let config = "controllers.kubeconfig";
        controllers
            .args(["--kubeconfig", config, "--authentication-kubeconfig", config])
            .args(["--authorization-kubeconfig", config, "--bind-address", "127.0.0.1"])
            .args(["--secure-port", &self.ports.controllers.to_string(), "--cert-dir", "."])
            .args(["--leader-elect=false", "--use-service-account-credentials"])
            .args(["--service-account-private-key-file", "sa.key", "--root-ca-file", "ca.crt"])
            .args(["--kube-api-qps", "500", "--kube-api-burst", "1000"]);
        self.run("kube-controller-manager", controllers)
    }

    fn start_scheduler(&mut self) -> Result<()> {
        // With the default limits it would be the scheduler's client that is measured.
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": "scheduler.kubeconfig", "qps": 1000, "burst": 2000},
        });
        std::fs::write(self.folder.join("scheduler.yaml"), config.to_string())?;
        let mut scheduler = Command::new(self.kubebox.program("kube-scheduler"));
        scheduler
            .args(["--config", "scheduler.yaml", "--authentication-kubeconfig", "scheduler.kubeconfig"])
            .args(["--authorization-kubeconfig", "scheduler.kubeconfig", "--bind-address", "127.0.0.1"])
            .args(["--secure-port", &self.ports.scheduler.to_string(), "--cert-dir", "."]);
        self.run("kube-scheduler", scheduler)
    }

    fn start_kwok(&mut self) -> Result<()> {
        let mut kwok = Command::new(self.kubebox.program("kwok"));
        let stages = std::fs::read_to_string(self.kubebox.program("kwok-stages.yaml"))?;
        let not_off = format!("    - {{key: '.metadata.annotations[\"{OFF}\"]', operator: DoesNotExist}}\n");
        if !stages.contains(INITIALIZE) {
            bail!("kwok's stages are not as expected: there is no `{INITIALIZE}`");
        }
        let stages = stages.replace(INITIALIZE, &(INITIALIZE.to_owned() + &not_off));
        let file = self.folder.join("kwok-stages.yaml");
        std::fs::write(&file, stages)?;
        kwok.args(["--kubeconfig", "kwok.kubeconfig", "--manage-all-nodes=false"])
            .args(["--manage-nodes-with-annotation-selector", &format!("{}={}", KWOK.0, KWOK.1)])
            .arg("--config")
            .arg(file)
            .args(["--node-lease-duration-seconds", "40", "--node-ip", "127.0.0.1"])
            .args(["--server-address", &format!("127.0.0.1:{}", self.ports.kwok)]);
        self.run("kwok", kwok)
    }

    fn run(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        command.current_dir(&self.folder);
        let process = Process::start(name, command, &self.folder, &self.reaper)?;
        self.running.push((name, process));
        Ok(())
    }

    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Result<T>) -> Result<()> {
        let start = Instant::now();
        loop {
            let Err(error) = look(self) else { return Ok(()) };
            self.check()?;
            if start.elapsed() > UP_WITHIN {
                bail!("waited {} s for {what}: {error:#}", UP_WITHIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops everything, last started first.
    pub(super) fn stop(mut self) -> Result<()> {
        while let Some((name, process)) = self.running.pop() {
            // Nothing of it is kept; waiting for its minute of grace would be for nothing.
            if name == "kube-apiserver" { process.kill()? } else { process.stop().map(|_| ())? }
        }
        Ok(())
    }

    /// Lets everything live on.
    pub(super) fn let_go(self) -> Vec<u32> {
        self.running.into_iter().map(|(_, process)| process.let_go()).collect()
    }
}

/// Ports on loopback that are free, below the range from which the system hands out ports: the API server comes back
/// to its own after a restart.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let (low, high) = (10_000u16, 32_000u16);
    let mut seed = [0; 2];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    let start = u16::from_le_bytes(seed) % (high - low);
    let mut held = Vec::new();
    for n in 0..(high - low) {
        if held.len() == N {
            break;
        }
        let port = low + (start + n) % (high - low);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push((port, listener));
        }
    }
    let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.try_into().map_err(|_| anyhow::anyhow!("{N} free ports on loopback cannot be found"))
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut token = String::new();
    for byte in bytes {
        write!(token, "{byte:02x}")?;
    }
    Ok(token)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
