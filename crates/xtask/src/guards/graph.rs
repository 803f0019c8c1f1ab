//! Arrows between crates: who may depend on whom, and what must never be reached.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::workspace;

/// Our crates by level. A crate may depend on lower levels; its tests may also use its own level.
const LEVELS: &[&[&str]] = &[
    &["bigfleet-types"],
    &["bigfleet-proto", "bigfleet-engine"],
    &["bigfleet-net", "bigfleet-oracle", "bigfleet-decide"],
    &["bigfleet-provider-kit", "bigfleet-shard", "bigfleet-operator", "bigfleet-consensus"],
    &["bigfleet-coordinator", "bigfleet-kubernetes"],
    &["bigfleet-conformance", "bigfleet-sim", "bigfleet-dashboard", "bigfleet-bench"],
    &["bigfleet"],
    &["xtask", "bigfleet-scripted-shard"],
];

/// Tests that look up on purpose: the engine is compared with the oracle, which speaks its words of input and output.
const REFEREES: &[(&str, &str)] = &[("bigfleet-engine", "bigfleet-oracle")];

/// Crates that decide without I/O.
const PURE: &[&str] = &["bigfleet-types", "bigfleet-engine"];

/// What a pure crate must not reach, however indirectly: runtimes, sockets, files, clocks and chance.
const IO: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "crossterm",
    "fastrand",
    "getrandom",
    "h2",
    "hyper",
    "hyper-util",
    "jiff",
    "mio",
    "nix",
    "rand",
    "rand_core",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tokio-stream",
    "tokio-util",
    "tonic",
    "tower",
    "tracing-subscriber",
];

/// What the shard must not reach, not even in tests: it has to work while there is no coordinator.
const COORDINATION: &[&str] = &["bigfleet-coordinator", "bigfleet-consensus", "openraft", "redb"];

/// Who depends on whom. A name with several versions is one node: an arrow of any version counts.
#[derive(Debug, Clone, Default)]
struct Graph {
    members: BTreeSet<String>,
    /// By crate: what it links.
    normal: BTreeMap<String, BTreeSet<String>>,
    /// By member: what its tests and its build script use beside that.
    dev: BTreeMap<String, BTreeSet<String>>,
}

pub(super) fn check() -> Result<Vec<String>> {
    Ok(violations(&Graph::load()?))
}

impl Graph {
    fn load() -> Result<Self> {
        let metadata = MetadataCommand::new()
            .current_dir(workspace::root())
            .other_options(["--locked".to_owned(), "--filter-platform".to_owned(), host()?])
            .exec()
            .context("cargo metadata failed")?;
        let resolve = metadata.resolve.as_ref().context("cargo metadata gave no graph")?;
        let name = |id| metadata[id].name.to_string();
        let mut graph = Self::default();
        graph.members.extend(metadata.workspace_members.iter().map(name));
        for node in &resolve.nodes {
            let from = name(&node.id);
            for dep in &node.deps {
                for kind in &dep.dep_kinds {
                    let side = match kind.kind {
                        DependencyKind::Normal => &mut graph.normal,
                        _ => &mut graph.dev,
                    };
                    side.entry(from.clone()).or_default().insert(name(&dep.pkg));
                }
            }
        }
        Ok(graph)
    }

    /// The way from `from` to the nearest of `targets`, over what is linked; with `dev`, also over what the tests
    /// of `from` itself use.
    fn path_to(&self, from: &str, targets: &[&str], dev: bool) -> Option<Vec<String>> {
        let mut came: BTreeMap<String, String> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([from.to_owned()]);
        while let Some(at) = queue.pop_front() {
            if targets.contains(&at.as_str()) {
                let mut path = vec![at];
                while let Some(before) = path.last().and_then(|last| came.get(last)) {
                    path.push(before.clone());
                }
                path.reverse();
                return Some(path);
            }
            let tests = if dev && at == from { self.dev.get(&at) } else { None };
            for next in self.normal.get(&at).into_iter().chain(tests).flatten() {
                if next != from && !came.contains_key(next) {
                    came.insert(next.clone(), at.clone());
                    queue.push_back(next.clone());
                }
            }
        }
        None
    }
}

fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say its host")?.to_owned())
}

fn level(name: &str) -> Option<usize> {
    LEVELS.iter().position(|names| names.contains(&name))
}

fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for member in &graph.members {
        let Some(own) = level(member) else {
            found.push(format!("{member} has no level; add it to LEVELS in xtask's guards/graph.rs"));
            continue;
        };
        let arrows = |side: &BTreeMap<String, BTreeSet<String>>,
                      highest: Option<usize>,
                      allowed: &[(&str, &str)],
                      how: &str| {
            let targets = side.get(member).into_iter().flatten().filter(|t| graph.members.contains(*t));
            targets
                .filter(|target| level(target).is_some_and(|l| highest.is_none_or(|h| l > h)))
                .filter(|target| !allowed.contains(&(member.as_str(), target.as_str())))
                .map(|target| format!("{member} {how} {target}, which is not below it"))
                .collect::<Vec<_>>()
        };
        found.extend(arrows(&graph.normal, own.checked_sub(1), &[], "depends on"));
        found.extend(arrows(&graph.dev, Some(own), REFEREES, "tests with"));
    }
    for pure in PURE {
        if !graph.members.contains(*pure) {
            found.push(format!("{pure} is not in the workspace; correct PURE in xtask's guards/graph.rs"));
        }
        if let Some(path) = graph.path_to(pure, IO, false) {
            found.push(format!("{pure} must do no I/O and reaches {}", path.join(" -> ")));
        }
    }
    if let Some(path) = graph.path_to("bigfleet-shard", COORDINATION, true) {
        found.push(format!("the shard must not know the coordinator and reaches {}", path.join(" -> ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real graph with arrows added, and what is found wrong with it.
    fn with(normal: &[(&str, &str)], dev: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::load().unwrap();
        for (side, arrows) in [(&mut graph.normal, normal), (&mut graph.dev, dev)] {
            for (from, to) in arrows {
                side.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
        }
        violations(&graph)
    }

    fn one(found: &[String], words: &[&str]) {
        assert!(
            found.iter().any(|line| words.iter().all(|word| line.contains(word))),
            "{words:?} not in {found:#?}"
        );
    }

    #[test]
    fn the_graph_is_read() {
        let graph = Graph::load().unwrap();
        assert!(graph.normal["bigfleet-engine"].contains("bigfleet-types"));
        assert!(graph.dev["bigfleet-shard"].contains("bigfleet-provider-kit"));
        // The search finds what is there.
        assert_eq!(graph.path_to("bigfleet-net", IO, false).unwrap()[0], "bigfleet-net");
    }

    #[test]
    fn an_arrow_upwards_or_sideways_is_found() {
        let found = with(&[("bigfleet-types", "bigfleet-proto"), ("bigfleet-engine", "bigfleet-proto")], &[]);
        one(&found, &["bigfleet-types depends on bigfleet-proto"]);
        one(&found, &["bigfleet-engine depends on bigfleet-proto"]);
        one(&with(&[], &[("bigfleet-net", "bigfleet-shard")]), &["bigfleet-net tests with bigfleet-shard"]);
    }

    #[test]
    fn io_behind_a_pure_crate_is_found_however_deep() {
        let found =
            with(&[("bigfleet-engine", "innocent"), ("innocent", "deeper"), ("deeper", "tokio")], &[]);
        one(&found, &["bigfleet-engine -> innocent -> deeper -> tokio"]);
        one(&with(&[("bigfleet-types", "getrandom")], &[]), &["bigfleet-types -> getrandom"]);
    }

    #[test]
    fn a_coordinator_behind_the_shard_is_found_in_its_tests_too() {
        one(&with(&[("bigfleet-net", "openraft")], &[]), &["bigfleet-net -> openraft"]);
        let found = with(&[("helper", "bigfleet-coordinator")], &[("bigfleet-shard", "helper")]);
        one(&found, &["bigfleet-shard -> helper -> bigfleet-coordinator"]);
    }

    #[test]
    fn a_crate_without_a_level_is_found() {
        let mut graph = Graph::load().unwrap();
        graph.members.insert("bigfleet-new".to_owned());
        one(&violations(&graph), &["bigfleet-new has no level"]);
    }
}
