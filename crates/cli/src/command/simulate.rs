//! `bigfleet simulate FILE`.

use std::io::{BufWriter, Write as _};

use bigfleet_sim::scenario;
use clap::{ArgMatches, Command};

use super::{Failure, Outcome, decide};

pub(super) fn command() -> Command {
    Command::new("simulate")
        .about("Play a scenario with the real engine in virtual time, and print a trace of what it does")
        .after_help(
            "Exit status: 0 done; 1 an expectation of the scenario failed (the trace is complete); 2 the file was refused.",
        )
        .arg(decide::file_arg("A file of format bigfleet.scenario/v1 in YAML or JSON; - reads standard input"))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (name, bytes) = decide::file(matches, "simulate")?;
    let scenario =
        scenario::read(&bytes).map_err(|refused| Failure::Refused(format!("{name}: {refused}")))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let failures = scenario.run(&mut out)?;
    out.flush()?;
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::Unmet(failures.iter().map(|failure| format!("{name}: {failure}")).collect()))
}
