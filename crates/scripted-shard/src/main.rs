//! A shard that says what a test wants it to say: `scripted-shard ADDRESS SCRIPT`.
//!
//! It acknowledges hellos and roll-ups, replays the machines of the script to every new session and ends the replay
//! with the resync marker, as a real shard does. SCRIPT is a file of JSON objects, one a line, that may grow while the
//! program runs; each line is done once. What operators send is printed, a JSON object a line.

mod service;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bigfleet_net::{grpc, limits, listen};
use bigfleet_proto::v1alpha1::MachineState;
use bigfleet_proto::v1alpha1::shard_server::ShardServer;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use service::Script;

/// How often the script is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// A machine's state, now and in every replay.
    Machine(Machine),
    /// Forgets a machine.
    Forget(String),
    /// Asks the operator to empty machines.
    Reclaim(Reclaim),
}

/// A machine as operators hear of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    id: String,
    /// The name of a state on the wire, such as `CONFIGURED`.
    state: String,
    cluster: String,
    #[serde(default)]
    provider_id: String,
}

impl Machine {
    fn number(&self) -> Result<i32> {
        let name = format!("MACHINE_STATE_{}", self.state);
        let state = MachineState::from_str_name(&name).or_else(|| MachineState::from_str_name(&self.state));
        Ok(state.with_context(|| format!("{} is no machine state", self.state))?.into())
    }
}

/// An instruction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reclaim {
    id: String,
    machines: Vec<String>,
    grace_seconds: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(script), None) = (args.next(), args.next(), args.next()) else {
        anyhow::bail!("usage: scripted-shard ADDRESS SCRIPT");
    };
    let listener = listen::bind(&address).await?;
    println!("ready shard {}", listener.dial_addr());
    let shared = Script::default();
    let service = ShardServer::new(shared.clone()).max_decoding_message_size(limits::ROLLUP_BYTES);
    let server = grpc::Server::new(listener).add_service(service);
    tokio::select! {
        ended = server.serve(CancellationToken::new(), Duration::ZERO) => ended.map(drop).context("the server ended"),
        failed = follow(Path::new(&script), &shared) => failed,
    }
}

/// Does the lines of the script as they come. Only ends by an error.
async fn follow(path: &Path, shared: &Script) -> Result<()> {
    let mut done = 0;
    loop {
        let text = tokio::fs::read_to_string(path).await.with_context(|| path.display().to_string())?;
        // A line is whole when it has an end.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines().skip(done) {
            let parsed = serde_json::from_str(line).with_context(|| format!("line `{line}`"))?;
            shared.act(parsed).await.with_context(|| format!("line `{line}`"))?;
            done += 1;
        }
        tokio::time::sleep(LOOK).await;
    }
}
