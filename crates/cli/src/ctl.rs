//! `bigfleet ctl`: looking at a running fleet.
//!
//! `needs` asks a shard what became of every Need, `machines` asks a provider for its machines, `watch` asks both
//! again and again and prints what changed.

pub(crate) mod fleet;
mod machines;
mod needs;
mod table;
mod watch;

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::command::{Failure, Outcome, block_on};

/// What every `ctl` command knows: whom to ask, how long to wait, how to print.
struct Context {
    shard: String,
    provider: String,
    timeout: Duration,
    json: bool,
    headers: bool,
}

pub(crate) fn command() -> Command {
    let text = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help).global(true)
    };
    let filter = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let cluster = || filter("cluster", "ID", "Only this cluster");
    Command::new("ctl")
        .about("Look at a running fleet")
        .subcommand_required(true)
        .arg(text("shard", "127.0.0.1:7780", "The shard to ask").value_name("HOST:PORT"))
        .arg(text("provider", "127.0.0.1:9000", "The provider to ask").value_name("HOST:PORT"))
        .arg(
            text("timeout", "10", "How long one question may take")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64).range(1..=600)),
        )
        .arg(text("output", "table", "How answers look").value_parser(["table", "json"]))
        .arg(
            Arg::new("no-headers")
                .long("no-headers")
                .action(ArgAction::SetTrue)
                .global(true)
                .help("Leave out the header row of tables"),
        )
        .subcommand(
            Command::new("needs")
                .about("What became of every Need: why does this one have no machine?")
                .arg(cluster())
                .arg(
                    Arg::new("unmet")
                        .long("unmet")
                        .action(ArgAction::SetTrue)
                        .help("Only Needs that are not satisfied"),
                ),
        )
        .subcommand(Command::new("machines").about("The provider's machines").arg(cluster()).arg(filter(
            "state",
            "STATE",
            "Only machines in this state, such as Idle",
        )))
        .subcommand(
            Command::new("watch")
                .about("Print what changes: machines, Needs, dollars an hour")
                .arg(
                    Arg::new("interval")
                        .long("interval")
                        .value_name("SECONDS")
                        .default_value("2")
                        .value_parser(clap::value_parser!(u64).range(1..=3600))
                        .help("How often to look"),
                )
                .arg(
                    Arg::new("count")
                        .long("count")
                        .value_name("N")
                        .value_parser(clap::value_parser!(u64).range(1..))
                        .help("Stop after so many looks [default: never]"),
                ),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let context = Context {
        shard: text("shard"),
        provider: text("provider"),
        timeout: Duration::from_secs(matches.get_one::<u64>("timeout").copied().unwrap_or(10)),
        json: text("output") == "json",
        headers: !matches.get_flag("no-headers"),
    };
    let optional = |m: &ArgMatches, name: &str| m.get_one::<String>(name).cloned();
    match matches.subcommand() {
        Some(("needs", m)) => {
            block_on(needs::run(&context, optional(m, "cluster").unwrap_or_default(), m.get_flag("unmet")))
        }
        Some(("machines", m)) => {
            block_on(machines::run(&context, optional(m, "cluster"), optional(m, "state")))
        }
        Some(("watch", m)) => {
            let seconds = m.get_one::<u64>("interval").copied().unwrap_or(2);
            let count = m.get_one::<u64>("count").copied();
            block_on(watch::run(&context, Duration::from_secs(seconds), count))
        }
        _ => Err(Failure::Usage("ctl needs a command: needs, machines or watch".to_owned())),
    }
}
