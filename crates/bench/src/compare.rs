//! Numbers that others recorded, and targets, beside what was measured; and where it was measured.

use std::fs;
use std::process::Command;

use bigfleet_engine::Phase;
use serde::Serialize;

/// What of a measurement is set beside a recorded number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// All of it: the first decision, or every part.
    Cold,
    /// The mean of later decisions.
    Warm,
    /// The slowest of a hundred later decisions.
    WarmP99,
    /// Taking all events, and what of the indexes is left to the first decision.
    Indexes,
    /// A phase of the first decision.
    Phase(Phase),
    /// One part by name.
    Part(&'static str),
}

/// A number that was recorded for a workload, and what ours should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// What it is about.
    pub timed: Timed,
    /// The number with its conditions, for people; `none` if there is none.
    pub number: &'static str,
    /// The number, in milliseconds; `None` if it cannot be compared.
    pub ms: Option<f64>,
    /// What ours should be at most, in milliseconds.
    pub target_ms: Option<f64>,
}

impl Recorded {
    /// A number to compare with.
    pub(crate) const fn ms(timed: Timed, ms: f64, number: &'static str) -> Self {
        Self { timed, number, ms: Some(ms), target_ms: None }
    }

    /// Nothing to compare with, and why.
    pub(crate) const fn none(timed: Timed, number: &'static str) -> Self {
        Self { timed, number, ms: None, target_ms: None }
    }

    /// What ours should be at most.
    pub(crate) const fn target(mut self, ms: f64) -> Self {
        self.target_ms = Some(ms);
        self
    }

    /// Sets what was measured beside it.
    pub(crate) fn beside(self, timed: String, timed_ms: f64) -> Comparison {
        let ratio = self.ms.filter(|_| timed_ms > 0.0).map(|ms| ms / timed_ms);
        let (recorded, recorded_ms, target_ms) = (self.number, self.ms, self.target_ms);
        Comparison { timed, timed_ms, recorded, recorded_ms, ratio, target_ms }
    }
}

/// Ours beside theirs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub timed: String,
    /// Ours, in milliseconds.
    pub timed_ms: f64,
    /// Theirs, with its conditions.
    pub recorded: &'static str,
    /// Theirs, in milliseconds, if it can be compared.
    pub recorded_ms: Option<f64>,
    /// How many times faster ours is.
    pub ratio: Option<f64>,
    /// What ours should be at most, in milliseconds.
    pub target_ms: Option<f64>,
}

impl Comparison {
    /// The lines of a table, names and values.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let mut theirs = self.recorded.to_owned();
        if let Some(ratio) = self.ratio {
            theirs = format!("{theirs}; ours is {}", in_words(ratio));
        }
        let mut lines = vec![
            (self.timed.clone(), format!("{:.3} ms", self.timed_ms)),
            ("recorded before".to_owned(), theirs),
        ];
        if let Some(target) = self.target_ms {
            lines.push(("target".to_owned(), format!("{target} ms")));
        }
        lines
    }
}

/// How fast something is, given how many times faster it is.
pub(crate) fn in_words(ratio: f64) -> String {
    if ratio >= 1.0 {
        format!("{} times as fast", digits(ratio))
    } else {
        format!("{} times as slow", digits(1.0 / ratio))
    }
}

/// About three digits of a number that is not negative.
pub(crate) fn digits(number: f64) -> String {
    match number {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// Where, of what, and beside what else was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// The processor's name.
    pub cpu: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit of the working directory, with `-dirty` when files differ from it.
    pub commit: String,
    /// The load average of the minute before: how busy the machine was with other things.
    pub load: Option<f64>,
}

impl Place {
    /// This machine, now.
    pub(crate) fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let kernel = text("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: if kernel.is_empty() { "unknown".to_owned() } else { kernel },
            commit: commit(),
            load: text("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok()),
        }
    }
}

/// The processor's name, as the system tells it.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// The commit of the working directory.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}
