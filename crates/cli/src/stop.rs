//! Waiting for the end: a signal, or a part that stopped by itself.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGINT and SIGTERM from its making on. A program makes one before it says that it is ready: whoever
/// read that may send a signal at once.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers. Must run on a tokio runtime.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the next signal, with its name. Safe to call again after it was dropped.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
