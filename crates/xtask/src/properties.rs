//! `cargo xtask properties`: the property tests of the invariants, on many more cases than the test command takes.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// What the tests of invariants are called.
pub(crate) const TESTS: [&str; 6] =
    ["invariants::", "incremental::", "properties::", "against_oracle::", "core_properties::", "i22_"];

/// The crates that have such tests, the quick ones first. To link the tests of all others takes longer than to run these.
const CRATES: [&str; 5] =
    ["bigfleet-types", "bigfleet-engine", "bigfleet-oracle", "bigfleet-operator", "bigfleet-shard"];

/// Runs every property so many times; of the named crates only, if any are named.
pub(crate) fn run(cases: u32, only: &[String]) -> Result<()> {
    let all: Vec<String> = CRATES.iter().map(ToString::to_string).collect();
    for name in if only.is_empty() { &all } else { only } {
        let mut test = cargo(["test", "--package", name, "--locked", "--release", "--test", "it", "--"]);
        test.args(TESTS).env("PROPTEST_CASES", cases.to_string());
        // Some worlds are drawn until they have what their property is about. How often, goes with the cases.
        test.env("PROPTEST_MAX_LOCAL_REJECTS", cases.saturating_mul(16).max(65_536).to_string());
        workspace::run(&mut test)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list names every crate with a test of one of these names, and no other.
    #[test]
    fn no_crate_is_forgotten() {
        let mut found: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(workspace::root().join("crates")).unwrap() {
            let entry = entry.unwrap();
            let Ok(files) = std::fs::read_dir(entry.path().join("tests/it")) else { continue };
            let has = |file: std::fs::DirEntry| {
                let module = format!("{}::", file.file_name().to_string_lossy().trim_end_matches(".rs"));
                let text = std::fs::read_to_string(file.path()).unwrap_or_default();
                let named = |test: &str| module.ends_with(test) || text.contains(&format!("fn {test}"));
                (text.contains("proptest!") || text.contains("PROPTEST_CASES"))
                    && TESTS.iter().any(|test| named(test))
            };
            if files.map(Result::unwrap).any(has) {
                found.push(format!("bigfleet-{}", entry.file_name().to_string_lossy()));
            }
        }
        found.sort();
        let mut listed = CRATES.to_vec();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }
}
