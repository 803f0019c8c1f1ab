//! Processes that live beside the suite: each with a log, each ended by its id, also when we are killed.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end after SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// Lives as long as we do, or a little longer: when our end of its pipe closes, it stops what we left behind.
const SHELL: &str = r#"
trap '' INT TERM HUP
pids=
while read -r op pid; do
  case $op in
    add) pids="$pids $pid" ;;
    drop) rest=; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done; pids=$rest ;;
    keep) exit 0 ;;
  esac
done
[ -n "$pids" ] || exit 0
kill -CONT $pids; kill $pids; sleep 3; kill -KILL $pids
"#;

/// Stops every process that was started with it when this process is gone, however it went.
#[derive(Debug, Clone)]
pub(super) struct Reaper(Arc<Mutex<Option<ChildStdin>>>);

impl Reaper {
    /// Starts it.
    pub(super) fn start() -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = shell.process_group(0).spawn().context("cannot start sh")?;
        Ok(Self(Arc::new(Mutex::new(child.stdin.take()))))
    }

    fn tell(&self, line: std::fmt::Arguments<'_>) -> Result<()> {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = pipe.as_mut().context("the processes were let go already")?;
        // One write a line: two halves would be two commands.
        pipe.write_all(format!("{line}\n").as_bytes()).context("the reaper is gone")
    }

    /// Lets every process live on without us.
    pub(super) fn let_go(&self) -> Result<()> {
        self.tell(format_args!("keep"))
    }
}

/// A running program. Dropping it kills it, unless it was let go.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Where this start's part of the log begins.
    begin: usize,
    reaper: Reaper,
    ended: Option<ExitStatus>,
    let_go: bool,
}

impl Process {
    /// Starts `command`; what it prints is appended to `<folder>/<name>.log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(name: &str, mut command: Command, folder: &Path, reaper: &Reaper) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let begin = usize::try_from(file.metadata()?.len())?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // Not in our process group: Ctrl-C is for us, and we end it in order.
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        reaper.tell(format_args!("add {}", child.id()))?;
        let reaper = reaper.clone();
        Ok(Self { name: name.to_owned(), child, log, begin, reaper, ended: None, let_go: false })
    }

    /// Its id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed since this start.
    pub(super) fn printed(&self) -> Result<String> {
        let bytes = std::fs::read(&self.log)?;
        Ok(String::from_utf8_lossy(bytes.get(self.begin..).unwrap_or_default()).into_owned())
    }

    /// Its exit status, once it has ended.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.ended = Some(status);
            self.reaper.tell(format_args!("drop {}", self.child.id()))?;
        }
        Ok(self.ended)
    }

    /// Fails when it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            let (name, last) = (&self.name, self.printed()?);
            bail!("{name} ended ({status}); it printed last\n{}", tail(&last, 15));
        }
        Ok(())
    }

    /// Waits for its line `ready NAME ADDRESS` and gives the address.
    pub(super) fn ready(&mut self, name: &str, within: Duration) -> Result<String> {
        let start = Instant::now();
        let begins = format!("ready {name} ");
        loop {
            if let Some(address) = self.printed()?.lines().find_map(|line| line.strip_prefix(&begins)) {
                return Ok(address.trim().to_owned());
            }
            self.check()?;
            if start.elapsed() > within {
                bail!("{} did not print `{begins}...` within {} s", self.name, within.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the process, which must not have ended.
    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.check()?;
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(id, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// SIGKILL, and waits for the end.
    pub(super) fn kill(mut self) -> Result<()> {
        if self.ended()?.is_none() {
            self.child.kill()?;
            self.ended = Some(self.child.wait()?);
            self.reaper.tell(format_args!("drop {}", self.child.id()))?;
        }
        Ok(())
    }

    /// SIGTERM, and SIGKILL when that is not enough. Gives the exit status.
    pub(super) fn stop(mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        if self.ended()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if start.elapsed() > STOP_WITHIN {
                let name = self.name.clone();
                self.kill()?;
                bail!("{name} did not end within {} s after SIGTERM and was killed", STOP_WITHIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets it live on.
    pub(super) fn let_go(mut self) -> u32 {
        self.let_go = true;
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.let_go && self.ended.is_none() {
            // One that has ended already is no failure; the reaper would get the rest.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = self.reaper.tell(format_args!("drop {}", self.child.id()));
        }
    }
}

/// The last `lines` lines.
pub(super) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path, reaper: &Reaper) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready sleeper 1.2.3.4:5; exec sleep 600"]);
        Process::start("sleeper", command, folder, reaper).unwrap()
    }

    fn lives(id: u32) -> bool {
        // A zombie has ended; its parent has only not asked yet.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
    }

    #[test]
    fn what_is_left_behind_is_stopped_and_what_was_let_go_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let reaper = Reaper::start().unwrap();
            let mut process = sleeper(folder.path(), &reaper);
            assert_eq!(process.ready("sleeper", Duration::from_secs(30)).unwrap(), "1.2.3.4:5");
            let id = process.let_go();
            if keep {
                reaper.let_go().unwrap();
                assert!(lives(id));
                kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), Signal::KILL).unwrap();
            }
            drop(reaper);
            let start = Instant::now();
            while lives(id) {
                assert!(start.elapsed() < Duration::from_secs(30), "{id} lives on");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_told_with_the_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let reaper = Reaper::start().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo oh no >&2; exit 3"]);
        let mut process = Process::start("broken", command, folder.path(), &reaper).unwrap();
        let error = process.ready("anything", Duration::from_secs(30)).unwrap_err().to_string();
        assert!(error.contains("broken ended") && error.contains("oh no"), "{error}");
        assert!(sleeper(folder.path(), &reaper).stop().is_ok());
        let process = sleeper(folder.path(), &reaper);
        let id = process.id();
        drop(process);
        assert!(!lives(id));
    }
}
