//! A program that plays the host: run at each Configure and again at each Drain.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, Command};

use super::NodeHook;
use crate::backend::{Error, Operation};
use crate::blob::Blob;

/// How much of the program's last words is kept, in bytes.
const TAIL: usize = 16 * 1024;
/// How long the last words may come after the program's end: what it started may still hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The program and its arguments.
///
/// Its environment gets `BIGFLEET_OPERATION` (`Configure` or `Drain`), `BIGFLEET_MACHINE_ID`,
/// `BIGFLEET_INSTANCE_TYPE`, `BIGFLEET_ZONE`, `BIGFLEET_CLUSTER`, and at Drain `BIGFLEET_GRACE_SECONDS`. At Configure
/// the bootstrap blob comes on standard input. Exit 0 means that the node is Ready, or gone; processes that it leaves
/// behind then live on. Anything else fails the machine, with the last line of standard error as the reason. At the
/// time-out the program is killed with its whole process group.
///
/// After a restart of the provider an interrupted Drain runs again, perhaps beside what the killed provider left
/// running: the program must bear that. An interrupted Configure never runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootCommand {
    /// The program, a path or a name on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

#[async_trait]
impl NodeHook for BootCommand {
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        self.run("Configure", operation, Some(blob)).await
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.run("Drain", operation, None).await
    }
}

impl BootCommand {
    async fn run(&self, name: &str, operation: Operation<'_>, blob: Option<&Blob>) -> Result<(), Error> {
        let program = self.program.display();
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env("BIGFLEET_OPERATION", name)
            .env("BIGFLEET_MACHINE_ID", operation.id.as_str())
            .env("BIGFLEET_INSTANCE_TYPE", &operation.machine.instance_type)
            .env("BIGFLEET_ZONE", &operation.machine.zone)
            .env("BIGFLEET_CLUSTER", &operation.machine.cluster)
            .stdin(if blob.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if blob.is_none() {
            command.env("BIGFLEET_GRACE_SECONDS", operation.grace_seconds.to_string());
        }
        let child =
            command.spawn().map_err(|e| Error::new(format!("cannot run boot command {program}: {e}")))?;
        let mut group = Group::new(child);
        let stdin = group.child.stdin.take();
        let feed = async {
            if let (Some(mut stdin), Some(blob)) = (stdin, blob) {
                // A program may exit without reading; its exit code tells what that means.
                let _ = stdin.write_all(blob.expose()).await;
            }
        };
        let mut tail = Vec::new();
        let stderr = group.child.stderr.take();
        let listen = keep_tail(stderr, &mut tail);
        let status = {
            let mut listen = std::pin::pin!(listen);
            let mut listening = true;
            let exit = async { tokio::join!(feed, group.child.wait()).1 };
            let mut exit = std::pin::pin!(exit);
            let status = loop {
                tokio::select! {
                    status = exit.as_mut() => break status,
                    () = listen.as_mut(), if listening => listening = false,
                }
            };
            if listening {
                // What the program started may hold the pipe for ever.
                let _ = tokio::time::timeout(LAST_WORDS, listen).await;
            }
            status
        };
        group.ended = true;
        let status =
            status.map_err(|e| Error::new(format!("cannot wait for boot command {program}: {e}")))?;
        if status.success() { Ok(()) } else { Err(Error::new(failure(name, status, &tail))) }
    }
}

fn failure(name: &str, status: ExitStatus, tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!("boot command ended its {name} with {status}: {}", line.trim()),
        None => format!("boot command ended its {name} with {status} and said nothing"),
    }
}

/// Reads to the end, keeping the last bytes.
async fn keep_tail(stderr: Option<ChildStderr>, tail: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0; 4096];
    // An error ends the last words as an end does; the exit code decides in any case.
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.extend_from_slice(&buffer[..read]);
        if tail.len() > 2 * TAIL {
            tail.drain(..tail.len() - TAIL);
        }
    }
}

/// A program with its process group, killed when dropped before its end.
struct Group {
    child: Child,
    leader: Option<Pid>,
    ended: bool,
}

impl Group {
    fn new(child: Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { child, leader, ended: false }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // While the leader is not reaped its id cannot belong to another group.
        if !self.ended
            && let Some(leader) = self.leader
            && let Err(error) = kill_process_group(leader, Signal::KILL)
        {
            tracing::warn!(%error, "cannot kill the process group of a boot command");
        }
    }
}
