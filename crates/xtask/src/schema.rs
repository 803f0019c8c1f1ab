//! `cargo xtask schema`: the wire against what was committed.
//!
//! The work is done by a program of the proto crate. xtask depends on nothing that it checks: it must build, and its
//! guards must run, while another crate does not.

use anyhow::Result;

use crate::workspace::{cargo, run as run_command};

/// Checks the committed schema; with `accept`, writes additions to it.
pub(crate) fn run(accept: bool) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--locked", "--package", "bigfleet-proto"]);
    command.args(["--bin", "bigfleet-schema", "--"]);
    if accept {
        command.arg("--accept");
    }
    run_command(&mut command)
}
