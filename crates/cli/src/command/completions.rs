//! `bigfleet completions SHELL`.

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use super::{Outcome, print};

pub(super) fn command() -> Command {
    Command::new("completions")
        .alias("completion")
        .about("Print shell completions")
        .arg(Arg::new("shell").required(true).value_name("SHELL").value_parser(clap::value_parser!(Shell)))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, &mut super::tree(), "bigfleet", &mut script);
    }
    print(&String::from_utf8(script)?)
}
