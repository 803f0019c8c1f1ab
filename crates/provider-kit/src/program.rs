//! Local programs that do a back end's work: boot commands, hooks of an inventory, whole back ends.
//!
//! Each runs in a process group of its own, which is killed as a whole when the work is given up: at the time-out, when
//! the machine failed otherwise, or when the provider stops. A program that ends by itself may leave processes behind.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::backend::{Error, Operation};

/// How much of the program's last words is kept, in bytes.
const TAIL: usize = 16 * 1024;
/// How long the last words may come after the program's end: what it started may still hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program, a path or a name on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

impl Program {
    /// A command line as people type it: words end at blanks, quotes and backslashes keep blanks in a word, as in a
    /// shell. Nothing else of a shell is done: no variables, no patterns, no pipes. `None` when there is nothing in it.
    ///
    /// # Errors
    /// A quote that is not closed, or a backslash with nothing after it.
    pub fn split(line: &str) -> Result<Option<Self>, Unbalanced> {
        match shlex::split(line) {
            Some(words) => Ok(Self::of(words)),
            // What is before the place where it goes wrong is a whole command line, nothing longer is.
            None => {
                let starts = line.char_indices().rev();
                let mut whole = starts.filter(|(at, _)| shlex::split(&line[..*at]).is_some());
                let (at, found) = whole.next().unwrap_or((0, '"'));
                Err(Unbalanced { position: line[..at].chars().count() + 1, found })
            }
        }
    }

    /// A program followed by its arguments; `None` without a program.
    pub fn of(words: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty())?.into();
        Some(Self { program, args: words.collect() })
    }
}

/// A command line that ends in the middle of a word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {found} at character {position} has no end; close it, or put a backslash before it to mean the character itself"
)]
pub struct Unbalanced {
    /// Which character it is, from 1.
    pub position: usize,
    /// A quote, or a backslash that ends the line.
    pub found: char,
}

/// What one run is given.
#[derive(Debug, Clone)]
pub(crate) struct Run<'a> {
    /// What the program is, for error texts: `boot command`, say.
    pub(crate) what: &'a str,
    /// Its environment beside ours.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Its standard input; `None` for an empty one.
    pub(crate) input: Option<&'a [u8]>,
    /// Bytes of standard output that are wanted at most; 0 leaves it unread.
    pub(crate) output: usize,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    /// Its standard output.
    pub(crate) output: Vec<u8>,
    last_words: Vec<u8>,
}

impl Ended {
    /// Whether it ended with status 0.
    ///
    /// # Errors
    /// When not; with its last line on standard error as the reason.
    pub(crate) fn check(&self, what: &str, name: &str) -> Result<(), Error> {
        if self.status.success() {
            return Ok(());
        }
        let status = self.status;
        let text = String::from_utf8_lossy(&self.last_words);
        Err(Error::new(match text.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => format!("{what} ended its {name} with {status}: {}", line.trim()),
            None => format!("{what} ended its {name} with {status} and said nothing"),
        }))
    }
}

/// What every program learns about its machine through its environment.
pub(crate) fn environment(name: &str, operation: &Operation<'_>) -> Vec<(&'static str, String)> {
    let machine = operation.machine;
    vec![
        ("BIGFLEET_OPERATION", name.to_owned()),
        ("BIGFLEET_OPERATION_ID", operation.operation_id.to_owned()),
        ("BIGFLEET_MACHINE_ID", operation.id.to_string()),
        ("BIGFLEET_INSTANCE_TYPE", machine.instance_type.clone()),
        ("BIGFLEET_ZONE", machine.zone.clone()),
        ("BIGFLEET_CLUSTER", machine.cluster.clone()),
    ]
}

impl Program {
    /// Runs it to its end. Dropping the future kills it with its process group.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<Ended, Error> {
        let (what, shown) = (run.what, self.program.display());
        let pipe = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(run.environment)
            .stdin(pipe(run.input.is_some()))
            .stdout(pipe(run.output > 0))
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|e| Error::new(format!("cannot run {what} {shown}: {e}")))?;
        let mut group = Group::new(child);
        let stdin = group.child.stdin.take();
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, run.input) {
                // A program may exit without reading; its exit code tells what that means.
                let _ = stdin.write_all(input).await;
            }
        };
        let (mut output, mut last_words) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
        let status = {
            let listen = async {
                tokio::join!(keep_head(stdout, &mut output, run.output), keep_tail(stderr, &mut last_words))
            };
            let mut listen = std::pin::pin!(listen);
            let mut listening = true;
            let exit = async { tokio::join!(feed, group.child.wait()).1 };
            let mut exit = std::pin::pin!(exit);
            let status = loop {
                tokio::select! {
                    status = exit.as_mut() => break status,
                    _ = listen.as_mut(), if listening => listening = false,
                }
            };
            if listening {
                // What the program started may hold the pipes for ever.
                let _ = tokio::time::timeout(LAST_WORDS, listen).await;
            }
            status
        };
        group.ended = true;
        let status = status.map_err(|e| Error::new(format!("cannot wait for {what} {shown}: {e}")))?;
        if output.len() > run.output {
            return Err(Error::new(format!("{what} {shown} printed more than {} bytes", run.output)));
        }
        Ok(Ended { status, output, last_words })
    }
}

/// Reads to the end, keeping the first bytes and one more than are wanted.
async fn keep_head(from: Option<impl AsyncRead + Unpin>, head: &mut Vec<u8>, wanted: usize) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 64 * 1024];
    // An error ends the output as an end does; the exit code decides in any case.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = wanted.saturating_add(1).saturating_sub(head.len());
        head.extend_from_slice(&buffer[..read.min(room)]);
    }
}

/// Reads to the end, keeping the last bytes.
async fn keep_tail(from: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 4096];
    // As in `keep_head`.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
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
            tracing::warn!(%error, "cannot kill the process group of a program");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let Program { program, args } = Program::split(line).unwrap().unwrap();
        [program.display().to_string()].into_iter().chain(args).collect()
    }

    #[test]
    fn a_command_line_keeps_blanks_in_quotes() {
        for (line, expected) in [
            ("run --fast  now", &["run", "--fast", "now"][..]),
            ("sh -c 'echo  $HOME | cat'", &["sh", "-c", "echo  $HOME | cat"]),
            (
                r#"run "two words" it\'s a\ b "a \"b\"" '' *"#,
                &["run", "two words", "it's", "a b", "a \"b\"", "", "*"],
            ),
            ("\"/opt/my tools/run\"", &["/opt/my tools/run"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
        assert_eq!(Program::split("  "), Ok(None));
        assert_eq!(Program::split("''"), Ok(None));
    }

    #[test]
    fn an_open_quote_is_named_with_its_place() {
        for (line, position, found) in [
            ("run 'two words", 5, '\''),
            ("run \"a b\" it's", 13, '\''),
            ("\u{e4}\u{e4} \"x", 4, '"'),
            ("run \"a 'b", 5, '"'),
            ("run a\\", 6, '\\'),
            ("'", 1, '\''),
        ] {
            assert_eq!(Program::split(line), Err(Unbalanced { position, found }), "{line}");
        }
    }
}
