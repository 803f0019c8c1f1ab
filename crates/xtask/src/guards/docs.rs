//! Commands that documents show: each must be in `docs/commands.txt`, which says what exercises it.
//!
//! A command is a line `$ ...` in a fenced block marked `console`; a backslash at its end continues it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

const MANIFEST: &str = "docs/commands.txt";

/// What exercises a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    /// `.ci/run` runs it.
    Ci,
    /// The named function in the named file covers it.
    Test { file: String, function: String },
    /// It is run here and must succeed within so many seconds.
    Run { seconds: u32 },
}

pub(super) fn check() -> Result<Vec<String>> {
    let root = workspace::root();
    let mut shown = BTreeMap::new();
    for file in workspace::files(&root)? {
        let at_root = file.components().count() == 1 || file.starts_with("docs");
        if at_root && file.extension().is_some_and(|e| e == "md") {
            let text = std::fs::read_to_string(root.join(&file))?;
            for (line, command) in commands(&text) {
                shown.entry(command).or_insert_with(|| format!("{}:{line}", file.display()));
            }
        }
    }
    let manifest =
        std::fs::read_to_string(root.join(MANIFEST)).with_context(|| format!("cannot read {MANIFEST}"))?;
    compare(&root, &shown, &parse(&manifest)?)
}

/// The commands of a document with their line numbers.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut inside, mut continues) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        if let Some(info) = fence {
            inside = !inside && info.trim() == "console";
            continues = false;
            continue;
        }
        if !inside {
            continue;
        }
        let (rest, ended) = match line.trim().strip_suffix('\\') {
            Some(rest) => (rest.trim(), false),
            None => (line.trim(), true),
        };
        match (rest.strip_prefix("$ "), continues, found.last_mut()) {
            (_, true, Some((_, command))) => {
                command.push(' ');
                command.push_str(rest);
            }
            (Some(command), ..) => found.push((number, command.trim().to_owned())),
            // Output.
            (None, ..) => continue,
        }
        continues = !ended;
    }
    found
}

/// The manifest by command.
fn parse(text: &str) -> Result<BTreeMap<String, How>> {
    let mut manifest = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (how, command) = line
            .split_once('|')
            .with_context(|| format!("{MANIFEST}:{number} has no `|` before the command"))?;
        let how = match how.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["ci"] => How::Ci,
            ["run", seconds] => How::Run {
                seconds: seconds
                    .parse()
                    .with_context(|| format!("{MANIFEST}:{number}: {seconds} is no number of seconds"))?,
            },
            ["test", at] => {
                let (file, function) = at
                    .split_once("::")
                    .with_context(|| format!("{MANIFEST}:{number}: {at} is no file::function"))?;
                How::Test { file: file.to_owned(), function: function.to_owned() }
            }
            _ => bail!("{MANIFEST}:{number} begins with none of ci, test and run"),
        };
        if manifest.insert(command.trim().to_owned(), how).is_some() {
            bail!("{MANIFEST}:{number} repeats `{}`", command.trim());
        }
    }
    Ok(manifest)
}

/// What documents show against what the manifest says, by command. `shown` tells where.
fn compare(
    root: &Path,
    shown: &BTreeMap<String, String>,
    manifest: &BTreeMap<String, How>,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (command, place) in shown {
        match manifest.get(command) {
            None => found.push(format!("{place} shows `{command}`, which {MANIFEST} does not list")),
            Some(how) => found.extend(exercise(root, command, how)?.map(|fault| format!("{place}: {fault}"))),
        }
    }
    let stale = manifest.keys().filter(|command| !shown.contains_key(*command));
    found.extend(stale.map(|command| format!("{MANIFEST} lists `{command}`, which no document shows")));
    Ok(found)
}

/// What is wrong with a command's exercise, if anything.
fn exercise(root: &Path, command: &str, how: &How) -> Result<Option<String>> {
    let fault = match how {
        How::Ci => {
            let ci = std::fs::read_to_string(root.join(".ci/run")).context("cannot read .ci/run")?;
            let runs = ci.lines().any(|line| line.trim() == command);
            (!runs).then(|| format!(".ci/run has no line `{command}`"))
        }
        How::Test { file, function } => {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            let covered = text.contains(&format!("fn {function}("));
            (!covered)
                .then(|| format!("`{command}` should be covered by {file}::{function}, which is not there"))
        }
        How::Run { seconds } => {
            let mut timed = Command::new("timeout");
            timed.args(["--kill-after=5", &seconds.to_string(), "bash", "-c", command]).current_dir(root);
            let output =
                timed.stdin(std::process::Stdio::null()).output().context("cannot start `timeout bash`")?;
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => None,
                Some(124 | 137) => {
                    Some(format!("`{command}` did not end within {seconds} s: {}", said.trim()))
                }
                _ => Some(format!("`{command}` failed ({}): {}", output.status, said.trim())),
            }
        }
    };
    Ok(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> BTreeMap<String, String> {
        commands(text).into_iter().map(|(line, command)| (command, format!("a.md:{line}"))).collect()
    }

    fn found(document: &str, manifest: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".ci")).unwrap();
        std::fs::write(dir.path().join(".ci/run"), "cargo xtask test\n").unwrap();
        std::fs::write(dir.path().join("a.rs"), "fn covered() {}").unwrap();
        compare(dir.path(), &shown(document), &parse(manifest).unwrap()).unwrap()
    }

    #[test]
    fn commands_are_read_from_console_blocks_only() {
        let text = "$ no\n```sh\n$ no\n```\n```console\n$ one\noutput $ no\n$ two \\\n    three\n```\n  ```console\n  $ four\n  ```\n";
        let expected = [(6, "one".to_owned()), (8, "two three".to_owned()), (12, "four".to_owned())];
        assert_eq!(commands(text), expected);
    }

    #[test]
    fn an_unlisted_command_and_a_stale_line_are_found() {
        let found = found("```console\n$ true --new\n```", "run 5 | true");
        assert!(found[0].contains("a.md:2 shows `true --new`"), "{found:?}");
        assert!(found[1].contains("`true`, which no document shows"), "{found:?}");
    }

    #[test]
    fn commands_are_run_and_held_to_their_limit() {
        assert_eq!(found("```console\n$ test 1 = 1\n```", "run 5 | test 1 = 1"), Vec::<String>::new());
        assert!(
            found("```console\n$ echo oh >&2; false\n```", "run 5 | echo oh >&2; false")[0].contains("oh")
        );
        assert!(found("```console\n$ sleep 600\n```", "run 1 | sleep 600")[0].contains("within 1 s"));
    }

    #[test]
    fn a_cover_that_is_not_there_is_found() {
        let document = "```console\n$ x\n```";
        assert_eq!(found(document, "test a.rs::covered | x"), Vec::<String>::new());
        assert!(found(document, "test a.rs::renamed | x")[0].contains("not there"));
        assert!(found(document, "test gone.rs::covered | x")[0].contains("not there"));
        assert!(found(document, "ci | x")[0].contains(".ci/run has no line"));
        assert_eq!(
            found("```console\n$ cargo xtask test\n```", "ci | cargo xtask test"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_manifest_that_cannot_be_read_says_where() {
        for bad in ["x", "walk | x", "run soon | x", "test a.rs | x", "ci | x\nci | x"] {
            let error = format!("{:#}", parse(bad).unwrap_err());
            assert!(error.contains(MANIFEST), "{error}");
        }
    }
}
