//! `bigfleet provider repair`: a Failed machine is brought back by the owner of its provider. No call on the network
//! does that.

use std::path::PathBuf;

use bigfleet_provider_kit::server::desk::{Reply, Wish, ask, socket_in};
use clap::{Arg, ArgMatches, Command};

use crate::command::{Failure, Outcome, block_on, print};

pub(super) fn command() -> Command {
    Command::new("repair")
        .about("Bring Failed machines of a provider on this machine back to what its back end says they are")
        .arg(Arg::new("machine").required(true).num_args(1..).help("Ids of Failed machines"))
        .arg(Arg::new("state").long("state").value_name("FOLDER").help("The --state of the provider"))
        .arg(
            Arg::new("admin-socket")
                .long("admin-socket")
                .value_name("PATH")
                .conflicts_with("state")
                .help("The --admin-socket of the provider"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let text = |name| matches.get_one::<String>(name);
    let socket = text("admin-socket").map(PathBuf::from);
    let socket = socket.or_else(|| text("state").map(|folder| socket_in(folder.as_ref())));
    let socket = socket.ok_or_else(|| {
        Failure::Usage("name the provider by its --state folder or its --admin-socket".into())
    })?;
    let machines: Vec<String> = matches.get_many("machine").into_iter().flatten().cloned().collect();
    block_on(async {
        let mut refused = Vec::new();
        for machine in machines {
            match ask(&socket, &Wish { repair: machine.clone() }).await? {
                Reply::Repaired(state) => print(&format!("{machine} {state}\n"))?,
                Reply::Refused(reason) => refused.push(format!("{machine}: not repaired: {reason}")),
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(Failure::Unmet(refused)) }
    })
}
