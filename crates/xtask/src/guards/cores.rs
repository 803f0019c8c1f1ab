//! The pure cores inside crates that otherwise talk: their text must not name what they must not reach.
//!
//! Clippy's lists hold for whole crates; a core is a part of one. Comments and the tests at the end of a file do not
//! count.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// Where the cores live: a module's file and everything in its folder.
const CORES: &[&str] = &[
    "crates/shard/src/control",
    "crates/shard/src/step",
    "crates/operator/src/core",
    "crates/operator/src/aggregate",
];

/// What decides nothing by itself but makes a decision depend on more than its inputs.
const FORBIDDEN: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "SystemClock",
    "std::fs",
    "std::env",
    "std::thread",
    "std::net",
    "std::process",
    "tokio",
    "rand::",
    "getrandom",
];

pub(super) fn check() -> Result<Vec<String>> {
    let root = workspace::root();
    check_files(&root, CORES, &workspace::files(&root)?)
}

fn check_files(root: &Path, cores: &[&str], files: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for core in cores {
        let inside: Vec<_> = files.iter().filter(|file| belongs(file, core)).collect();
        if inside.is_empty() {
            found.push(format!("{core} holds no file: was the core moved?"));
        }
        for file in inside {
            let text = std::fs::read_to_string(root.join(file))
                .with_context(|| format!("cannot read {}", file.display()))?;
            found.extend(impure(&text).map(|(line, name)| {
                format!(
                    "{}:{line} names {name}; a core takes time, input and chance from its caller",
                    file.display()
                )
            }));
        }
    }
    Ok(found)
}

/// Whether `file` is the module `core` or inside it.
fn belongs(file: &Path, core: &str) -> bool {
    let rust = file.extension().is_some_and(|extension| extension == "rs");
    rust && (file.starts_with(core) || file.with_extension("") == Path::new(core))
}

/// Line and name of each forbidden thing.
fn impure(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    (1..).zip(code).flat_map(|(number, line)| {
        let line = line.split("//").next().unwrap_or_default();
        FORBIDDEN.iter().filter(move |name| line.contains(**name)).map(move |name| (number, *name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impure_core_is_found_line_by_line() {
        let root = workspace::root();
        let core = "crates/xtask/fixtures/impure_core/src/core";
        let found = check_files(&root, &[core], &workspace::files(&root).unwrap()).unwrap();
        let mut wanted = Vec::new();
        for file in ["core.rs", "core/inside.rs"] {
            let file = format!("crates/xtask/fixtures/impure_core/src/{file}");
            let text = std::fs::read_to_string(root.join(&file)).unwrap();
            let marked = (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("// refused"));
            wanted.extend(marked.map(|(n, _): (usize, _)| format!("{file}:{n} ")));
        }
        assert!(wanted.len() + 1 >= FORBIDDEN.len(), "{wanted:?}");
        let missed: Vec<_> = wanted.iter().filter(|w| !found.iter().any(|f| f.starts_with(*w))).collect();
        let extra: Vec<_> = found.iter().filter(|f| !wanted.iter().any(|w| f.starts_with(w))).collect();
        assert!(missed.is_empty() && extra.is_empty(), "missed {missed:?}, extra {extra:?}");
        for name in FORBIDDEN {
            assert!(
                found.iter().any(|line| line.contains(&format!("names {name};"))),
                "{name} was never tried"
            );
        }
    }

    #[test]
    fn comments_and_tests_do_not_count_and_a_core_that_moved_is_found() {
        let text = "// std::fs\nfn f() {} // tokio\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(impure(text).count(), 0);
        let files = ["crates/a/src/cores.rs".into(), "crates/a/src/core.md".into()];
        let found = check_files(Path::new("."), &["crates/a/src/core"], &files).unwrap();
        assert_eq!(found, ["crates/a/src/core holds no file: was the core moved?"]);
    }
}
