//! The subcommands, and the way from a command line to one of them.

mod all_in_one;
mod completions;
mod conformance;
mod crds;
mod decide;
mod demo;
mod operator;
mod pod_controller;
mod provider;
mod shard;
mod simulate;
mod version;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::config::{self, Later, Program, Values};
use crate::{ctl, logging};

/// Settings of the transport that every program will have.
pub(crate) const TLS_LATER: [Later; 3] = [
    Later { name: "tls-cert", reason: NO_TLS },
    Later { name: "tls-key", reason: NO_TLS },
    Later { name: "tls-ca", reason: NO_TLS },
];
const NO_TLS: &str =
    "this version has no TLS yet; run on a trusted network, or leave the flag out to accept plaintext";

/// Parts that the public programs have and this version does not.
const LATER_PARTS: [&str; 2] = ["coordinator", "dashboard"];

/// The whole command line.
pub(crate) fn tree() -> Command {
    let later = LATER_PARTS.map(|name| {
        let rest = clap::Arg::new("rest").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
        Command::new(name).hide(true).disable_help_flag(true).arg(rest)
    });
    Command::new("bigfleet")
        .about("One autoscaler for a whole fleet of Kubernetes clusters")
        .version(version::LINE)
        .subcommand(demo::PROGRAM.command())
        .subcommand(all_in_one::PROGRAM.command())
        .subcommand(shard::PROGRAM.command())
        .subcommand(operator::PROGRAM.command())
        .subcommand(provider::command())
        .subcommand(conformance::PROGRAM.command())
        .subcommand(pod_controller::PROGRAM.command())
        .subcommand(
            Command::new("crds")
                .about("The custom resources of a cluster")
                .subcommand_required(true)
                .subcommand(crds::PRINT.command())
                .subcommand(crds::INSTALL.command())
                .subcommand(crds::UPGRADE.command()),
        )
        .subcommand(decide::command())
        .subcommand(simulate::command())
        .subcommand(ctl::command())
        .subcommand(version::command())
        .subcommand(completions::command())
        .subcommands(later)
}

/// Runs the subcommand that was asked for.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("demo", m)) => start(&demo::PROGRAM, m, demo::run),
        Some(("all-in-one", m)) => start(&all_in_one::PROGRAM, m, all_in_one::run),
        Some(("shard", m)) => start(&shard::PROGRAM, m, shard::run),
        Some(("operator", m)) => start(&operator::PROGRAM, m, operator::run),
        Some(("provider", m)) => provider::run(m),
        Some(("conformance", m)) => start(&conformance::PROGRAM, m, conformance::run),
        Some(("pod-controller", m)) => start(&pod_controller::PROGRAM, m, pod_controller::run),
        Some(("crds", m)) => match m.subcommand() {
            Some(("print", m)) => quiet(&crds::PRINT, m, crds::run_print),
            Some(("install", m)) => start(&crds::INSTALL, m, crds::run_install),
            Some(("upgrade", m)) => start(&crds::UPGRADE, m, crds::run_upgrade),
            _ => usage("unknown subcommand of crds"),
        },
        Some(("decide", m)) => finish(decide::run(m)),
        Some(("simulate", m)) => finish(simulate::run(m)),
        Some(("ctl", m)) => finish(ctl::run(m)),
        Some(("version", m)) => finish(version::run(m)),
        Some(("completions", m)) => finish(completions::run(m)),
        Some((later, _)) => usage(&format!(
            "`bigfleet {later}` is not built yet; this version has demo, all-in-one, shard, operator, provider, conformance, pod-controller, crds, decide, simulate, ctl, version and completions"
        )),
        None => usage(&format!("no subcommand given\n\n{}", tree().render_help())),
    }
}

/// A run-time failure and what to tell about it.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a command ends with a status other than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A setting cannot be used: status 2.
    Usage(String),
    /// A file cannot be used: status 2, and the line says by itself which file and where in it.
    Refused(String),
    /// A scenario came to another end than it expects: status 1, and each line says what.
    Unmet(Vec<String>),
    /// The command has said all there is to say, and ends with this status.
    Said(u8),
    /// Anything else: status 1.
    Run(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Run(error.into())
    }
}

/// Says what is wrong with the command line; status 2.
pub(crate) fn usage(message: &str) -> ExitCode {
    report(message);
    ExitCode::from(2)
}

fn report(message: &str) {
    say(&format!("bigfleet: {message}"));
}

/// A line on standard error.
pub(crate) fn say(line: &str) {
    // Standard error is the last place there is: when it is closed, the status alone has to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => usage(&message),
        Err(Failure::Refused(line)) => {
            say(&line);
            ExitCode::from(2)
        }
        Err(Failure::Unmet(lines)) => {
            lines.iter().for_each(|line| say(line));
            ExitCode::FAILURE
        }
        Err(Failure::Said(status)) => ExitCode::from(status),
        Err(Failure::Run(error)) => {
            report(&told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and what caused it, in one line. Many errors say their cause in their own words; it is not said again.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// As [`start`], for a command that logs nothing.
fn quiet(program: &Program, matches: &ArgMatches, run: fn(&Values) -> Outcome) -> ExitCode {
    with_values(program, matches, run)
}

fn start(program: &Program, matches: &ArgMatches, run: fn(&Values) -> Outcome) -> ExitCode {
    with_values(program, matches, |values| {
        logging::start(values);
        run(values)
    })
}

fn with_values(program: &Program, matches: &ArgMatches, run: impl FnOnce(&Values) -> Outcome) -> ExitCode {
    let values = match config::load(program, matches, &|name| std::env::var(name).ok()) {
        Ok(values) => values,
        Err(error) => return usage(&error.to_string()),
    };
    if matches.get_flag("print-config") {
        return finish(print(&values.print()));
    }
    finish(run(&values))
}

/// Prints to standard output. A closed pipe is a failure like any other, not a panic.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The line that says where a listener can be reached, the same for all: `ready NAME ADDRESS`.
pub(crate) fn ready(name: &str, address: std::net::SocketAddr) -> Outcome {
    print(&format!("ready {name} {address}\n"))
}

/// Runs a program to its end on a runtime of its own.
pub(crate) fn block_on(future: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
