//! Waiting for the end: a signal, or a part that stopped by itself.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves at SIGINT or SIGTERM, with the signal's name.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(crate) async fn signalled() -> std::io::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    })
}
