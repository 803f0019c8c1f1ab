//! `cargo xtask mutants`: does a test notice when a phase of the engine is changed? (cargo-mutants)

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

/// How to get the tool.
const INSTALL: &str = "cargo install --locked cargo-mutants";

/// The files that are changed: folding, cost and the three phases.
const FILES: [&str; 5] = [
    "crates/engine/src/phase*.rs",
    "crates/engine/src/phase1/*.rs",
    "crates/engine/src/phase2/*.rs",
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
/// Fails when cargo-mutants is missing or a change went unnoticed. `.cargo/mutants.toml` leaves out the changes that make
/// no difference, with reasons.
pub(crate) fn run(sample: usize, seed: u64) -> Result<()> {
    let list = mutants().arg("--list").output().context("cannot start cargo")?;
    if !list.status.success() {
        let said = String::from_utf8_lossy(&list.stderr);
        bail!("cargo-mutants cannot list the mutants; install it with `{INSTALL}`: {}", said.trim());
    }
    let text = String::from_utf8_lossy(&list.stdout);
    let all: Vec<&str> = text.lines().collect();
    let chosen = choose(&all, sample, seed);
    println!("{} of {} mutants, seed {seed}", chosen.len(), all.len());
    let pattern: Vec<String> = chosen.into_iter().map(escape).collect();
    let mut test = mutants();
    test.args(["--re", &format!("^({})$", pattern.join("|")), "--test-package", "bigfleet-engine"]);
    test.args(["--minimum-test-timeout", "120", "--copy-target=false"]);
    // Most mutants fall to the examples, and more random worlds only take longer.
    test.env("PROPTEST_CASES", "64").env("CARGO_INCREMENTAL", "1");
    // The changed copy builds in a folder of its own: what is ours stays as it is.
    test.env_remove("CARGO_TARGET_DIR");
    workspace::run(&mut test)
}

/// `sample` of the names: those whose hashes with `seed` are lowest.
fn choose<'a>(all: &[&'a str], sample: usize, seed: u64) -> Vec<&'a str> {
    let mut keyed: Vec<(u64, &str)> = all.iter().map(|name| (hash(seed, name), *name)).collect();
    keyed.sort_unstable();
    keyed.into_iter().take(sample).map(|(_, name)| name).collect()
}

/// FNV-1a, begun with the seed. Line numbers are part of a name, so an edit draws anew below it.
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The text as a pattern that matches it alone.
fn escape(text: &str) -> String {
    let special = |c: char| !c.is_alphanumeric() && !c.is_whitespace() && !"/_:<>-&=!".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_follows_from_its_seed() {
        let names: Vec<String> = (0..300).map(|n| format!("file.rs:{n}:1: replace + with -")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (first, again, other) = (choose(&names, 200, 1), choose(&names, 200, 1), choose(&names, 200, 2));
        assert_eq!((first.len(), &first), (200, &again));
        assert_ne!(first, other);
        assert_eq!(choose(&names, 1000, 1).len(), 300);
    }

    #[test]
    fn a_name_is_taken_literally() {
        assert_eq!(
            escape("a.rs:1:2: replace f(x) -> Vec<u8> with (a|b)"),
            r"a\.rs:1:2: replace f\(x\) -> Vec<u8> with \(a\|b\)"
        );
    }
}
