//! `cargo xtask mutants`: does a test notice when a phase of the engine is changed?
//!
//! cargo-mutants knows the changes. To build the engine anew for each takes hours, so one build has all of them, and the
//! environment says which is on. Only those outside of functions, which are few, have a build each.

mod known;
mod list;
mod trial;
mod weave;
mod workshop;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::known::Known;
use self::list::Mutant;
use self::trial::{Outcome, Trials};
use self::workshop::Workshop;
use crate::workspace::cargo;

/// How to get the tool.
const INSTALL: &str = "cargo install --locked cargo-mutants";

/// The files that are changed: folding, cost, the three phases and who rests in them.
const FILES: [&str; 7] = [
    "crates/engine/src/phase*.rs",
    "crates/engine/src/phase1/*.rs",
    "crates/engine/src/phase2/*.rs",
    "crates/engine/src/phase3/*.rs",
    "crates/engine/src/ledger/rest.rs",
    "crates/engine/src/fold.rs",
    "crates/engine/src/cost.rs",
];

fn mutants() -> Command {
    let mut command = cargo(["mutants", "--package", "bigfleet-engine"]);
    for file in FILES {
        command.args(["--file", file]);
    }
    command
}

/// Tries `sample` of the changes that cargo-mutants knows; which, follows from `seed`.
///
/// Fails when cargo-mutants is missing, when a change went unnoticed that `mutants/equivalent.txt` does not explain, and
/// when a test noticed one that it says makes no difference.
pub(crate) fn run(sample: usize, seed: u64) -> Result<()> {
    let list = mutants().args(["--list", "--json"]).output().context("cannot start cargo")?;
    if !list.status.success() {
        let said = String::from_utf8_lossy(&list.stderr);
        bail!("cargo-mutants cannot list the mutants; install it with `{INSTALL}`: {}", said.trim());
    }
    let all = list::read(&String::from_utf8_lossy(&list.stdout))?;
    let known = Known::read()?;
    for name in known.stale(&all) {
        println!("not in the list (any more), though equivalent.txt explains it: {name}");
    }
    let chosen = choose(&all, sample, seed);
    println!("{} of {} mutants, seed {seed}", chosen.len(), all.len());
    let (woven, alone): (Vec<&Mutant>, Vec<&Mutant>) =
        chosen.into_iter().partition(|mutant| mutant.function.is_some());
    let numbered: BTreeMap<usize, &Mutant> = woven.into_iter().enumerate().map(|(n, m)| (n + 1, m)).collect();
    let workshop = Workshop::open()?;
    let unviable = workshop.weave(&numbered)?;
    let trials = Trials::of(workshop.tests()?)?;
    let mut report = Report { unviable: unviable.len(), ..Report::default() };
    for (number, mutant) in numbered.iter().filter(|(number, _)| !unviable.contains(number)) {
        report.add(mutant, &trials.run(*number)?, &known);
    }
    // What is in no function cannot be switched on. Last, for each is built instead of all others in its file.
    for mutant in alone {
        if workshop.alter(mutant)? {
            report.add(mutant, &trials.run(0)?, &known);
        } else {
            report.unviable += 1;
        }
        workshop.restore(mutant)?;
    }
    report.finish()
}

#[derive(Default)]
struct Report {
    unviable: usize,
    killed: usize,
    timed_out: usize,
    explained: usize,
    survived: Vec<String>,
    misjudged: Vec<String>,
}

impl Report {
    fn add(&mut self, mutant: &Mutant, outcome: &Outcome, known: &Known) {
        let equivalent = known.explains(&mutant.name);
        match outcome {
            Outcome::Survived if equivalent => self.explained += 1,
            Outcome::Survived => {
                println!("SURVIVED {}", mutant.listed);
                self.survived.push(mutant.listed.clone());
            }
            Outcome::Killed(by) => {
                self.killed += 1;
                println!("killed   {} ({by})", mutant.listed);
                if equivalent {
                    self.misjudged.push(format!("{} ({by})", mutant.name));
                }
            }
            // One that is explained may cost time, and nothing else.
            Outcome::TimedOut if equivalent => self.explained += 1,
            Outcome::TimedOut => {
                self.timed_out += 1;
                println!("time out {}", mutant.listed);
            }
        }
    }

    fn finish(self) -> Result<()> {
        println!(
            "{} killed, {} timed out, {} do not compile, {} make no difference, {} survived",
            self.killed,
            self.timed_out,
            self.unviable,
            self.explained,
            self.survived.len()
        );
        if !self.misjudged.is_empty() {
            bail!("these are said to make no difference, and a test noticed: {}", self.misjudged.join("; "));
        }
        if !self.survived.is_empty() {
            bail!("no test noticed {} of the changes, listed above as SURVIVED", self.survived.len());
        }
        Ok(())
    }
}

/// `sample` of the mutants: those whose hashes with `seed` are lowest.
fn choose(all: &[Mutant], sample: usize, seed: u64) -> Vec<&Mutant> {
    let mut keyed: Vec<(u64, &Mutant)> =
        all.iter().map(|mutant| (hash(seed, &mutant.name), mutant)).collect();
    keyed.sort_unstable_by_key(|(hash, mutant)| (*hash, &mutant.name));
    keyed.into_iter().take(sample).map(|(_, mutant)| mutant).collect()
}

/// FNV-1a, begun with the seed. No line numbers are part of a name, so an edit elsewhere draws nothing anew.
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_follows_from_its_seed() {
        let of = |n: usize| Mutant { name: format!("file.rs: replace {n} with -"), ..Mutant::default() };
        let all: Vec<Mutant> = (0..300).map(of).collect();
        let names = |sample, seed| choose(&all, sample, seed).into_iter().map(|m| m.name.clone()).collect();
        let (first, again, other): (Vec<_>, Vec<_>, Vec<_>) = (names(200, 1), names(200, 1), names(200, 2));
        assert_eq!((first.len(), &first), (200, &again));
        assert_ne!(first, other);
        assert_eq!(choose(&all, 1000, 1).len(), 300);
    }
}
