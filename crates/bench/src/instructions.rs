//! Instruction counts: they do not depend on how busy the machine is, so a change that makes code slower shows at once.
//!
//! A bench runs twice under callgrind, once only its preparation and once everything; what counts is the difference.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use bigfleet_engine::Engine;

use crate::realistic::Realistic;
use crate::sizing::PROFILES;
use crate::timing::rollup;
use crate::workload::{START, Workload};

/// The benches.
pub const NAMES: [&str; 4] = ["apply-5k", "cold-5k", "warm-5k", "aggregate-25k"];

/// By how much a count may grow, in thousandths.
const TOLERANCE: u64 = 30;

/// Rounds of roll-ups in `warm-5k`.
const ROUNDS: u64 = 3;

/// Runs one bench, or only its preparation.
///
/// # Errors
/// There is no such bench, or the generator is wrong.
pub fn run(name: &str, only_prepare: bool) -> Result<()> {
    let fleet = Realistic::new(PROFILES[1]);
    if name == "aggregate-25k" {
        let requests = rollup::requests();
        if !only_prepare {
            black_box(rollup::aggregate(&requests));
        }
        return Ok(());
    }
    let mut events = Vec::new();
    fleet.fill(&mut |event| events.push(event))?;
    let mut engine = Engine::new(fleet.policy());
    if name == "apply-5k" && only_prepare {
        black_box(events);
        return Ok(());
    }
    events.into_iter().for_each(|event| engine.apply(event));
    match name {
        "apply-5k" => {}
        "cold-5k" => {
            if !only_prepare {
                black_box(engine.decide(START));
            }
        }
        "warm-5k" => {
            black_box(engine.decide(START));
            for round in 1..=ROUNDS {
                let mut events = Vec::new();
                fleet.churn(round, &mut |event| events.push(event));
                if !only_prepare {
                    events.into_iter().for_each(|event| engine.apply(event));
                    black_box(engine.decide(START));
                }
            }
        }
        _ => bail!("there is no bench {name:?}; known are {}", NAMES.join(", ")),
    }
    black_box(&engine);
    Ok(())
}

/// Counts all benches and compares them with `file`; with `update`, writes them there instead. Gives what to print.
///
/// # Errors
/// valgrind is missing, a bench has no committed number, or a number grew by more than 3 %.
pub fn check(file: &Path, update: bool) -> Result<String> {
    let mut counts = Vec::new();
    for name in NAMES {
        let (all, prepared) = (count(name, false)?, count(name, true)?);
        counts.push((name.to_owned(), all.saturating_sub(prepared)));
    }
    if update {
        let mut text = String::from(
            "# Instructions of small benches under callgrind. `cargo xtask bench instructions --update` writes this file.\n",
        );
        for (name, count) in &counts {
            let _ = writeln!(text, "{name} {count}");
        }
        fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
        return Ok(text);
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    compare(&parse(&text)?, &counts)
}

/// The committed numbers.
///
/// # Errors
/// A line that is neither a comment nor a name and a number.
pub fn parse(text: &str) -> Result<Vec<(String, u64)>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.split_once(' ').with_context(|| format!("no number in {line:?}"))?;
            let count = count.trim().parse().with_context(|| format!("no number in {line:?}"))?;
            Ok((name.to_owned(), count))
        })
        .collect()
}

/// Compares numbers with the committed ones.
///
/// # Errors
/// Names what grew by more than 3 % and what has no committed number.
pub fn compare(committed: &[(String, u64)], counted: &[(String, u64)]) -> Result<String> {
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (name, count) in counted {
        let Some((_, before)) = committed.iter().find(|(known, _)| known == name) else {
            wrong.push(format!("{name} has no committed number"));
            continue;
        };
        let grown = count.saturating_sub(*before);
        let tenths = u128::from(count.abs_diff(*before)) * 1000 / u128::from((*before).max(1));
        let sign = if count >= before { '+' } else { '-' };
        let change = format!("{sign}{}.{} %", tenths / 10, tenths % 10);
        let _ = writeln!(table, "{name:<16} {before:>14} -> {count:>14}  {change}");
        if u128::from(grown) * 1000 > u128::from(*before) * u128::from(TOLERANCE) {
            wrong.push(format!("{name} grew from {before} to {count} instructions ({change})"));
        }
    }
    if wrong.is_empty() {
        return Ok(table);
    }
    bail!(
        "{table}{}; make it as fast as it was, or accept it with `cargo xtask bench instructions --update` and say why in the commit",
        wrong.join("; ")
    )
}

/// Instructions of one run of this program.
fn count(name: &str, only_prepare: bool) -> Result<u64> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(this);
    command.args(["instructions-of", name]).args(only_prepare.then_some("--only-prepare"));
    let output = command.output().context(
        "cannot start valgrind, which counts the instructions; install it (apt-get install valgrind, dnf install valgrind)",
    )?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{name} failed under valgrind ({}): {text}", output.status);
    }
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let number = line.and_then(|(_, number)| number.trim().parse().ok());
    number.with_context(|| format!("valgrind does not say how many instructions {name} took: {text}"))
}
