//! The provider's own desk: a socket in the file system where its owner, and nobody on the network, brings a Failed
//! machine back. One line of JSON in, one line out.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bigfleet_types::MachineState;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::Provider;

/// Longest path of a socket in the file system, in bytes.
const LONGEST_SOCKET: usize = 100;
/// Longest line, in bytes.
const LINE: u64 = 64 * 1024;

/// What the owner asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// The machine to bring back.
    pub repair: String,
}

/// What the owner is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The machine is back, in this state.
    Repaired(String),
    /// It is not, and why.
    Refused(String),
}

/// Why there is no desk.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on the admin socket {path}: {problem}")]
pub struct Closed {
    path: PathBuf,
    problem: String,
}

/// Why the owner got no answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer at the admin socket {path}: {source}; does the provider run, and with this socket?")]
pub struct Unanswered {
    path: PathBuf,
    source: std::io::Error,
}

/// The socket of a provider that keeps its state in `folder`.
#[must_use]
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("admin.sock")
}

/// As [`socket_in`]; none, with a warning, where its path is too long to be a socket's.
#[must_use]
pub fn socket_beside(state: &Path) -> Option<PathBuf> {
    let path = socket_in(state);
    let fits = path.as_os_str().len() <= LONGEST_SOCKET;
    if !fits {
        tracing::warn!(path = %path.display(), "too long for a socket; `repair` needs --admin-socket with a shorter one");
    }
    fits.then_some(path)
}

/// Asks the provider that listens at `path`.
///
/// # Errors
/// When nobody listens there or the answer makes no sense.
pub async fn ask(path: &Path, wish: &Wish) -> Result<Reply, Unanswered> {
    let asking = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(&[serde_json::to_vec(wish)?, b"\n".to_vec()].concat()).await?;
        let mut answer = String::new();
        BufReader::new(stream.take(LINE)).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    };
    asking.await.map_err(|source: std::io::Error| Unanswered { path: path.to_owned(), source })
}

/// Binds the socket, for its owner only. One that a killed process left behind is taken over.
pub(super) async fn bind(path: &Path) -> Result<UnixListener, Closed> {
    let closed = |problem: String| Closed { path: path.to_owned(), problem };
    match UnixStream::connect(path).await {
        Ok(_) => return Err(closed("another process listens there".into())),
        // Only a socket: some other file there is somebody's.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused && is_socket(path) => {
            std::fs::remove_file(path).map_err(|e| closed(e.to_string()))?;
        }
        // Nothing there, or nothing that can be connected to: binding tells.
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(|e| closed(e.to_string()))?;
    let owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner).map_err(|e| closed(e.to_string()))?;
    Ok(listener)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

impl Provider {
    /// Serves the desk until the provider stops.
    pub(super) fn open_desk(&self, listener: UnixListener, path: PathBuf) {
        let provider = self.clone();
        self.shared.tasks.spawn(async move {
            let stop = provider.shared.stop.clone();
            while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
                match accepted {
                    Ok((stream, _)) => {
                        let (provider, stop) = (provider.clone(), stop.clone());
                        tokio::spawn(stop.run_until_cancelled_owned(async move {
                            // The owner went away, or is none: nobody is there to be told.
                            let _ = provider.answer(stream).await;
                        }));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept at the admin socket; trying again");
                        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    }
                }
            }
            drop(listener);
            // Left behind it would be taken over at the next start all the same.
            let _ = std::fs::remove_file(path);
        });
    }

    async fn answer(&self, stream: UnixStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        BufReader::new(read.take(LINE)).read_line(&mut line).await?;
        let reply = match serde_json::from_str::<Wish>(&line) {
            Err(error) => Reply::Refused(format!("the line cannot be read: {error}")),
            Ok(wish) => self.grant(&wish.repair).await,
        };
        write.write_all(&[serde_json::to_vec(&reply)?, b"\n".to_vec()].concat()).await
    }

    async fn grant(&self, id: &str) -> Reply {
        let state = |id: &str| self.machine(id).and_then(|machine| MachineState::from_number(machine.state));
        match state(id) {
            None => return Reply::Refused(format!("there is no machine {id:?}")),
            Some(MachineState::Failed) => {}
            Some(other) => {
                return Reply::Refused(format!("{id:?} is {other}, and only Failed machines are repaired"));
            }
        }
        match self.repair(id).await {
            Ok(true) => {
                let now = state(id).map_or_else(String::new, |state| state.to_string());
                tracing::info!(machine = id, state = now, "repaired by its owner");
                Reply::Repaired(now)
            }
            Ok(false) => Reply::Refused(format!("the back end does not describe {id:?}")),
            Err(reason) => Reply::Refused(reason),
        }
    }
}
