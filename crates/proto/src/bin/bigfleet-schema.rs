//! The schema guard as a command: compares the wire of this build with the committed schema; `--accept` writes what
//! was added. Run it as `cargo xtask schema` from anywhere in the repository.
//!
//! It lives here and not in xtask so that xtask builds, and its guards run, while this crate does not.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bigfleet_proto::schema;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let accept = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => false,
        ["--accept"] => true,
        _ => {
            eprintln!("bigfleet-schema takes nothing but --accept");
            return ExitCode::from(2);
        }
    };
    match run(&committed_file(), accept) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bigfleet-schema: {error}");
            ExitCode::FAILURE
        }
    }
}

fn committed_file() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join(schema::COMMITTED_FILE)
}

/// Checks `file`, and with `accept` brings it up to date; says what was found or done. Fails when peers would be
/// misunderstood, and without `accept` also when something was added.
fn run(file: &Path, accept: bool) -> Result<String, Box<dyn Error>> {
    let committed =
        std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let report = schema::check(&committed)?;
    if report.additions.is_empty() {
        return Ok(report.to_string());
    }
    if !accept {
        return Err(report.to_string().into());
    }
    std::fs::write(file, schema::accept(&committed)?)
        .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    Ok(format!("accepted {} additions", report.additions.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> String {
        std::fs::read_to_string(committed_file()).unwrap()
    }

    /// The committed schema without its first field, and that field's line.
    fn without_a_field() -> (String, String) {
        let text = committed();
        let line = text.lines().find(|line| line.starts_with("field ")).unwrap();
        (text.replacen(&format!("{line}\n"), "", 1), line.to_owned())
    }

    #[test]
    fn the_committed_schema_is_current() {
        run(&committed_file(), false).unwrap();
    }

    #[test]
    fn an_addition_fails_until_it_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.txt");
        std::fs::write(&file, without_a_field().0).unwrap();
        assert!(run(&file, false).unwrap_err().to_string().contains("--accept"));
        run(&file, true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), committed());
        run(&file, false).unwrap();
    }

    #[test]
    fn a_changed_number_is_refused_even_with_accept_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.txt");
        let (rest, line) = without_a_field();
        let (subject, _) = line.split_once(" = ").unwrap();
        let before = format!("{subject} = something_else string singular\n{rest}");
        std::fs::write(&file, &before).unwrap();
        for accept in [false, true] {
            let error = run(&file, accept).unwrap_err().to_string();
            assert!(error.contains("breaks peers") && error.contains(subject), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(&dir.path().join("gone"), true).unwrap_err().to_string().contains("cannot read"));
    }
}
