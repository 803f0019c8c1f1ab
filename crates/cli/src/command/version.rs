//! `bigfleet version`.

use clap::{ArgMatches, Command};

use super::{Outcome, print};

/// The version and the protocol that it speaks on every edge.
pub(super) const LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (protocol v1alpha1)");

pub(super) fn command() -> Command {
    Command::new("version").about("Print the version and the protocol")
}

pub(super) fn run(_matches: &ArgMatches) -> Outcome {
    print(&format!("bigfleet {LINE}\n"))
}
