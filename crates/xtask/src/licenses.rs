//! `cargo xtask licenses`: cargo-deny over `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// How to get the tool.
pub(crate) const INSTALL: &str = "cargo install --locked cargo-deny --version 0.20.2";

/// Whether cargo-deny is on the path.
pub(crate) fn available() -> bool {
    find(std::env::var_os("PATH").unwrap_or_default()).is_some()
}

/// Checks licences, bans and sources. Advisories need a database from elsewhere and are not checked.
pub(crate) fn run() -> Result<()> {
    let tool = require(std::env::var_os("PATH").unwrap_or_default())?;
    let mut command = Command::new(tool);
    command.args(["--locked", "check", "bans", "licenses", "sources"]).current_dir(workspace::root());
    workspace::run(&mut command)
}

fn require(path: std::ffi::OsString) -> Result<PathBuf> {
    find(path).with_context(|| format!("cargo-deny is not on the path; install it with `{INSTALL}`"))
}

fn find(path: std::ffi::OsString) -> Option<PathBuf> {
    std::env::split_paths(&path).map(|dir| dir.join("cargo-deny")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_an_error_that_says_how_to_get_it() {
        let empty = tempfile::tempdir().unwrap();
        let error = require(empty.path().into()).unwrap_err().to_string();
        assert!(error.contains("cargo-deny") && error.contains(INSTALL), "{error}");
        std::fs::write(empty.path().join("cargo-deny"), "").unwrap();
        assert_eq!(require(empty.path().into()).unwrap(), empty.path().join("cargo-deny"));
    }

    #[test]
    fn ci_installs_the_version_that_we_name() {
        let ci = std::fs::read_to_string(workspace::root().join(".ci/run")).unwrap();
        let version = INSTALL.rsplit(' ').next().unwrap();
        assert!(ci.contains(version), ".ci/run does not mention {version}");
    }
}
