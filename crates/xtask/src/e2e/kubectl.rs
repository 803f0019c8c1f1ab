//! kubectl as we call it: one kubeconfig, JSON out.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How many of us create many objects.
const LANES: usize = 4;

/// kubectl for one identity.
#[derive(Debug, Clone)]
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// The program, called with a kubeconfig.
    pub(super) fn new(program: PathBuf, kubeconfig: &Path) -> Self {
        Self { program, kubeconfig: kubeconfig.to_owned() }
    }

    /// The kubeconfig.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A call that is yet to be made.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env_remove("KUBERC");
        // Discovery is cached beside the kubeconfig, not in anybody's home.
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        command
    }

    /// Calls it with `input`; gives what it printed.
    ///
    /// # Errors
    /// It fails; the error holds what it said.
    pub(super) fn call(&self, args: &[&str], input: &str) -> Result<String> {
        let shown = args.join(" ");
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut pipe = child.stdin.take().context("no standard input")?;
        // Writes beside reading: a long input and a long answer must not wait for each other.
        let output = std::thread::scope(|scope| {
            let feed = scope.spawn(move || pipe.write_all(input.as_bytes()));
            let output = child.wait_with_output();
            // One that fails early reads no input; its status tells.
            let _ = feed.join();
            output
        })?;
        if !output.status.success() {
            bail!("kubectl {shown}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("kubectl printed what is not UTF-8")
    }

    /// Calls it without input.
    pub(super) fn run(&self, args: &[&str]) -> Result<String> {
        self.call(args, "")
    }

    /// One object or list.
    pub(super) fn get(&self, args: &[&str]) -> Result<Value> {
        let all: Vec<&str> = ["get", "-o", "json"].into_iter().chain(args.iter().copied()).collect();
        Ok(serde_json::from_str(&self.run(&all)?)?)
    }

    /// The items of a list.
    pub(super) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        match self.get(args)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("kubectl get {} gave no list but {other}", args.join(" ")),
        }
    }

    /// Creates objects, or makes them so.
    pub(super) fn apply(&self, objects: &str) -> Result<String> {
        self.call(&["apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-"], objects)
    }

    /// Creates many objects. One kubectl holds itself back to fifty requests a second, so several share them.
    pub(super) fn create(&self, objects: &[Value]) -> Result<()> {
        let share = objects.len().div_ceil(LANES).max(1);
        std::thread::scope(|scope| {
            let lane =
                |some: &[Value]| self.call(&["create", "--validate=false", "-f", "-"], &list(some)).map(drop);
            let lanes: Vec<_> = objects.chunks(share).map(|some| scope.spawn(move || lane(some))).collect();
            lanes.into_iter().try_for_each(|lane| match lane.join() {
                Ok(result) => result,
                Err(_) => bail!("a thread that called kubectl panicked"),
            })
        })
    }

    /// Expects a refusal that says `because`.
    pub(super) fn refused(&self, args: &[&str], input: &str, because: &str) -> Result<()> {
        match self.call(args, input) {
            Ok(_) => bail!("`kubectl {}` was not refused; expected {because:?}", args.join(" ")),
            Err(error) if error.to_string().contains(because) => Ok(()),
            Err(error) => bail!("refused otherwise than by {because:?}: {error}"),
        }
    }
}

/// Objects as one.
pub(super) fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}
