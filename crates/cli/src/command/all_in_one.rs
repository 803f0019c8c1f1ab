//! `bigfleet all-in-one`: a shard beside `fakecloud`, in one process. The quickest way to something that answers.

use std::path::Path;

use bigfleet_net::{admin, listen};
use bigfleet_provider_kit::FileStore;
use bigfleet_provider_kit::fakecloud::{self, FakeCloud, Profile};
use bigfleet_shard::service::Shard;
use bigfleet_types::ShardId;

use super::shard::{RAILS, address, announce, options, serve};
use super::{Failure, Outcome, TLS_LATER, block_on, ready};
use crate::config::{Flag, Kind, Later, Program, Values};
use crate::logging;
use crate::stop::Signals;

const OWN: &[Flag] = &[
    Flag {
        name: "shard-listen",
        kind: Kind::AddressOrOff,
        default: Some(":7780"),
        help: "Where operators and readers connect",
    },
    Flag {
        name: "shard-metrics-addr",
        kind: Kind::AddressOrOff,
        default: Some(":8780"),
        help: "Metrics and probes; 0 switches them off",
    },
    Flag {
        name: "data-dir",
        kind: Kind::Required,
        default: Some("./bigfleet-data"),
        help: "Holds the folders shard and provider",
    },
    Flag { name: "shard-id", kind: Kind::Required, default: Some("shard-0"), help: "The shard's identity" },
    Flag {
        name: "provider-addr",
        kind: Kind::Address,
        default: Some(""),
        help: "Use this provider instead of starting fakecloud",
    },
    Flag {
        name: "provider-listen",
        kind: Kind::AddressOrOff,
        default: Some("127.0.0.1:0"),
        help: "Where fakecloud listens",
    },
    Flag {
        name: "seed-profile",
        kind: Kind::Choice(&["dev", "demo", "none"]),
        default: Some("dev"),
        help: "What fakecloud begins with: dev (8 GPU machines and 8 small ones), demo or none",
    },
];

const NO_COORDINATOR: &str =
    "this version has no coordinator yet; leave the flag out: a shard needs none to serve its clusters";
const LATER: &[Later] = &[
    TLS_LATER[0],
    TLS_LATER[1],
    TLS_LATER[2],
    Later { name: "coordinator-listen", reason: NO_COORDINATOR },
    Later { name: "coordinator-metrics-addr", reason: NO_COORDINATOR },
    Later { name: "coordinator-id", reason: NO_COORDINATOR },
    Later { name: "raft-bind", reason: NO_COORDINATOR },
    Later { name: "dashboard-addr", reason: "this version has no dashboard yet; use `bigfleet ctl`" },
];

pub(super) const PROGRAM: Program = Program {
    name: "all-in-one",
    about: "A shard beside a simulated provider, in one process",
    flags: &[OWN, RAILS, logging::FLAGS],
    later: LATER,
};

pub(super) fn run(values: &Values) -> Outcome {
    let id =
        ShardId::parse(values.text("shard-id")).map_err(|e| Failure::Usage(format!("--shard-id: {e}")))?;
    let listen = address(values, "shard-listen")?;
    let metrics_addr: admin::Addr = address(values, "shard-metrics-addr")?;
    let data_dir = Path::new(values.text("data-dir")).to_owned();
    // Looked at before anything starts, so that a bad flag has no side effect.
    options(values, "127.0.0.1:1")?;
    block_on(async {
        let signals = Signals::listen()?;
        let provider = match values.text("provider-addr") {
            "" => Some(start_provider(values, &data_dir.join("provider")).await?),
            _ => None,
        };
        let provider_addr = match &provider {
            Some(provider) => provider.dial_addr().to_string(),
            None => values.text("provider-addr").to_owned(),
        };
        let mut options = options(values, &provider_addr)?;
        (options.id, options.listen, options.metrics_addr) = (id, listen, metrics_addr);
        options.data_dir = data_dir.join("shard");
        let mut shard = Shard::start(options).await?;
        announce(&shard)?;
        let outcome = serve(&mut shard, signals).await;
        if let Some(provider) = provider {
            provider.shutdown().await?;
        }
        outcome
    })
}

async fn start_provider(values: &Values, folder: &Path) -> Result<fakecloud::Handle, Failure> {
    let options = fakecloud::Options {
        profile: Profile::named(values.text("seed-profile")),
        ..fakecloud::Options::default()
    };
    let addr: listen::Addr = address(values, "provider-listen")?;
    let listener = listen::bind_addr(&addr).await?;
    let store = FileStore::open(folder)?;
    let options = options.take_environment(|name| std::env::var(name).ok());
    let provider = FakeCloud::new(options)?.store(store).start(listener).await?;
    ready("provider", provider.dial_addr())?;
    Ok(provider)
}
