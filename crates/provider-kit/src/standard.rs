//! What every provider that is a program of its own does alike: its flags, its listener, its end.
//!
//! ```no_run
//! use bigfleet_provider_kit::{pretend::Pretend, seeds, standard};
//! # use std::sync::Arc;
//! fn main() -> std::process::ExitCode {
//!     standard::main("mine", |settings| {
//!         Ok(Arc::new(Pretend::new(settings.provider.clone(), seeds::quarters("slot", settings.seed_count), true)))
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

/// Runs a provider: reads the flags, makes the back end, serves until SIGINT or SIGTERM. `name` is lower-case letters,
/// digits and `_`; metrics begin with it. Status 0 after a signal, 1 when it fails, 2 for a flag that cannot be used.
pub fn main(name: &str, backend: impl FnOnce(&Settings) -> Result<Arc<dyn Backend>, Problem>) -> ExitCode {
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
    let ended = backend(&settings).and_then(|backend| {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(&settings, backend))
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
