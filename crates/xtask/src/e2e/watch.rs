//! Everything that happens to nodes, pods and our objects, in the order of the API server's own revisions.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde_json::Value;

use super::kubectl::Kubectl;

/// What is watched: a short name, and where.
const KINDS: [(&str, &str); 4] = [
    ("node", "/api/v1/nodes"),
    ("pod", "/api/v1/pods"),
    ("upcoming", "/apis/bigfleet.lucy.sh/v1alpha1/upcomingnodes"),
    ("request", "/apis/bigfleet.lucy.sh/v1alpha1/capacityrequests"),
];

/// One change.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Of which kind, by its short name.
    pub(super) kind: &'static str,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(super) what: String,
    /// The store's revision: one order for all kinds.
    pub(super) revision: u64,
    /// When we saw it.
    pub(super) seen: SystemTime,
    /// The object after it.
    pub(super) object: Value,
}

impl Change {
    /// The object's name.
    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Writes changes down until it is dropped.
#[derive(Debug, Clone)]
pub(super) struct Recorder(Arc<Mutex<Vec<Change>>>);

impl Recorder {
    /// Starts watching.
    pub(super) fn start(kubectl: &Kubectl) -> Result<Self> {
        let changes = Arc::new(Mutex::new(Vec::new()));
        for (kind, path) in KINDS {
            let list: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", path])?)?;
            let revision = list["metadata"]["resourceVersion"].as_str().context("a list without revision")?;
            let (kubectl, mut revision) = (kubectl.clone(), revision.to_owned());
            let weak = Arc::downgrade(&changes);
            std::thread::spawn(move || {
                while let Some(changes) = weak.upgrade() {
                    // A watch ends when the API server does; the next one goes on where it was, or starts over.
                    if let Err(error) = follow(&kubectl, kind, path, &mut revision, &changes) {
                        eprintln!("e2e: the watch of {path} ended: {error:#}");
                    }
                    drop(changes);
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
        }
        Ok(Self(changes))
    }

    /// How many changes there are so far: a place to look from.
    pub(super) fn mark(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The changes of a kind since a mark, in order.
    pub(super) fn since(&self, mark: usize, kind: &str) -> Vec<Change> {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes[mark.min(changes.len())..].iter().filter(|change| change.kind == kind).cloned().collect()
    }
}

fn follow(
    kubectl: &Kubectl,
    kind: &'static str,
    path: &str,
    revision: &mut String,
    changes: &Mutex<Vec<Change>>,
) -> Result<()> {
    let path = format!("{path}?watch=true&resourceVersion={revision}");
    let mut command = kubectl.command(&["get", "--raw", &path]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let result = lines.map_while(Result::ok).try_for_each(|line| {
        let mut event: Value = serde_json::from_str(&line)?;
        let what = event["type"].as_str().unwrap_or_default().to_owned();
        if what == "ERROR" {
            // Too old: what happened in between is lost, what is there comes as additions.
            "0".clone_into(revision);
            return Ok(());
        }
        let object = event["object"].take();
        object["metadata"]["resourceVersion"].as_str().unwrap_or_default().clone_into(revision);
        let number = revision.parse().context("a change without a revision")?;
        let change = Change { kind, what, revision: number, seen: SystemTime::now(), object };
        changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        Ok(())
    });
    // It may have ended by itself.
    let _ = child.kill();
    child.wait()?;
    result
}

/// The status of a condition.
pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == name)?["status"].as_str()
}
