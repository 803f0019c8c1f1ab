//! `cargo xtask test`: the one command that says whether a change is good.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::{self, cargo};
use crate::{guards, licenses};

/// A step's name and what it does.
type Step = (&'static str, fn() -> Result<()>);

/// In order: what fails quickly comes first. All cargo calls take the whole workspace with the same features, so that
/// nothing is compiled twice.
const STEPS: &[Step] = &[
    ("format", || workspace::run(&mut cargo(["fmt", "--all", "--check"]))),
    ("clippy", || {
        workspace::run(&mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    }),
    ("test", || workspace::run(&mut cargo(["test", "--workspace", "--locked"]))),
    ("guards", guards::run),
];

/// Runs every step until one fails, then prints how long each took.
fn run_all(steps: &[Step], say: &mut dyn FnMut(String)) -> Result<()> {
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for (name, step) in steps {
        say(format!("== {name}"));
        let start = Instant::now();
        let result = step();
        times.push((name, start.elapsed()));
        if let Err(error) = result {
            say(summary(&times));
            return Err(error).with_context(|| format!("step `{name}` failed; later steps were not run"));
        }
    }
    say(summary(&times));
    Ok(())
}

fn steps_here() -> Vec<Step> {
    let mut steps = STEPS.to_vec();
    if licenses::available() {
        steps.push(("licenses", licenses::run));
    }
    steps
}

/// Runs the steps of this machine.
pub(crate) fn run() -> Result<()> {
    run_all(&steps_here(), &mut |line| println!("{line}"))?;
    if !licenses::available() {
        println!("not run: licenses, because cargo-deny is missing ({})", licenses::INSTALL);
    }
    println!("all steps passed");
    Ok(())
}

fn summary(times: &[(&str, Duration)]) -> String {
    let mut text = String::from("== minutes per step\n");
    for (name, time) in times {
        text.push_str(&format!("{:6.2}  {name}\n", time.as_secs_f64() / 60.0));
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    text.push_str(&format!("{:6.2}  total", total.as_secs_f64() / 60.0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn the_first_failure_ends_the_run_with_its_name() {
        let steps: &[Step] =
            &[("one", || Ok(())), ("two", || bail!("it broke")), ("three", || panic!("must not run"))];
        let mut said = Vec::new();
        let error = run_all(steps, &mut |line| said.push(line)).unwrap_err();
        let shown = format!("{error:#}");
        assert!(shown.contains("`two` failed") && shown.contains("it broke"), "{shown}");
        assert_eq!(said[..2], ["== one", "== two"]);
        assert!(
            said[2].contains("one\n") && said[2].contains("two\n") && !said[2].contains("three"),
            "{said:?}"
        );
    }

    #[test]
    fn every_step_is_timed() {
        let mut said = Vec::new();
        run_all(&[("one", || Ok(())), ("two", || Ok(()))], &mut |line| said.push(line)).unwrap();
        let summary = said.last().unwrap();
        for name in ["one", "two", "total"] {
            assert!(summary.lines().any(|line| line.ends_with(name)), "{summary}");
        }
    }
}
