//! What a step of the suite has at hand.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::fleet::Fleet;
use super::kubebox::Kubebox;
use super::kubectl::Kubectl;
use super::plane::Plane;
use super::process::Reaper;
use super::watch::Recorder;

/// What is up, and where.
#[derive(Debug)]
pub(super) struct World {
    /// Everything of this run.
    pub(super) folder: PathBuf,
    /// `bigfleet`.
    pub(super) executable: PathBuf,
    /// A shard that says what a step wants it to say.
    pub(super) scripted_shard: PathBuf,
    pub(super) kubebox: Kubebox,
    pub(super) reaper: Reaper,
    pub(super) plane: Plane,
    pub(super) kubectl: Kubectl,
    /// From the step on that prepares it.
    pub(super) fleet: Option<Fleet>,
    /// From the step on that makes the custom resources.
    pub(super) recorder: Option<Recorder>,
    /// How long our programs stay away in the step on static stability.
    pub(super) silence: Duration,
    /// When the present step gives up.
    pub(super) deadline: Instant,
}

impl World {
    /// Our programs.
    pub(super) fn fleet(&mut self) -> Result<&mut Fleet> {
        self.fleet.as_mut().ok_or_else(|| anyhow::anyhow!("this step needs the steps before it"))
    }

    /// What was recorded.
    pub(super) fn recorder(&self) -> Result<&Recorder> {
        self.recorder.as_ref().ok_or_else(|| anyhow::anyhow!("this step needs the steps before it"))
    }

    /// Fails when a program has ended that nobody stopped.
    pub(super) fn check(&mut self) -> Result<()> {
        self.plane.check()?;
        self.fleet.as_mut().map_or(Ok(()), Fleet::check)
    }

    /// Looks until there is nothing left to wait for. `look` gives `Err` with what is missing; only the last is told.
    pub(super) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let error = match look(self) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            self.check()?;
            if Instant::now() > self.deadline {
                bail!("expected {what}, waited {:.0} s in vain: {error:#}", start.elapsed().as_secs_f64());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Lets `time` pass while everything that should run runs.
    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// The pods of a namespace.
    pub(super) fn pods(&self, namespace: &str) -> Result<Vec<Value>> {
        self.kubectl.list(&["pods", "-n", namespace])
    }

    /// Waits until a namespace has exactly so many pods and all run.
    pub(super) fn until_running(&mut self, namespace: &str, count: usize) -> Result<Vec<Value>> {
        self.until(&format!("{count} pods of {namespace} to run"), |world| {
            let pods = world.pods(namespace)?;
            let waiting: Vec<&str> =
                pods.iter().filter(|pod| pod["status"]["phase"] != "Running").map(name).collect();
            if pods.len() != count || !waiting.is_empty() {
                bail!("{} pods, of which these do not run: {waiting:?}", pods.len());
            }
            Ok(pods)
        })
    }
}

/// An object's name.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Fails with `what` unless it holds.
pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { bail!("{}", what()) }
}
