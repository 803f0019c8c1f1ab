//! A provider as its callers meet it: the program `bigfleet provider fakecloud` with a durable store, over real gRPC on
//! loopback. The callers run in this process and share the processors with the server, whose own time is read from the
//! system.

mod calls;
mod lists;
mod server;
mod start;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::compare::Place;

/// How large a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For numbers that are published.
    Full,
    /// For tests of the benchmark.
    Least,
}

/// What a run needs beside its workload.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The executable `bigfleet`.
    pub program: PathBuf,
    /// A folder on the disk that is to be measured.
    pub folder: PathBuf,
    /// How large.
    pub size: Size,
}

impl Setting {
    /// `full`, or a hundredth of it in tests of the benchmark.
    fn sized(&self, full: u64) -> u64 {
        match self.size {
            Size::Full => full,
            Size::Least => (full / 100).max(1),
        }
    }
}

/// One workload by name.
struct Spec {
    name: &'static str,
    what: &'static str,
    run: fn(&Setting) -> Result<Numbers>,
}

/// All of them, in the order in which they run.
const SPECS: [Spec; 7] = [
    Spec {
        name: "provider-mutations",
        what: "64 callers take machines through Create, Configure, Drain and Delete; each answered call is on the disk, and the \
               end of its work is written too",
        run: calls::mutations,
    },
    Spec {
        name: "provider-create",
        what: "64 callers create machines, one call after the other each; the disk is waited for before the answer",
        run: calls::creates,
    },
    Spec {
        name: "provider-get",
        what: "64 callers get machines, one call after the other each",
        run: calls::gets,
    },
    Spec { name: "provider-list-10k", what: lists::WHAT, run: |setting| lists::whole(setting, 10_000) },
    Spec { name: "provider-list-100k", what: lists::WHAT, run: |setting| lists::whole(setting, 100_000) },
    Spec { name: "provider-list-500k", what: lists::WHAT, run: |setting| lists::whole(setting, 500_000) },
    Spec {
        name: "provider-start-500k",
        what: "from the start of the program to its line `ready`, with all machines in its store",
        run: |setting| start::run(setting, 500_000),
    },
];

/// Their names, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    SPECS.iter().map(|spec| spec.name)
}

/// What was measured. Only what a workload is about is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Machines that the provider has.
    pub machines: u64,
    /// Callers at one time.
    pub callers: u64,
    /// Calls, all of them answered well.
    pub calls: u64,
    /// How long all of them took together, in seconds.
    pub seconds: f64,
    /// Calls a second.
    pub per_second: f64,
    /// Time of the server's processors for one call, in microseconds.
    pub cpu_us_per_call: f64,
    /// A call as its caller sees it: the median, in milliseconds.
    pub p50_ms: f64,
    /// Exceeded by one in a hundred.
    pub p99_ms: f64,
    /// What one small write with its wait takes on this disk with nothing else to do: the median, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_ms: Option<f64>,
    /// Bytes of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// From the request to the first byte of the answer, median, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// Bytes of the store's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// What the time should be at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ms: Option<f64>,
    /// Memory of the server when it had most.
    pub peak_rss_bytes: u64,
}

/// The numbers of one workload and where they were taken.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which.
    pub workload: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// What was measured.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

impl Report {
    /// The lines of a table, names and values.
    ///
    /// # Errors
    /// Never in practice: the numbers are a flat record.
    pub fn lines(&self) -> Result<Vec<(String, String)>> {
        let numbers = serde_json::to_value(&self.numbers).context("cannot print the report")?;
        let mut lines = vec![("measured".to_owned(), self.what.to_owned())];
        let numbers = numbers.as_object().into_iter().flatten();
        lines.extend(numbers.map(|(name, value)| (name.clone(), value.to_string())));
        lines.push((
            "beside".to_owned(),
            "the callers, on the same processors; encoding and decoding are included".into(),
        ));
        Ok(lines)
    }
}

/// Measures one workload by name.
///
/// # Errors
/// There is no such workload, the program cannot be started, or it answered a call otherwise than it should.
pub fn measured(name: &str, setting: &Setting) -> Result<Report> {
    let Some(spec) = SPECS.iter().find(|spec| spec.name == name) else {
        let known: Vec<_> = names().collect();
        bail!("there is no workload {name:?}; known are {}", known.join(", "));
    };
    let place = Place::here();
    let numbers = (spec.run)(setting).with_context(|| format!("{name} failed"))?;
    Ok(Report { workload: spec.name, what: spec.what, numbers, place })
}

/// The executable beside this one, where `cargo xtask bench provider` builds both.
///
/// # Errors
/// It is not there.
pub fn program_beside() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let program = this.parent().unwrap_or(Path::new(".")).join("bigfleet");
    anyhow::ensure!(
        program.is_file(),
        "{} is missing; build it with the same profile first",
        program.display()
    );
    Ok(program)
}
