//! `bigfleet decide FILE`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bigfleet_decide as decide;
use clap::{Arg, ArgMatches, Command};

use super::{Failure, Outcome, print};

pub(super) fn command() -> Command {
    Command::new("decide")
        .about("Decide once on a saved fleet and its demand, and print what is decided")
        .arg(
            Arg::new("file")
                .required(true)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("A file of format bigfleet.decide/v1; - reads standard input"),
        )
        .arg(
            Arg::new("explain").long("explain").value_name("CLUSTER[/FINGERPRINT]").help(
                "Print why instead, as text: for all Needs and machines of a cluster, or only for its Needs whose fingerprint begins with these digits",
            ),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let Some(file) = matches.get_one::<PathBuf>("file") else {
        return Err(Failure::Usage("decide: FILE is missing".to_owned()));
    };
    let name = file.display();
    let bytes =
        content(file).map_err(|error| Failure::Refused(format!("{name}: cannot be read: {error}")))?;
    let input = decide::read(&bytes).map_err(|refused| Failure::Refused(format!("{name}: {refused}")))?;
    let Some(about) = matches.get_one::<String>("explain") else {
        return print(&decide::decide(&input).to_json()?);
    };
    let text = decide::explain(&input, about)
        .map_err(|error| Failure::Usage(format!("decide --explain: {name}: {error}")))?;
    print(&text)
}

/// The bytes of a file; `-` is standard input.
pub(super) fn content(file: &Path) -> std::io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
