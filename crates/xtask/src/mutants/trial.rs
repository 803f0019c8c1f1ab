//! The tests, run on one change until one of them fails.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::properties;

/// How much longer than unchanged code changed code may take, and what it may take in any case.
const PATIENCE: (u32, Duration) = (5, Duration::from_secs(20));

/// What the tests say to a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Survived,
    /// By the test of this name, or what else went wrong.
    Killed(String),
    TimedOut,
}

struct Step {
    program: PathBuf,
    arguments: Vec<&'static str>,
    limit: Duration,
}

/// The tests in the order in which they are run: those that take least in front.
pub(super) struct Trials {
    steps: Vec<Step>,
    folder: PathBuf,
}

impl Trials {
    /// Tries the code without a change.
    ///
    /// Fails when a test does.
    pub(super) fn of((tests, folder): (Vec<(String, PathBuf)>, PathBuf)) -> Result<Self> {
        let step = |program: &PathBuf, arguments: Vec<&'static str>| Step {
            program: program.clone(),
            arguments,
            limit: Duration::from_secs(600),
        };
        let mut steps = Vec::new();
        for (name, program) in &tests {
            if name == "it" {
                let skipped = properties::TESTS.iter().flat_map(|test| ["--skip", *test]).collect();
                steps.extend([step(program, skipped), step(program, properties::TESTS.to_vec())]);
            } else {
                steps.insert(0, step(program, Vec::new()));
            }
        }
        let mut trials = Self { steps, folder };
        for at in 0..trials.steps.len() {
            let start = Instant::now();
            let outcome = trials.step(0, &trials.steps[at])?;
            if outcome != Outcome::Survived {
                bail!("without any change the tests end so: {outcome:?}");
            }
            trials.steps[at].limit = PATIENCE.1 + start.elapsed() * PATIENCE.0;
        }
        Ok(trials)
    }

    /// Runs the tests with the change of that number.
    pub(super) fn run(&self, number: usize) -> Result<Outcome> {
        for step in &self.steps {
            let outcome = self.step(number, step)?;
            if outcome != Outcome::Survived {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived)
    }

    fn step(&self, number: usize, step: &Step) -> Result<Outcome> {
        // A change may ask for more memory than there is.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 8388608; exec \"$0\" \"$@\""]).arg(&step.program);
        command.arg("--test-threads=1").args(&step.arguments).current_dir(&self.folder);
        command.env("MUTANT", number.to_string()).env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start a test")?;
        let output = BufReader::new(child.stdout.take().context("a test prints nothing")?);
        let (send, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let end = Instant::now() + step.limit;
        let mut last = String::new();
        let early = loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(test) =
                        line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
                    {
                        break Some(Outcome::Killed(test.to_owned()));
                    }
                    last = line;
                }
                Err(RecvTimeoutError::Timeout) => break Some(Outcome::TimedOut),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        if early.is_some() {
            child.kill().context("cannot end a test")?;
        }
        let status = child.wait().context("a test got lost")?;
        Ok(match early {
            Some(outcome) => outcome,
            None if status.success() => Outcome::Survived,
            None => Outcome::Killed(format!("{status} after `{last}`")),
        })
    }
}
