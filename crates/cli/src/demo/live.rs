//! The terminal in its two modes: drawn upon, or restored. Every way out restores it, a panic included.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

use super::picture::Picture;
use super::view::{self, Choice};

/// How long the reader of keys waits before it looks whether to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Keys that may wait.
const KEYS: usize = 64;

/// A terminal that is drawn upon. Dropping it restores the terminal.
pub(crate) struct Live {
    terminal: DefaultTerminal,
    ended: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Live {
    /// Takes the terminal over, and gives its events. A panic restores it before its message is printed.
    pub(crate) fn start() -> io::Result<(Self, mpsc::Receiver<Event>)> {
        // What fails half way may have left the terminal in another mode.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        let mut live = Self { terminal, ended: Arc::default(), reader: None };
        let (send, events) = mpsc::channel(KEYS);
        let ended = Arc::clone(&live.ended);
        let read = move || {
            while !ended.load(Ordering::Relaxed) {
                match event::poll(PATIENCE) {
                    Ok(false) => {}
                    Ok(true) => match event::read() {
                        Ok(event) => {
                            if send.blocking_send(event).is_err() {
                                return;
                            }
                        }
                        Err(error) => return tracing::error!(%error, "cannot read keys any more"),
                    },
                    Err(error) => return tracing::error!(%error, "cannot wait for keys any more"),
                }
            }
        };
        live.reader = Some(std::thread::Builder::new().name("keys".into()).spawn(read)?);
        Ok((live, events))
    }

    pub(crate) fn draw(&mut self, picture: &Picture, choice: Choice) -> io::Result<()> {
        self.terminal.draw(|frame| view::render(frame, picture, choice)).map(|_| ())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        ratatui::restore();
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            tracing::error!("the reader of keys panicked");
        }
    }
}
