//! What every provider that is a program of its own does alike: its flags, its listener, its end.
//!
//! ```no_run
//! use bigfleet_provider_kit::{Backend, pretend::Pretend, seeds, standard};
//! # use std::sync::Arc;
//! fn main() -> std::process::ExitCode {
//!     standard::main("mine", async |settings| {
//!         let slots = seeds::quarters("slot", settings.seed_count);
//!         let backend: Arc<dyn Backend> = Arc::new(Pretend::new(settings.provider.clone(), slots, true));
//!         Ok(backend)
//!     })
//! }
//! ```

mod settings;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use bigfleet_net::listen;
use tokio::signal::unix::{SignalKind, signal};

use crate::backend::Backend;
use crate::server::Provider;
use crate::store::{FileStore, MemStore, Store};

pub use settings::{Settings, Unusable};

/// Why a provider ended that was not asked to, or never began.
type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Runs a provider: reads the flags, makes the back end, serves until SIGINT or SIGTERM. The back end
/// is made on the runtime that serves it, so that clients of clouds can be opened there. `name` is lower-case letters,
/// digits and `_`; metrics begin with it. Logs go to standard error, and core dumps are off. Status 0 after a signal, 1 when it fails, 2 for a flag that cannot be used.
pub fn main(
    name: &str,
    backend: impl AsyncFnOnce(&Settings) -> Result<Arc<dyn Backend>, Problem>,
) -> ExitCode {
    let settings = match Settings::read(name, std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(Unusable::Help) => {
            say(&mut std::io::stdout(), Settings::HELP);
            return ExitCode::SUCCESS;
        }
        Err(unusable) => {
            say(&mut std::io::stderr(), &format!("{name}: {unusable}\n"));
            return ExitCode::from(2);
        }
    };
    // A second call in one process (tests) keeps the first subscriber.
    let _ = tracing_subscriber::fmt()
        .with_max_level(settings.log_level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
    if let Err(error) = bigfleet_net::core_dump::disable() {
        tracing::warn!(%error, "core dumps cannot be switched off, and could hold keys");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Problem::from).and_then(|runtime| {
        runtime.block_on(async {
            let backend = backend(&settings).await?;
            serve(&settings, backend).await
        })
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&mut std::io::stderr(), &format!("{name}: {problem}\n"));
            ExitCode::FAILURE
        }
    }
}

fn say(to: &mut impl std::io::Write, text: &str) {
    // With nobody to read it the status alone has to tell.
    let _ = to.write_all(text.as_bytes());
}

async fn serve(settings: &Settings, backend: Arc<dyn Backend>) -> Result<(), Problem> {
    // Before anybody can read that it is ready, and send a signal.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let store: Box<dyn Store> = match &settings.state {
        Some(folder) => Box::new(FileStore::open(folder)?),
        None => Box::new(MemStore),
    };
    let listener = listen::bind_addr(&settings.addr).await?;
    let mut provider = Provider::start(listener, backend, settings.kit.clone(), store).await?;
    let mut out = std::io::stdout();
    writeln!(out, "ready provider {}", provider.dial_addr())?;
    out.flush()?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = provider.failed() => {
            ended?;
            return Err("the provider ended though nobody asked it to".into());
        }
    }
    provider.shutdown().await?;
    Ok(())
}
