//! Every file of the repository: length, name, and no trace of the machine it was written on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// Lines of one Rust file.
const LINES: usize = 500;
/// Where what is there stays small enough to be read in one go, and of how many lines all of it is at most.
const SMALL: (&str, usize) = ("crates/oracle/src", 1500);
/// Names that say nothing about what is inside.
const VAGUE: &[&str] = &["mod.rs", "utils.rs", "util.rs", "helpers.rs", "misc.rs"];

pub(super) fn check() -> Result<Vec<String>> {
    let root = workspace::root();
    check_files(&root, &workspace::files(&root)?)
}

fn check_files(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let (mut found, mut small) = (Vec::new(), 0);
    for file in files {
        let bytes =
            std::fs::read(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        // What is not text has neither lines nor paths to read.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        found.extend(check_text(file, &text));
        small += if file.starts_with(SMALL.0) { text.lines().count() } else { 0 };
    }
    if small > SMALL.1 {
        found.push(format!("{} has {small} lines, more than {}; say it more plainly", SMALL.0, SMALL.1));
    }
    Ok(found)
}

fn check_text(file: &Path, text: &str) -> Vec<String> {
    let shown = file.display();
    let mut found = Vec::new();
    let fixture = file.iter().any(|part| part == "fixtures" || part == "generated");
    if file.extension().is_some_and(|e| e == "rs") && !fixture {
        let lines = text.lines().count();
        if lines > LINES {
            found
                .push(format!("{shown} has {lines} lines, more than {LINES}; split it where a reader would"));
        }
        if file.file_name().and_then(|name| name.to_str()).is_some_and(|name| VAGUE.contains(&name)) {
            found.push(format!("{shown} has a name that says nothing; name it for what is inside"));
        }
    }
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(path) = foreign_path(line) {
            found.push(format!("{shown}:{number} mentions {path:?}, which exists on one machine only"));
        }
    }
    found
}

/// A path outside the repository in `line`. The pieces are joined here so that this file does not mention them.
fn foreign_path(line: &str) -> Option<String> {
    let anywhere = [["..", "/shared"].concat()];
    let from_root = ["work", "root", "Users"].map(|dir| format!("/{dir}/"));
    let starts = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}*".contains(c))
    };
    anywhere.into_iter().find(|path| line.contains(path.as_str())).or_else(|| {
        from_root.into_iter().find(|path| line.match_indices(path.as_str()).any(|(at, _)| starts(at)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        check_text(Path::new(file), text)
    }

    #[test]
    fn long_files_are_found_and_fixtures_are_not() {
        let long = "x\n".repeat(LINES + 1);
        assert!(found("crates/a/src/b.rs", &long)[0].contains("501 lines"));
        for fine in ["crates/a/fixtures/b.rs", "crates/a/src/generated/b.rs", "docs/long.md"] {
            assert_eq!(found(fine, &long), Vec::<String>::new());
        }
        assert_eq!(found("b.rs", &"x\n".repeat(LINES)), Vec::<String>::new());
    }

    #[test]
    fn what_is_to_stay_small_is_counted_together() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a.rs", "b.rs", "c.rs", "d.rs"].map(|name| Path::new(SMALL.0).join(name));
        std::fs::create_dir_all(dir.path().join(SMALL.0)).unwrap();
        for (lines, complaints) in [(SMALL.1 / 4, 0), (SMALL.1 / 4 + 1, 1)] {
            for file in &files {
                std::fs::write(dir.path().join(file), "x\n".repeat(lines)).unwrap();
            }
            assert_eq!(check_files(dir.path(), &files).unwrap().len(), complaints, "{lines} lines each");
        }
    }

    #[test]
    fn vague_names_are_found() {
        for name in VAGUE {
            assert_eq!(found(&format!("crates/a/src/{name}"), "").len(), 1, "{name}");
        }
        assert_eq!(found("crates/a/src/model.rs", ""), Vec::<String>::new());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for path in
            [["see `..", "/shared/spec`"], ["cd /", "work/main"], ["\"/", "root/.cache\""], ["/", "Users/me"]]
        {
            let text = format!("fine\n{}\n", path.concat());
            let lines = found("README.md", &text);
            assert!(lines.len() == 1 && lines[0].contains("README.md:2"), "{text}: {lines:?}");
        }
        for fine in ["https://example.org/work/list", "home/root/x", "${X}/work/", "./root/", "/var/lib"] {
            assert_eq!(found("README.md", fine), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn binary_files_are_passed_over_and_missing_ones_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.bin"), [0xff, 0xfe]).unwrap();
        assert_eq!(check_files(dir.path(), &["a.bin".into()]).unwrap(), Vec::<String>::new());
        assert!(check_files(dir.path(), &["gone".into()]).is_err());
    }
}
