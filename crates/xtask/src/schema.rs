//! `cargo xtask schema`: the wire against what was committed.

use std::path::Path;

use anyhow::{Context, Result};
use bigfleet_proto::schema;

use crate::workspace;

/// Checks the committed schema; with `accept`, writes additions to it.
pub(crate) fn run(accept: bool) -> Result<()> {
    run_on(&workspace::root().join(schema::COMMITTED_FILE), accept)
}

fn run_on(file: &Path, accept: bool) -> Result<()> {
    let committed = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the committed schema {}", file.display()))?;
    let report = schema::check(&committed)?;
    if accept && !report.additions.is_empty() {
        let text = schema::accept(&committed)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("accepted {} additions", report.additions.len());
    } else {
        println!("{report}");
    }
    if !accept && !report.additions.is_empty() {
        anyhow::bail!("{} is out of date; run `cargo xtask schema --accept`", schema::COMMITTED_FILE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> String {
        std::fs::read_to_string(workspace::root().join(schema::COMMITTED_FILE)).unwrap()
    }

    /// `text` without its first line that begins with `start`, and that line.
    fn without(text: &str, start: &str) -> (String, String) {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        (text.replacen(&format!("{line}\n"), "", 1), line.to_owned())
    }

    #[test]
    fn the_committed_schema_is_current() {
        run(false).unwrap();
    }

    #[test]
    fn an_addition_fails_until_it_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.txt");
        std::fs::write(&file, without(&committed(), "field ").0).unwrap();
        assert!(run_on(&file, false).unwrap_err().to_string().contains("--accept"));
        run_on(&file, true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), committed());
        run_on(&file, false).unwrap();
    }

    #[test]
    fn a_changed_number_is_refused_even_with_accept_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.txt");
        let (rest, line) = without(&committed(), "field ");
        let (subject, _) = line.split_once(" = ").unwrap();
        let before = format!("{subject} = something_else string singular\n{rest}");
        std::fs::write(&file, &before).unwrap();
        for accept in [false, true] {
            let error = run_on(&file, accept).unwrap_err().to_string();
            assert!(error.contains("breaks peers") && error.contains(subject), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
        }
    }
}
