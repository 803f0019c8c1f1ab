//! Starting the provider under test, as a program or in whatever way a caller knows.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bigfleet_net::tls::Files;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::behaviour::Lane;

/// How long a program may take until it listens.
const LISTENING: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// What it is for; decides the flags.
    pub lane: Lane,
    /// How many Speculative slots it must have.
    pub seed: u32,
    /// Where it keeps its state; nowhere when `None`. The path may not exist yet.
    pub state: Option<PathBuf>,
    /// The limit of its transitions; only given to the fault lane.
    pub transition_timeout: Option<Duration>,
}

/// Why a provider was not started or killed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program cannot be run.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The program ended before it listened.
    #[error("{program:?} ended with {status} before it listened on {addr}; {log} ends with:\n{tail}")]
    Ended {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// Where it should have listened.
        addr: SocketAddr,
        /// Its output.
        log: String,
        /// The end of it.
        tail: String,
    },
    /// The program runs and does not listen.
    #[error("{program:?} did not listen on {addr} within 20 s; {log} ends with:\n{tail}")]
    Deaf {
        /// The program.
        program: String,
        /// Where it should have listened.
        addr: SocketAddr,
        /// Its output.
        log: String,
        /// The end of it.
        tail: String,
    },
    /// Something around it failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Starts providers.
#[async_trait]
pub trait Launch: Send + Sync {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// Why there is none.
    async fn start(&self, spec: &Spec) -> Result<Box<dyn Running>, LaunchError>;
}

/// A provider that was started. Dropping it ends it.
#[async_trait]
pub trait Running: Send {
    /// Where it is reached: `host:port`.
    fn addr(&self) -> &str;

    /// Ends it at once, as SIGKILL does, and waits for the end.
    ///
    /// # Errors
    /// When it cannot be ended.
    async fn kill(&mut self) -> Result<(), LaunchError>;
}

/// A command line that becomes a provider when the flags of the conformance contract are added.
#[derive(Debug)]
pub struct Program {
    words: Vec<String>,
    logs: PathBuf,
    tls: Option<Files>,
    started: AtomicU32,
}

impl Program {
    /// The program `words[0]` with the arguments after it; what it prints goes to files in `logs`, which must exist.
    /// `None` without words.
    #[must_use]
    pub fn new(words: Vec<String>, logs: &Path) -> Option<Self> {
        let named = !words.is_empty();
        named.then(|| Self { words, logs: logs.to_owned(), tls: None, started: AtomicU32::new(0) })
    }

    /// Serves under TLS with these files, given to the program by `--tls-cert`, `--tls-key` and `--tls-ca`.
    #[must_use]
    pub fn tls(mut self, files: Files) -> Self {
        self.tls = Some(files);
        self
    }

    /// The flags that a lane adds.
    fn flags(spec: &Spec, addr: SocketAddr) -> Vec<String> {
        let mut flags = vec![format!("--addr={addr}")];
        if spec.lane == Lane::Fault {
            flags.push("--provider=fault".into());
        } else {
            flags.extend(["--provider=certify".into(), "--use-fake-backend".into()]);
        }
        flags.push(format!("--seed-count={}", spec.seed));
        if let Some(limit) = spec.transition_timeout {
            flags.push(format!("--transition-timeout={}s", limit.as_secs()));
        }
        flags.extend(spec.state.as_ref().map(|path| format!("--state={}", path.display())));
        flags
    }
}

#[async_trait]
impl Launch for Program {
    async fn start(&self, spec: &Spec) -> Result<Box<dyn Running>, LaunchError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| LaunchError::Io { what, source }
        };
        let port = std::net::TcpListener::bind("127.0.0.1:0").map_err(io("cannot find a free port"))?;
        let addr = port.local_addr().map_err(io("cannot read the port"))?;
        drop(port);
        let n = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.logs.join(format!("provider-{n}.log"));
        let out = std::fs::File::create(&log).map_err(io(&format!("cannot write {}", log.display())))?;
        let err = out.try_clone().map_err(io("cannot share the log"))?;
        let program = self.words.first().cloned().unwrap_or_default();
        let child = Command::new(&program)
            .args(self.words.iter().skip(1))
            .args(Self::flags(spec, addr))
            .args(self.tls.iter().flat_map(tls_flags))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A wrapper's children go when the wrapper goes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| LaunchError::Spawn { program: program.clone(), source })?;
        let mut process = Process { child, addr: addr.to_string() };
        let begun = Instant::now();
        loop {
            if tokio::net::TcpStream::connect(addr).await.is_ok() {
                return Ok(Box::new(process));
            }
            let tail = || tail(&log);
            let shown = log.display().to_string();
            if let Some(status) = process.child.try_wait().map_err(io("cannot watch the program"))? {
                return Err(LaunchError::Ended { program, status, addr, log: shown, tail: tail() });
            }
            if begun.elapsed() > LISTENING {
                return Err(LaunchError::Deaf { program, addr, log: shown, tail: tail() });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn tls_flags(files: &Files) -> [String; 3] {
    [("cert", &files.cert), ("key", &files.key), ("ca", &files.ca)]
        .map(|(name, path)| format!("--tls-{name}={}", path.display()))
}

fn tail(log: &Path) -> String {
    match std::fs::read_to_string(log) {
        Ok(text) => {
            let lines: Vec<_> = text.lines().collect();
            lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
        }
        Err(error) => format!("(cannot be read: {error})"),
    }
}

struct Process {
    child: Child,
    addr: String,
}

impl Process {
    /// SIGKILL to the program and what it started; nothing when it has ended.
    fn signal(&self) -> std::io::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        id.map_or(Ok(()), |id| Ok(kill_process_group(id, Signal::KILL)?))
    }
}

#[async_trait]
impl Running for Process {
    fn addr(&self) -> &str {
        &self.addr
    }

    async fn kill(&mut self) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Io { what: "cannot kill the provider".into(), source };
        self.signal().map_err(failed)?;
        self.child.wait().await.map_err(failed)?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.signal() {
            tracing::warn!(%error, "a provider that was started here cannot be ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_add_their_flags() {
        let addr: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut spec =
            Spec { lane: Lane::Durable, seed: 64, state: Some("/s".into()), transition_timeout: None };
        assert_eq!(
            Program::flags(&spec, addr),
            [
                "--addr=127.0.0.1:9",
                "--provider=certify",
                "--use-fake-backend",
                "--seed-count=64",
                "--state=/s"
            ]
        );
        spec =
            Spec { lane: Lane::Fault, state: None, transition_timeout: Some(Duration::from_secs(2)), ..spec };
        assert_eq!(
            Program::flags(&spec, addr),
            ["--addr=127.0.0.1:9", "--provider=fault", "--seed-count=64", "--transition-timeout=2s"]
        );
    }
}
