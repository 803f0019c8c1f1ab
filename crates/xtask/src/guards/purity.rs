//! The clippy lists of the pure crates, tried on a crate that breaks every rule.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Lists that must hold the same text.
const LISTS: [&str; 2] = ["crates/types/clippy.toml", "crates/engine/clippy.toml"];
const IMPURE: &str = "crates/xtask/fixtures/impure";
const MARK: &str = "// refused";

pub(super) fn check() -> Result<Vec<String>> {
    let root = workspace::root();
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let (list, other, base) = (read(LISTS[0])?, read(LISTS[1])?, read("clippy.toml")?);
    let mut found = unlike(&list, &other, &base);
    found.extend(try_list(&list, &read(&format!("{IMPURE}/src/lib.rs"))?)?);
    Ok(found)
}

/// The lists differ, or lack a key of the file at the root, which they replace.
fn unlike(list: &str, other: &str, base: &str) -> Vec<String> {
    let mut found = Vec::new();
    if list != other {
        found.push(format!("{} and {} differ", LISTS[0], LISTS[1]));
    }
    let missing = base.lines().filter(|line| line.contains('=') && !list.lines().any(|own| own == *line));
    found.extend(missing.map(|line| format!("{} lacks `{line}` of clippy.toml", LISTS[0])));
    found
}

/// Runs clippy with `list` on a crate of `source`: the lines it refuses must be the marked ones.
fn try_list(list: &str, source: &str) -> Result<Vec<String>> {
    let dir = tempfile::tempdir().context("cannot make a folder for the impure crate")?;
    let crate_dir = dir.path().join("impure");
    std::fs::create_dir_all(crate_dir.join("src"))?;
    std::fs::copy(workspace::root().join(IMPURE).join("Cargo.toml"), crate_dir.join("Cargo.toml"))?;
    std::fs::write(crate_dir.join("src/lib.rs"), source)?;
    std::fs::write(crate_dir.join("clippy.toml"), list)?;
    let refused = clippy(&crate_dir, &dir.path().join("target"))?;
    let marked: BTreeSet<usize> =
        (1..).zip(source.lines()).filter(|(_, l)| l.ends_with(MARK)).map(|(n, _)| n).collect();
    ensure!(!marked.is_empty(), "the impure crate marks no line with `{MARK}`");
    let missed = marked
        .difference(&refused)
        .map(|n| format!("{IMPURE}/src/lib.rs:{n} is not refused by {}", LISTS[0]));
    let extra =
        refused.difference(&marked).map(|n| format!("{IMPURE}/src/lib.rs:{n} is refused by {}", LISTS[0]));
    Ok(missed.chain(extra).collect())
}

/// The lines of `src/lib.rs` that clippy refuses.
fn clippy(crate_dir: &Path, target: &Path) -> Result<BTreeSet<usize>> {
    let mut command = Command::new(workspace::cargo([""; 0]).get_program());
    command
        .args(["clippy", "--offline", "--quiet", "--message-format=short", "--", "-D", "warnings"])
        .current_dir(crate_dir)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("CLIPPY_CONF_DIR");
    let output = command.output().context("cannot start cargo clippy")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: BTreeSet<usize> = text
        .lines()
        .filter(|line| line.contains(": error: "))
        .filter_map(|line| line.strip_prefix("src/lib.rs:")?.split(':').next()?.parse().ok())
        .collect();
    ensure!(
        output.status.success() == lines.is_empty(),
        "clippy on the impure crate failed otherwise:\n{text}"
    );
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_forgot_a_rule_is_found() {
        let root = workspace::root();
        let list = std::fs::read_to_string(root.join(LISTS[0])).unwrap();
        let source = std::fs::read_to_string(root.join(IMPURE).join("src/lib.rs")).unwrap();
        let clock = list.lines().find(|line| line.contains("std::time::Instant::now")).unwrap();
        let found = try_list(&list.replace(clock, ""), &source).unwrap();
        let line = 1 + source.lines().position(|line| line.contains("Instant::now")).unwrap();
        assert_eq!(found, [format!("{IMPURE}/src/lib.rs:{line} is not refused by {}", LISTS[0])]);
    }

    #[test]
    fn an_empty_list_lets_everything_pass_and_is_found() {
        let source = std::fs::read_to_string(workspace::root().join(IMPURE).join("src/lib.rs")).unwrap();
        let marked = source.lines().filter(|line| line.ends_with(MARK)).count();
        assert_eq!(try_list("", &source).unwrap().len(), marked);
    }

    #[test]
    fn lists_that_differ_or_forget_the_root_are_found() {
        assert_eq!(unlike("a = 1\nb = 2", "a = 1\nb = 2", "a = 1"), Vec::<String>::new());
        assert_eq!(unlike("b = 2", "b = 3", "a = 1").len(), 2);
    }
}
