//! What `docs/on-your-cluster.md` tells a newcomer to type, typed.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::process::{Process, tail};
use super::super::world::{World, ensure, name};
use crate::workspace;

const DOCUMENT: &str = "docs/on-your-cluster.md";

/// Runs every command of the document, in order and in one shell, with the cluster as its only one. Nothing of BigFleet
/// is left in the cluster then.
pub(super) fn on_your_cluster(world: &mut World) -> Result<()> {
    world.fleet()?.stop()?;
    // The document does without the option that the operators had so far.
    let more = workspace::root().join("deploy/rbac/operator-daemonset-overhead.yaml").display().to_string();
    world.kubectl.run(&["delete", "-f", &more])?;
    let text = std::fs::read_to_string(workspace::root().join(DOCUMENT))?;
    let commands = commands(&text);
    ensure(commands.len() >= 8, || format!("{DOCUMENT} has only {} commands", commands.len()))?;
    // Each command is shown before it runs, and the first that fails ends it all.
    let script = format!("set -ex\n{}\nwait\n", commands.join("\n"));
    let programs = world.folder.join("bin");
    std::fs::create_dir_all(&programs)?;
    std::os::unix::fs::symlink(&world.executable, programs.join("bigfleet"))?;
    std::os::unix::fs::symlink(world.kubebox.program("kubectl"), programs.join("kubectl"))?;
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let paths = std::iter::once(programs).chain(std::env::split_paths(&path));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(workspace::root());
    bash.env("PATH", std::env::join_paths(paths)?).env("KUBECONFIG", world.kubectl.kubeconfig());
    let mut process = Process::start("documents", bash, &world.folder, &world.reaper)?;
    let status = world.until("the commands to end", |_| {
        process.ended()?.context("they have not; the log tells which is on")
    })?;
    if !status.success() {
        bail!(
            "{DOCUMENT}: a command failed ({status}); the end of what was printed:\n{}",
            tail(&process.printed()?, 25)
        );
    }
    let crds = world.kubectl.list(&["crd"])?;
    let left: Vec<&str> = crds.iter().map(name).filter(|name| name.ends_with("bigfleet.lucy.sh")).collect();
    ensure(left.is_empty(), || format!("{left:?} are left after {DOCUMENT}"))?;
    let roles = world.kubectl.run(&["get", "clusterroles,clusterrolebindings,namespaces", "-o", "name"])?;
    let left: Vec<&str> = roles.lines().filter(|name| name.contains("/bigfleet-")).collect();
    ensure(left.is_empty(), || format!("{left:?} are left after {DOCUMENT}"))
}

/// The commands of its `console` blocks. None of them spans lines.
fn commands(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(info) = line.strip_prefix("```") {
            inside = info == "console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            found.push(command);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn only_console_blocks_hold_commands() {
        let text = "$ no\n```console\n$ one\noutput\n$ two &\n```\n```yaml\n$ no\n```\n";
        assert_eq!(commands(text), ["one", "two &"]);
    }
}
