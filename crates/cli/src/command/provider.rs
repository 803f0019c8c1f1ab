//! `bigfleet provider NAME`.

mod baremetal;
mod exec;
mod fakecloud;
mod fault;
mod flags;
mod new;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;

use bigfleet_net::listen::Listener;
use bigfleet_net::tls::{Files, Guards, Tls};
use bigfleet_net::{admin, listen};
use bigfleet_provider_kit::program::Program as LocalProgram;
use bigfleet_provider_kit::server::desk::socket_beside;
use bigfleet_provider_kit::{Backend, FileStore, Handle, MemStore, Options, Provider, Store, Timeouts};
use clap::{ArgMatches, Command};

use super::shard::address;
use super::{Failure, Outcome, block_on, finish, ready, start, usage};
use crate::config::Values;
use crate::stop::Signals;

/// The part of the command line that names a provider.
pub(super) fn command() -> Command {
    Command::new("provider")
        .about("A provider of machines")
        .subcommand_required(true)
        .subcommand(fakecloud::FAKECLOUD.command())
        .subcommand(fault::FAULT.command())
        .subcommand(baremetal::BAREMETAL.command())
        .subcommand(exec::EXEC.command())
        .subcommand(new::command())
        .subcommand(repair::command())
}

/// Runs the provider that was asked for.
pub(super) fn run(matches: &ArgMatches) -> std::process::ExitCode {
    match matches.subcommand() {
        Some(("fakecloud", m)) => start(&fakecloud::FAKECLOUD, m, fakecloud::run),
        Some(("fault", m)) => start(&fault::FAULT, m, fault::run),
        Some(("baremetal", m)) => start(&baremetal::BAREMETAL, m, baremetal::run),
        Some(("exec", m)) => start(&exec::EXEC, m, exec::run),
        Some(("new", m)) => finish(new::run(m)),
        Some(("repair", m)) => finish(repair::run(m)),
        _ => usage("unknown provider"),
    }
}

/// What the common flags say.
struct Common {
    /// The provider's own name.
    name: &'static str,
    addr: listen::Addr,
    metrics_addr: admin::Addr,
    transition_timeout: Option<std::time::Duration>,
    reflection: bool,
    seed_count: u64,
    state: Option<PathBuf>,
    admin_socket: Option<PathBuf>,
    tls: Option<Tls>,
    strict_epoch: bool,
}

impl Common {
    fn read(values: &Values, name: &'static str) -> Result<Self, Failure> {
        let timeout = values.duration("transition-timeout");
        Ok(Self {
            name,
            addr: address(values, "addr")?,
            metrics_addr: address(values, "metrics-addr")?,
            transition_timeout: (!timeout.is_zero()).then_some(timeout),
            reflection: values.switch("reflection"),
            seed_count: u64::try_from(values.count("seed-count")).unwrap_or(u64::MAX),
            state: values.path("state"),
            admin_socket: values.path("admin-socket").or_else(|| socket_beside(&values.path("state")?)),
            tls: tls(values, &label(values, name))?,
            strict_epoch: values.switch("strict-epoch"),
        })
    }

    /// The limits that the kit will run with.
    fn timeouts(&self) -> Timeouts {
        self.transition_timeout.map_or_else(Timeouts::default, Timeouts::all)
    }

    /// Sets what the flags say about the kit.
    fn apply(&self, kit: &mut Options) {
        kit.name = self.name.to_owned();
        kit.metrics_addr = self.metrics_addr.clone();
        kit.reflection = self.reflection;
        kit.strict_epoch = self.strict_epoch;
        kit.tls.clone_from(&self.tls);
        kit.admin_socket.clone_from(&self.admin_socket);
        kit.timeouts = self.timeouts();
    }

    /// The durable store, if one is asked for.
    fn store(&self) -> Result<Option<FileStore>, Failure> {
        Ok(self.state.as_ref().map(FileStore::open).transpose()?)
    }
}

/// TLS as its flags ask for it; `name` stands for `{id}` in their paths.
fn tls(values: &Values, name: &str) -> Result<Option<Tls>, Failure> {
    let files = Files::from_flags(values.path("tls-cert"), values.path("tls-key"), values.path("tls-ca"));
    let refuse = |error: bigfleet_net::tls::Error| Failure::Usage(error.to_string());
    let files = files.map_err(refuse)?.map(|files| files.of_id(name));
    let guards = Guards { crl: values.path("tls-crl"), denylist: values.path("identity-denylist") };
    Tls::from_flags(files, guards, values.switch("require-tls")).map_err(refuse)
}

/// What hosts call their provider, if the flags say.
fn given_label(values: &Values) -> Option<String> {
    Some(values.text("provider")).filter(|label| !label.is_empty()).map(str::to_owned)
}

/// What hosts call their provider.
fn label(values: &Values, name: &str) -> String {
    given_label(values).unwrap_or_else(|| name.to_owned())
}

/// A command line of a flag; `None` when the flag is not set.
fn command_line(values: &Values, flag: &str) -> Result<Option<LocalProgram>, Failure> {
    let line = values.text(flag);
    LocalProgram::split(line).map_err(|error| Failure::Usage(format!("--{flag} {line:?}: {error}")))
}

/// Serves a back end until a signal.
fn serve_backend(common: &Common, backend: Arc<dyn Backend>) -> Outcome {
    let mut options = Options::default();
    common.apply(&mut options);
    let store: Box<dyn Store> = match common.store()? {
        Some(store) => Box::new(store),
        None => Box::new(MemStore),
    };
    serve(common.addr.clone(), async |listener| Ok(Provider::start(listener, backend, options, store).await?))
}

/// Serves what `start` starts until a signal.
fn serve(addr: listen::Addr, start: impl AsyncFnOnce(Listener) -> anyhow::Result<Handle>) -> Outcome {
    block_on(async {
        let mut signals = Signals::listen()?;
        let listener = listen::bind_addr(&addr).await?;
        let mut provider = start(listener).await?;
        ready("provider", provider.dial_addr())?;
        let mut admin = provider.admin_bound();
        let ended = loop {
            tokio::select! {
                signal = signals.next() => {
                    tracing::info!(signal, "stopping");
                    break Ok(());
                }
                ended = provider.failed() => break ended.map_err(anyhow::Error::from).and_then(|()| {
                    Err(anyhow::anyhow!("the provider ended though nobody asked it to"))
                }),
                // Bound late or never when its port is taken: machines are managed all the same.
                Some(addr) = next_bound(&mut admin) => ready("provider-metrics", addr)?,
            }
        };
        ended?;
        provider.shutdown().await?;
        Ok(())
    })
}

/// The next address at which the admin listener is bound.
async fn next_bound(
    admin: &mut Option<tokio::sync::watch::Receiver<Option<std::net::SocketAddr>>>,
) -> Option<std::net::SocketAddr> {
    let bound = match admin {
        Some(bound) => bound.wait_for(Option::is_some).await.ok().and_then(|addr| *addr),
        None => None,
    };
    // Said once.
    *admin = None;
    bound
}
