//! `bigfleet decide FILE`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bigfleet_decide as decide;
use clap::{Arg, ArgMatches, Command};

use super::{Failure, Outcome, print};

pub(super) fn command() -> Command {
    Command::new("decide")
        .about("Decide once on a saved fleet and its demand, and print what is decided")
        .arg(file_arg("A file of format bigfleet.decide/v1; - reads standard input"))
        .arg(
            Arg::new("explain").long("explain").value_name("CLUSTER[/FINGERPRINT]").help(
                "Print why instead, as text: for all Needs and machines of a cluster, or only for its Needs whose fingerprint begins with these digits",
            ),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (name, bytes) = file(matches, "decide")?;
    let input = decide::read(&bytes).map_err(|refused| Failure::Refused(format!("{name}: {refused}")))?;
    let Some(about) = matches.get_one::<String>("explain") else {
        return print(&decide::decide(&input).to_json()?);
    };
    let text = decide::explain(&input, about)
        .map_err(|error| Failure::Usage(format!("decide --explain: {name}: {error}")))?;
    print(&text)
}

/// The argument FILE.
pub(super) fn file_arg(help: &'static str) -> Arg {
    let path = clap::value_parser!(PathBuf);
    Arg::new("file").required(true).value_name("FILE").value_parser(path).help(help)
}

/// The name and the bytes of the FILE that was given to `command`.
pub(super) fn file(matches: &ArgMatches, command: &str) -> Result<(String, Vec<u8>), Failure> {
    let Some(file) = matches.get_one::<PathBuf>("file") else {
        return Err(Failure::Usage(format!("{command}: FILE is missing")));
    };
    let name = file.display().to_string();
    match content(file) {
        Ok(bytes) => Ok((name, bytes)),
        Err(error) => Err(Failure::Refused(format!("{name}: cannot be read: {error}"))),
    }
}

/// The bytes of a file; `-` is standard input.
fn content(file: &Path) -> std::io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
